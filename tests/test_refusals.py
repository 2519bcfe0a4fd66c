"Nothing is lost and nothing is silently wrong: each of these inputs once destroyed a file, gave another result, or passed unseen."
import gzip, json, os, random, shutil, sys
import pytest, safetensors.torch, torch
from conftest import SMALL, TRAINED, content, in_here, names, refused, run, write
from annotated_transformer.utils.io import digest

@pytest.fixture
def text(tmp_path): return write(tmp_path / 'exp' / 'data', train_en=names('en', 60), train_de=names('de', 60))

def change(path, **values):
    config = json.loads(path.read_text())
    config['model'] |= {k: v for k, v in values.items() if k in config['model']}
    config |= {k: v for k, v in values.items() if k not in config['model']}
    path.write_text(json.dumps(config))

# ---- Nothing lost

@pytest.mark.parametrize('data_dir, out', [('exp/data', 'exp'), ('exp/data', 'exp/data'), ('exp/data/train.en', 'exp'), ('data', '.'), ('exp/data', 'exp/data/../../exp')])
def test_corpus_within_the_run(text, data_dir, out):
    "--data_dir inside --out: the corpus stays."
    cwd, before = text.parents[0 if data_dir == 'data' else 1], content(text)
    result = run('train', '--recipe', 'demo', '--corpus', 'text_en_de', '--data_dir', data_dir, '--out', out, '--set', SMALL, cwd=cwd)
    refused(result, 'choose another --out')
    assert content(text) == before

def test_run_within_the_corpus(text):
    "The reverse is safe for files that are known by name, and refused where every file would be read."
    before = content(text)
    result = run('train', '--recipe', 'demo', '--corpus', 'text_en_de', '--data_dir', text, '--out', text / 'runs' / 'a', '--set', SMALL)
    assert result.returncode == 0 and before.items() <= content(text).items(), result.stderr
    refused(run('train', '--recipe', 'demo', '--corpus', 'wmt14_en_de', '--data_dir', text, '--out', text / 'runs' / 'b', '--set', SMALL), 'share a folder')

def test_files_of_others(text):
    "A folder with anything in it that no run made."
    for name in 'notes.txt', 'config.json', 'data/train.en':
        folder = write(text.parents[1] / name.replace('/', '-'))
        (folder / name).parent.mkdir(exist_ok=True)
        (folder / name).write_text('{}')
        refused(run('train', '--recipe', 'demo', '--corpus', 'text_en_de', '--data_dir', text, '--out', folder, '--set', SMALL), 'holds files of yours', name.split('/')[0])
        assert content(folder) == {name: b'{}'}

@pytest.mark.parametrize('resume', [[], ['--resume']])
def test_finished_model(own, capfd, resume):
    "Its checkpoints were removed: the model is not trained over, nor is a new one begun in its place."
    shutil.rmtree(own / 'checkpoints')
    before = content(own)
    args = '--recipe', 'demo', '--corpus', 'text_en_de', '--data_dir', own.parent, '--out', own, '--set', SMALL
    write(own.parent, train_en=names('en'), train_de=names('de'))
    refused(in_here(capfd, 'train', *args, *resume), 'is not overwritten')
    assert content(own) == before

@pytest.mark.parametrize('resume', [[], ['--resume']])
def test_train_into_an_export(own, capfd, resume, tmp_path):
    assert in_here(capfd, 'export', own, '--to', 'safetensors', '--out', tmp_path / 'given').returncode == 0
    before = content(tmp_path / 'given')
    write(tmp_path, train_en=names('en', 60), train_de=names('de', 60))
    args = '--recipe', 'demo', '--corpus', 'text_en_de', '--data_dir', tmp_path, '--out', tmp_path / 'given', '--set', SMALL
    refused(in_here(capfd, 'train', *args, *resume), 'made by another program (export)')
    assert content(tmp_path / 'given') == before

@pytest.mark.parametrize('to', ['ctranslate2', 'safetensors'])
def test_export_over_a_run(own, trained, capfd, to, tmp_path):
    "Neither the run itself, nor another one, nor anybody's folder is written into."
    write(tmp_path / 'mine', thesis_tex='years')
    for out in own, trained, tmp_path / 'mine':
        before = content(out)
        refused(in_here(capfd, 'export', own, '--to', to, '--out', out), 'choose a new or an empty folder')
        assert content(out) == before

def test_export_again(own, capfd, tmp_path):
    "Into its own folder, yes; a failing one leaves the old."
    for _ in range(2): assert in_here(capfd, 'export', own, '--to', 'safetensors', '--out', tmp_path / 'out').returncode == 0
    before = content(tmp_path / 'out')
    change(own / 'config.json', d_ff=64)
    refused(in_here(capfd, 'export', own, '--to', 'safetensors', '--out', tmp_path / 'out'), 'd_ff')
    assert content(tmp_path / 'out') == before

def test_evaluate_over_its_input(own, capfd, tmp_path):
    files = write(tmp_path / 'test', src='seven\n', ref='sieben\n', base='sieben\n')
    for name in 'ref', 'src', 'base':
        result = in_here(capfd, 'evaluate', own, '--src', files / 'src', '--ref', files / 'ref', '--baseline', files / 'base', '--out', files / name)
        refused(result, 'is, or is in, what is read')
    refused(in_here(capfd, 'evaluate', own, '--out', own / 'config.json'), 'already exists')
    refused(in_here(capfd, 'evaluate', own, '--out', tmp_path / 'nowhere' / 'o'), 'there is no folder')
    assert content(files) == dict(src=b'seven\n', ref=b'sieben\n', base=b'sieben\n')

# ---- Nothing silently wrong

def test_other_tokenizer(own, capfd, tmp_path):
    "Another run's tokenizer with as many pieces."
    write(tmp_path / 'fr', train_en=names('en'), train_fr=names('fr'))
    in_here(capfd, 'train', '--recipe', 'demo', '--corpus', 'text_en_fr', '--data_dir', tmp_path / 'fr', '--out', tmp_path / 'other', '--set', SMALL)
    shutil.copy(tmp_path / 'other' / 'tokenizer.model', own)
    for command in 'translate', 'evaluate', 'export': refused(in_here(capfd, command, own), 'tokenizer.model is not the one')

@pytest.mark.parametrize('engine', ['pytorch', 'ctranslate2'])
@pytest.mark.parametrize('option, value, said', [('--alpha', 'nan', 'alpha=nan must be'), ('--alpha', 'inf', 'alpha=inf must be at most'), ('--alpha', '-1', 'alpha=-1.0 must be at least 0'),
    ('--alpha', '1000', 'alpha=1000.0 must be at most'), ('--beam', '0', 'beam=0 must be at least 1'), ('--beam', '-3', 'beam=-3 must'), ('--beam', '1000000000', 'beam=1000000000 must be at most')])
def test_numbers_of_the_search(own, capfd, engine, option, value, said):
    if not (own / 'ctranslate2').exists() and engine == 'ctranslate2': in_here(capfd, 'export', own)
    for command in 'translate', 'evaluate': refused(in_here(capfd, command, own, option, value, '--engine', engine), said)

def test_packed_input(own, tmp_path):
    "x.gz holds text, wherever it is read or written."
    lines = names('en', 30) + '\n'
    (tmp_path / 'x.gz').write_bytes(gzip.compress(lines.encode()))
    (tmp_path / 'ref.gz').write_bytes(gzip.compress((names('de', 30) + '\n').encode()))
    plain = run('translate', own, '--beam', '1', stdin=lines).stdout
    assert run('translate', own, '--beam', '1', '--input', tmp_path / 'x.gz').stdout == plain and plain.count('\n') == 30
    result = run('evaluate', own, '--beam', '1', '--src', tmp_path / 'x.gz', '--ref', tmp_path / 'ref.gz', '--out', tmp_path / 'hyp.gz')
    assert result.returncode == 0 and gzip.decompress((tmp_path / 'hyp.gz').read_bytes()).decode() == plain, result.stderr
    (tmp_path / 'cut.gz').write_bytes((tmp_path / 'x.gz').read_bytes()[:-9])
    refused(run('translate', own, '--input', tmp_path / 'cut.gz'), 'cut.gz is not a complete gzip file')

def spoil(path, f, digests=None):
    "Change the tensors of a file as `f` says, and the list of digests beside it."
    with safetensors.safe_open(path, 'pt') as file: metadata = file.metadata()
    weights = safetensors.torch.load_file(path)
    safetensors.torch.save_file(f(weights) or weights, path, metadata)
    if digests: digests.write_text(''.join(f'{digest(path.parent / n)}  {n}\n' for n in ('model.safetensors', 'training.pt')))

NAME = 'encoder.layers.0.feed_forward.W_1.bias'
SPOILT = {
    'one value for all': (lambda w: w.update({NAME: torch.ones(1)}), f'{NAME} has shape (1,)'),
    'missing':           (lambda w: {k: v for k, v in w.items() if k != NAME}, f'{NAME} is missing'),
    'one too many':      (lambda w: w.update({'gate.weight': torch.ones(3)}), 'this model has no gate.weight'),
    'not a number':      (lambda w: w | {NAME: w[NAME] * float('nan')}, f'{NAME} holds numbers that are not finite'),
}

@pytest.mark.parametrize('case', SPOILT)
def test_weights_that_do_not_fit(own, capfd, case, tmp_path):
    "In a model, and in a checkpoint whose digests agree with it."
    f, said = SPOILT[case]
    newest = sorted((own / 'checkpoints').iterdir())[-1]
    spoil(newest / 'model.safetensors', f, newest / 'SHA256SUMS')
    write(tmp_path, train_en=names('en'), train_de=names('de'))
    args = '--recipe', 'demo', '--corpus', 'text_en_de', '--data_dir', tmp_path, '--out', own, '--resume', '--set', TRAINED.replace('steps=200', 'steps=201', 1)
    refused(in_here(capfd, 'train', *args), 'model.safetensors', said)
    spoil(own / 'model.safetensors', f)
    for command in 'translate', 'evaluate', 'export': refused(in_here(capfd, command, own), 'model.safetensors', said)

@pytest.mark.parametrize('values, said', [
    (dict(h=2, d_k=32, d_v=32), 'trained with h=4, config.json says 2'),         # the same shapes, another function
    (dict(norm='pre'), 'norm=post'), (dict(h=16), 'h=4'), (dict(d_ff=64), 'd_ff'), (dict(N=3), 'trained with N=1'), (dict(vocab_size=99), '99'),
    (dict(positions='learned'), 'positions'), (dict(tied=False), 'tied'), (dict(d_model=32), 'd_model'),
    (dict(h=-1), 'h=-1 must be at least 1'), (dict(h='8'), "h='8': must be"), (dict(N=10**7), 'N='), (dict(d_ff=10**9), 'd_ff'), (dict(d_ff=10**30), 'is more than'),
    (dict(model=None), 'must be names with values'), (dict(model=[1]), 'must be names with values'), (dict(pad_id='x'), "pad_id='x'"), (dict(pad_id=5000), 'pad_id=5000'),
    (dict(P_drop=None), 'P_drop=None'), (dict(text=7), 'text=7'), (dict(source=None), 'source=None')])
def test_edited_configuration(own, capfd, values, said):
    before = content(own)
    change(own / 'config.json', **values)
    for command in 'translate', 'evaluate', 'export': refused(in_here(capfd, command, own), said)
    assert {k: v for k, v in content(own).items() if k != 'config.json'} == {k: v for k, v in before.items() if k != 'config.json'}

def test_export_leaves_nothing_behind(own, tmp_path, monkeypatch):
    "A gate that a user has built into the model is trained, saved and loaded, and cannot be exported without a word."
    from annotated_transformer.export import engines
    from annotated_transformer.model import transformer
    class Gated(transformer.Transformer):
        def __init__(self, *args):
            super().__init__(*args)
            self.gate = torch.nn.Linear(1, 1)
    monkeypatch.setattr(engines, 'Transformer', Gated)
    spoil(own / 'model.safetensors', lambda w: w.update({'gate.weight': torch.ones(1, 1), 'gate.bias': torch.ones(1)}))
    with pytest.raises(ValueError, match='CTranslate2 has no gate.weight'): engines.to_ctranslate2(own, tmp_path / 'out')
    assert not (tmp_path / 'out').exists()

def test_old_runs(own, capfd):
    "A run of the first edition has no mark, no configuration in its weights and fewer fields: it is read and continued."
    (own / '.annotated_transformer').unlink()
    for path in own.rglob('*.safetensors'):
        safetensors.torch.save_file(safetensors.torch.load_file(path), path)
    for path in own.rglob('training.pt'):                # parameters by number, not by name
        saved = torch.load(path, weights_only=True)
        params = [k for g in saved['optimizer']['param_groups'] for k in g['params']]
        saved['optimizer'] = dict(state={i: saved['optimizer']['state'][k] for i, k in enumerate(params)},
                                  param_groups=[saved['optimizer']['param_groups'][0] | dict(params=[*range(len(params))])])
        torch.save(saved, path)
    for sums in own.rglob('SHA256SUMS'): sums.write_text(''.join(f'{digest(sums.parent / n)}  {n}\n' for n in ('model.safetensors', 'training.pt')))
    config = json.loads((own / 'config.json').read_text())
    for field in 'architecture', 'optimizer', 'weight_decay', 'momentum', 'schedule', 'recompute', 'clip', 'seed', 'too_long': del config[field]
    del config['model']['P_attn']
    (own / 'config.json').write_text(json.dumps(config))
    write(own.parent, train_en=names('en'), train_de=names('de'))
    args = '--recipe', 'demo', '--corpus', 'text_en_de', '--data_dir', own.parent, '--out', own, '--resume', '--set', TRAINED.replace('steps=200', 'steps=205', 1)
    result = in_here(capfd, 'train', *args)
    assert result.returncode == 0, result.stderr
    assert (own / 'checkpoints' / 'step-00000205').is_dir()

def test_closed_streams(own, tmp_path):
    "A closed stream is an error or nothing, and its number is never given to a file that a library then writes into."
    shell = lambda line: os.popen(f'{{ {sys.executable.rsplit("/", 1)[0]}/transformer_{line} ; }} 2>&1; echo $?').read().split('\n')
    assert 'error: standard input is closed: give --input FILE' in shell(f'translate {own} <&-')
    assert os.popen(f'echo seven | {sys.executable.rsplit("/", 1)[0]}/transformer_translate {own} 2>&1 >&-; true').read() == 'error: standard output is closed: send it to a file, or to /dev/null\n'
    assert shell(f'translate {own} --input /dev/null 2>&-')[-2] == '0'

ODD = [None, True, -1, 0, 1e308, 10**40, '', 'x', [], {}, [1, 2], {'a': 1}, 3.5, float('nan'), 'a' * 10**5]

def mutated(data, rng):
    "A configuration with some bytes, or one value, changed, removed or added."
    if rng.random() < .5:
        b, i = bytearray(data), rng.randrange(len(data))
        rng.choice([lambda: b.__setitem__(i, rng.randrange(256)), lambda: b.__delitem__(slice(i, i + rng.randrange(1, 40))),
                    lambda: b.__setitem__(slice(i, i), bytes(rng.choices(range(32, 127), k=3)))])()
        return bytes(b)
    config = json.loads(data)
    where = config['model'] if rng.random() < .6 else config
    name = rng.choice(list(where))
    if rng.random() < .3: del where[name]
    elif rng.random() < .4 and type(where[name]) in (int, float): where[name] *= 2
    else: where[name] = rng.choice(ODD)
    return json.dumps(config).encode()

def test_any_configuration(own):
    "Whatever a configuration says, it is refused in words that name it, or changes nothing."
    from annotated_transformer.cli.main import mendable
    from annotated_transformer.inference.translator import Translator
    write_to = lambda: Translator.from_pretrained(own, 'cpu').translate(['twenty-one'], beam=1)
    whole, right, rng, refusals = (own / 'config.json').read_bytes(), write_to(), random.Random(0), 0
    for _ in range(100):
        (own / 'config.json').write_bytes(mutated(whole, rng))
        try: assert write_to() == right, (own / 'config.json').read_bytes()
        except (ValueError, OSError) as e: refusals += str(own) in mendable(e)
    assert refusals > 40
