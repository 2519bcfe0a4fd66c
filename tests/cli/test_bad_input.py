"""Bad input gets one line that says what is wrong and what to do: no traceback, no hang, no wrong result, nothing lost.

python tests/test_bad_input.py       the same inputs through the real commands, with what each prints, as a table"""
import gzip
import os
import shutil
from pathlib import Path

import pytest
from helpers import EN_DE, SMALL_OVERRIDES, TRAINED_OVERRIDES, snapshot_dir, cli_args, run_in_process, number_lines, assert_user_error, write_files

from annotated_transformer.cli.export import transformer_export

FILES = dict(train_en=number_lines('en', 60), train_de=number_lines('de', 60))

UTF16 = 'seven\n'.encode('utf-16')

def edit(run, f, name='config.json'):
    "Change a file of a run by a function of its content."
    path = Path(run) / name
    path.write_bytes(f(path.read_bytes()))

def replace(a, b): return lambda data: data.replace(a.encode(), b.encode())

def cut(data): return data[:len(data) // 2]

def empty(_): return b''

def exported(run): transformer_export(str(run))

def pickled(run):
    import hashlib
    import pickle
    newest = sorted((run / 'checkpoints').iterdir())[-1]
    (newest / 'training_state.pt').write_bytes(pickle.dumps(os.getcwd))
    (newest / 'SHA256SUMS').write_text(''.join(f'{hashlib.sha256((newest / n).read_bytes()).hexdigest()}  {n}\n' for n in ('model.safetensors', 'training_state.pt')))

def wmt14(folder, **rows):
    for split in ('train', 'validation', 'test'):
        lines = rows.get(split, ['{"translation": {"en": "one", "de": "eins"}}'] * 30)
        write_files(folder, **{f'{split}_jsonl': '\n'.join(lines) + '\n'})

# name: (command, arguments, what the message must say, what is done before); {run} is a trained run, {tmp} a folder of its own, {text} files of text
T = ['--recipe', 'demo', *EN_DE, '--data_dir', '{text}', '--output_dir', '{tmp}/out', *cli_args(SMALL_OVERRIDES)]

def train(changes=(), **files): return ['train', [*T[:12], *cli_args(SMALL_OVERRIDES | dict(changes))], lambda run, tmp: files and (shutil.rmtree(tmp / 'text'), write_files(tmp / 'text', **files))]

def resume(changes=(), before=None):
    settings = TRAINED_OVERRIDES | dict(max_steps=201) | dict(changes)
    return ['train', ['--recipe', 'demo', *EN_DE, '--data_dir', '{corpus}', '--output_dir', '{run}', '--resume', *cli_args(settings)], before and (lambda run, tmp: before(run))]

def on_run(command, before=None, *args): return [command, ['{run}', *args], before and (lambda run, tmp: before(run))]

CASES = {
    # the command line
    'no such recipe': (['train', ['--recipe', 'huge'], None], "unknown recipe 'huge'", 'multi30k_tiny'),
    'no such corpus': (['train', ['--recipe', 'demo', '--dataset', 'europarl'], None], "no data set 'europarl'"),
    'no such folder': (['train', ['--recipe', 'demo', *EN_DE, '--data_dir', '{tmp}/none', '--output_dir', '{tmp}/out'], None], 'none does not exist'),
    'folder missing': (['train', ['--recipe', 'demo', *EN_DE, '--output_dir', '{tmp}/out'], None], 'needs data_dir'),
    'folder with numbers': (['train', ['--recipe', 'demo', '--dataset', 'numbers', '--data_dir', '{text}', '--output_dir', '{tmp}/out'], None], 'leave data_dir out'),
    'no languages': (['train', ['--recipe', 'demo', '--dataset', 'text', '--data_dir', '{text}', '--output_dir', '{tmp}/out'], None], 'needs source_lang and target_lang'),
    'empty --output_dir': (['train', ['--output_dir', ''], None], '--output_dir is empty'),
    'comma in --output_dir': (['train', [*T[:11], '{tmp}/run,v2', *T[12:]], None], 'a comma separates'),
    '--output_dir is a file': (['train', [*T[:11], '{text}/train.en', *T[12:]], None], 'train.en is a file'),
    'no value': (['train', [*T, '--max_grad_norm'], None], '--max_grad_norm: expected one argument'),
    'a field twice': (['train', [*T, '--max_grad_norm', '1', '--max_grad_norm', '2'], None], '--max_grad_norm is given more than once'),
    'one argument too many': (['evaluate', ['a', 'b'], None], 'unexpected argument b'),
    'no such field': (train(dict(stepz=2)), 'unknown option --stepz: did you mean --max_steps?'),
    'no such field at all': (train(dict(xyzzy=2)), 'unknown option --xyzzy', '--help'),
    'neither true nor false': (train(dict(tie_embeddings='maybe')), "tie_embeddings='maybe': must be bool"),
    'a number as text': (train(dict(N='one')), "N='one': must be int"),
    'a fraction of a layer': (train(dict(N=1.5)), 'N=1.5: must be int'),
    'no layers': (train(dict(N=0)), 'N=0 must be at least 1'),
    'negative rate': (train(dict(peak_lr=-1)), 'peak_lr=-1 must be greater than 0'),
    'infinite rate': (train(dict(peak_lr='1e999')), 'peak_lr=inf must be a finite number'),
    'dropout of one': (train(dict(P_drop=1)), 'P_drop=1 must be below 1'),
    'unknown norm': (train(dict(norm='middle')), "norm='middle' is unknown: use one of post, pre"),
    'misspelt positions': (train(dict(positions='leanred')), "positions='leanred' is unknown"),
    'heads that do not divide': (train(dict(h=3)), 'h=3 does not divide'),
    'save_every in words': (train(dict(save_every='often')), "write '10 minutes'"),
    'save_every of nothing': (train(dict(save_every='0 steps')), "write '10 minutes'"),
    'huge d_ff': (train(dict(d_ff=1000000000000)), 'd_ff=1,000,000,000,000 is more than'),
    'large d_ff': (train(dict(d_ff=900000000)), 'bytes are needed, this machine has'),
    'huge tokens': (train(dict(max_tokens=1000000000000)), 'max_tokens=1000000000000 must be less than'),
    'huge max_len': (train(dict(max_len=1000000000000)), 'max_len=1,000,000,000,000'),
    'long learned positions': (train(dict(positions='learned', max_len=1000000000)), 'bytes are needed'),
    'huge warm-up': (train(dict(warmup_steps=1000000000000)), 'warmup_steps=1000000000000 must be less than'),
    'ten million layers': (train(dict(N=10000000)), 'bytes are needed'),
    'vocabulary beyond the text': (train(dict(vocab_size=50000)), 'vocab_size=50000', 'use at most'),
    'vocabulary too small': (train(dict(vocab_size=20)), 'vocab_size=20', 'use at least'),
    'fewer tokens than a sentence': (train(dict(max_tokens=3)), 'does not fit into a batch of 3 tokens'),
    'seed too large': (train(dict(seed=8388608)), 'seed=8388608 must be less than'),
    'tracker of another name': (['train', [*T, '--report_to', 'nothing'], None], 'tensorboard'),
    'tracker not installed': (['train', [*T, '--report_to', 'clearml'], None], '--report_to clearml is not installed'),
    'engine of another name': (on_run('translate', None, '--engine', 'onnx'), 'use one of pytorch, ctranslate2'),
    'export to another format': (on_run('export', None, '--format', 'tflite'), "format='tflite' is unknown"),
    'quantization of safetensors': (on_run('export', None, '--format', 'safetensors', '--quantization', 'int8'), '--quantization is for ctranslate2'),
    'quantization unknown': (on_run('export', None, '--quantization', 'int3'), 'int3'),
    'long lines, third way': (['translate', ['{run}', '--overlong', 'drop', '--input', '{text}/train.en'], None], "overlong='drop' is unknown"),
    'average of nothing': (on_run('average', None, '--num_checkpoints', '0'), 'num_checkpoints=0 must be at least 1'),
    'ensemble with an engine': (['translate', ['{run},{run}', '--engine', 'ctranslate2'], None], 'an ensemble needs --engine pytorch'),
    'half a pair': (on_run('evaluate', None, '--src', '{text}/train.en'), 'give both --src and --ref'),
    'not a run': (['translate', ['{text}'], None], 'contains no config.json'),
    'no such run': (['translate', ['{tmp}/nowhere'], None], 'contains no config.json'),
    'no such input': (on_run('translate', None, '--input', '{tmp}/none'), 'none'),
    'input is a folder': (on_run('translate', None, '--input', '{tmp}'), 'Is a directory'),
    # text
    'an empty file': (train(train_en='', train_de='a\n'), 'train.en is empty'),
    'unequal files': (train(train_en='a\nb\n', train_de='a\n'), 'train.en has 2 lines', 'has 1'),
    'one side only': (train(train_en='a\n'), 'no train.de'),
    'not UTF-8': (train(train_en='a\n', train_de=b'a\n\xff\n'), 'train.de, line 2: not UTF-8'),
    'UTF-16 text': (train(train_en=UTF16, train_de=UTF16), 'train.en is UTF-16'),
    'blank lines only': (train(train_en=' \n\n', train_de='\n\n'), 'no pair has text on both sides'),
    'no gzip': (train(train_en_gz=b'a\n', train_de='a\n'), 'train.en.gz is not a complete gzip file'),
    'cut gzip': (train(train_en_gz=gzip.compress(b'a\n' * 999)[:20], train_de='a\n' * 999), 'train.en.gz is not a complete gzip file'),
    'packed and plain': (train(**FILES, train_en_gz=gzip.compress(b'a\n')), 'both train.en and train.en.gz'),
    'pairs and files': (train(**FILES, train_tsv='a\tb\n'), 'both train.tsv and train.en'),
    'dev instead of valid': (train(**FILES, dev_en='a\n', dev_de='a\n'), 'dev.en would not be read: call it valid'),
    'ids first': (train(train_tsv=''.join(f'{i}\tone\teins\n' for i in range(30))), 'the first column holds numbers'),
    'no tab': (train(train_tsv='one\teins\ntwo\n'), 'train.tsv, line 2: no tab'),
    'too few to split': (train(train_en='a\n', train_de='b\n'), 'too few to cut off'),
    'all too long': (train(dict(max_len=1)), 'no pair has at most max_len=1'),
    'one too long': (train(dict(max_len=5, overlong='error')), 'more than max_len=5'),
    'wmt14 without data': (['train', ['--recipe', 'demo', '--dataset', 'wmt14', '--source_lang', 'en', '--target_lang', 'de', '--data_dir', '{tmp}/wmt', '--output_dir', '{tmp}/out'], lambda run, tmp: (tmp / 'wmt').mkdir()], 'wmt cannot be read as a data set'),
    'wmt14 of other columns': (['train', ['--recipe', 'demo', '--dataset', 'wmt14', '--source_lang', 'en', '--target_lang', 'de', '--data_dir', '{tmp}/wmt', '--output_dir', '{tmp}/out'], lambda run, tmp: wmt14(tmp / 'wmt', **{s: ['{"english": "a", "de": "b"}'] * 9 for s in ('train', 'validation', 'test')})], 'no column en, there are english, de'),
    'no test split': (['train', ['--recipe', 'demo', '--dataset', 'multi30k', '--source_lang', 'en', '--target_lang', 'de', '--data_dir', '{text}', '--output_dir', '{tmp}/out'], None], 'val.en'),
    'evaluate unequal files': (['evaluate', ['{run}', '--src', '{text}/train.en', '--ref', '{tmp}/b'], lambda run, tmp: write_files(tmp, b='eins\n')], 'has 60', 'has 1'),
    'baseline of another length': (['evaluate', ['{run}', '--baseline', '{text}/train.en'], None], 'has 60 lines, the test set has'),
    'empty baseline': (['evaluate', ['{run}', '--baseline', '{tmp}/b'], lambda run, tmp: write_files(tmp, b='')], 'b is empty'),
    # files of a run
    'configuration: a list': (on_run('translate', lambda run: edit(run, lambda _: b'[1]')), "has no fields 'model' and 'architecture'"),
    'configuration: cut': (on_run('translate', lambda run: edit(run, cut)), 'config.json is not valid JSON'),
    'configuration: empty': (on_run('translate', lambda run: edit(run, empty)), 'config.json is not valid JSON'),
    'configuration: bytes': (on_run('translate', lambda run: edit(run, lambda _: b'\xff\xfe')), 'config.json is not valid JSON'),
    'configuration: deep': (on_run('translate', lambda run: edit(run, lambda _: b'[' * 100000)), 'config.json'),
    'configuration: a field of tomorrow': (on_run('translate', lambda run: edit(run, replace('"N": 1', '"N": 1, "rotary": true'))), "unknown field 'rotary'"),
    'weights: cut': (on_run('translate', lambda run: edit(run, cut, 'model.safetensors')), 'model.safetensors is corrupt'),
    'weights: empty': (on_run('export', lambda run: edit(run, empty, 'model.safetensors')), 'model.safetensors is corrupt'),
    'weights: missing': (on_run('translate', lambda run: (run / 'model.safetensors').unlink()), 'transformer_average', '--resume'),
    'tokenizer: cut': (on_run('translate', lambda run: edit(run, cut, 'tokenizer.model')), 'tokenizer.model'),
    'tokenizer: missing': (on_run('translate', lambda run: (run / 'tokenizer.model').unlink()), 'tokenizer.model is missing'),
    'export: not made': (on_run('translate', None, '--engine', 'ctranslate2'), 'run `transformer_export'),
    'export: no JSON': (on_run('translate', lambda run: (exported(run), edit(run / 'ctranslate2', cut, 'export_info.json')), '--engine', 'ctranslate2'), 'export_info.json is not valid JSON'),
    'export: a list': (on_run('translate', lambda run: (exported(run), edit(run / 'ctranslate2', lambda _: b'[]', 'export_info.json')), '--engine', 'ctranslate2'), 'again'),
    'export: model cut': (on_run('translate', lambda run: (exported(run), edit(run / 'ctranslate2', cut, 'model.bin')), '--engine', 'ctranslate2'), 'ctranslate2 could not be loaded', 'again'),
    'export: model missing': (on_run('translate', lambda run: (exported(run), (run / 'ctranslate2' / 'model.bin').unlink()), '--engine', 'ctranslate2'), 'ctranslate2 could not be loaded'),
    'export: vocabulary missing': (on_run('translate', lambda run: (exported(run), [p.unlink() for p in (run / 'ctranslate2').glob('*vocabulary*')]), '--engine', 'ctranslate2'), 'ctranslate2 could not be loaded'),
    'test split: missing': (on_run('evaluate', lambda run: shutil.rmtree(run / 'data')), '--src FILE --ref FILE'),
    'test split: cut': (on_run('evaluate', lambda run: edit(run, cut, next((run / 'data' / 'test').glob('*.arrow')).relative_to(run))), 'is missing or corrupt'),
    'no checkpoints': (on_run('average', lambda run: shutil.rmtree(run / 'checkpoints')), 'contains no checkpoints', 'train the run first'),
    # continuing a run
    'begun otherwise': (resume(dict(peak_lr=1e-3)), 'started with a different peak_lr (0.002 → 0.001)'),
    'fewer steps': (resume(dict(max_steps=100)), 'is at step 200, beyond max_steps=100'),
    'metrics: damaged': (resume({}, lambda run: edit(run, lambda data: b'{"step"\n' + data, 'metrics.jsonl')), 'metrics.jsonl, line 1 is corrupt'),
    'pieces: cut': (resume({}, lambda run: edit(run, cut, next((run / 'data' / 'train').glob('*.arrow')).relative_to(run))), 'data/train is missing or corrupt'),
    'checkpoint: a pickle': (resume({}, pickled), 'training_state.pt is not a valid training state (UnpicklingError)'),
    'checkpoint: cut': (resume({}, lambda run: edit(run, cut, sorted((run / 'checkpoints').iterdir())[-1].relative_to(run) / 'training_state.pt')), '--skip_corrupt'),
    'another corpus': (['train', ['--recipe', 'demo', '--dataset', 'numbers', '--output_dir', '{run}', '--resume', *cli_args(SMALL_OVERRIDES)], None], 'started with a different'),
}

def prepare(case, run, corpus, tmp):
    (command, args, before), *said = CASES[case]
    write_files(tmp / 'text', **FILES)
    if before: before(run, tmp)
    places = dict(run=run, tmp=tmp, text=tmp / 'text', corpus=corpus)
    fill = lambda arg: arg if '{' not in arg else arg.format(**places)
    return command, list(map(fill, args)), said

@pytest.mark.parametrize('case', CASES)
def test_bad_input(case, own, trained, capfd, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    command, args, said = prepare(case, own, trained.parent, tmp_path)
    kept = {k: v for k, v in (snapshot_dir(own) | snapshot_dir(tmp_path / 'text')).items() if not k.startswith('.')}
    assert_user_error(run_in_process(capfd, command, *args), *said)
    after = snapshot_dir(own) | snapshot_dir(tmp_path / 'text')
    assert kept.items() <= after.items(), [k for k in kept if kept[k] != after.get(k)]


