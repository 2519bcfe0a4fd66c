"What users of other toolkits do every week: fine-tune, stop early, choose weights, look at n-best lists, score, bring data of their own."
import json, math, shutil
from importlib.util import find_spec
import pytest
import safetensors.torch
import torch
from datasets import Dataset, DatasetDict
from annotated_transformer.run_directory import checkpoints, read_metrics
from annotated_transformer.data.number_names import namer
from annotated_transformer.recipe import get_recipe
from annotated_transformer.training.trainer import train
from annotated_transformer.inference.translator import Translator
from conftest import SMALL, changed, content, in_here, names, refused, run, write

LINES = ['seven', 'twenty-one', '', 'ninety-nine']

def ran(result):
    assert result.returncode == 0, result.stderr
    return result

def french(folder): return write(folder, train_en=names('en'), train_fr=names('fr'))

def tune(capfd, trained, folder, *more, settings='steps=4 peak_lr=1e-4'):
    return in_here(capfd, 'train', '--init_from', trained, '--corpus', 'text_en_fr', '--data_dir', folder / 'text', '--out', folder / 'out',
                   '--set', settings, *more)

# ---- fine-tuning

def test_fine_tuning(trained, capfd, tmp_path):
    "Weights, tokens and recipe come from the other run; the first of them are where that run ended; resumed, it needs the other no more."
    french(tmp_path / 'text')
    twin = shutil.copytree(trained, tmp_path / 'twin')
    said = ran(tune(capfd, twin, tmp_path)).stderr
    out = tmp_path / 'out'
    assert said.strip().split('\n')[-1].startswith(f'{out}: 4 updates, validation perplexity ') and f'transformer_translate {out}' in said
    assert (out / 'tokenizer.model').read_bytes() == (trained / 'tokenizer.model').read_bytes()
    config = json.loads((out / 'config.json').read_text())
    assert config['model']['d_model'] == 64 and config['init_from'] == str(twin) and len(config['init_weights']) == 64 and config['target'] == 'fr'
    shutil.rmtree(twin)
    ran(tune(capfd, twin, tmp_path, '--resume', settings='steps=6'))
    assert checkpoints(out)[-1].name == 'step-00000006'

def test_fine_tuning_begins_where_the_other_ended(trained, capfd, tmp_path):
    "With a learning rate of almost nothing the weights stay those of the other run."
    french(tmp_path / 'text')
    ran(tune(capfd, trained, tmp_path, settings='steps=1 peak_lr=1e-12'))
    ours, theirs = (safetensors.torch.load_file(d / 'model.safetensors') for d in (tmp_path / 'out', trained))
    for name in theirs: torch.testing.assert_close(ours[name], theirs[name], rtol=0, atol=1e-6)

@pytest.mark.parametrize('settings, said', [('N=2', 'trained with another N (1 → 2)'), ('text=moses_lc', 'another text (raw → moses_lc)'), ('h=2', 'another h (4 → 2)')])
def test_another_model_cannot_go_on(trained, capfd, tmp_path, settings, said):
    french(tmp_path / 'text')
    refused(tune(capfd, trained, tmp_path, settings=settings), said)
    assert not (tmp_path / 'out' / 'config.json').exists()

def test_nothing_to_begin_with(own, capfd, tmp_path):
    french(tmp_path / 'text')
    refused(tune(capfd, tmp_path / 'none', tmp_path), 'none holds no config.json')
    (own / 'model.safetensors').unlink()
    refused(tune(capfd, own, tmp_path), 'holds no model.safetensors: finish that run first')

def test_unknown_tokens_are_counted(trained, capfd, tmp_path):
    "The small tokenizer has no bytes to fall back on: text in another script is unknown to it, and the user hears how much."
    write(tmp_path / 'text', train_en=names('en', 60), train_fr='\n'.join(['ноль'] * 60))
    assert '% of the tokens are unknown to the tokenizer of' in ran(tune(capfd, trained, tmp_path)).stdout

# ---- early stopping

EARLY = changed(SMALL, "steps=40 peak_lr=1e-12 save_every='2 steps' patience=3 average=2")

def test_early_stopping(capfd, tmp_path):
    "A model that learns nothing ends after `patience` validations; interrupted and resumed, at the same place with the same weights."
    text, both = write(tmp_path / 'text', train_en=names('en'), train_de=names('de')), []
    def go(out, settings, *more): return in_here(capfd, 'train', '--recipe', 'demo', '--corpus', 'text_en_de', '--data_dir', text, '--out', out, '--set', settings, *more)
    noise = changed(EARLY, 'peak_lr=0.5')                         # best at the first validation or soon after
    ran(go(tmp_path / 'whole', noise))
    ran(go(tmp_path / 'parts', changed(noise, 'steps=4')))
    said = ran(go(tmp_path / 'parts', noise, '--resume')).stderr
    for out in 'whole', 'parts':
        losses = [m['valid_loss'] for m in read_metrics(tmp_path / out) if 'valid_loss' in m]
        both.append((losses, checkpoints(tmp_path / out)[-1].name, (tmp_path / out / 'model.safetensors').read_bytes()))
    assert both[0] == both[1]
    losses, newest, _ = both[0]
    assert len(losses) < 20 and losses.index(min(losses)) == len(losses) - 4 and newest == f'step-{2 * len(losses):08d}'
    assert f'{2 * len(losses)} updates' in said
    again = ran(go(tmp_path / 'parts', noise, '--resume'))
    assert checkpoints(tmp_path / 'parts')[-1].name == newest and 'stopped early' in again.stderr
    more = ran(go(tmp_path / 'parts', changed(noise, 'patience=30 steps=' + str(2 * len(losses) + 2)), '--resume'))   # patience may grow
    assert f'{2 * len(losses) + 2} updates' in more.stderr

def test_patience_of_nothing(capfd, tmp_path):
    refused(in_here(capfd, 'train', '--out', tmp_path / 'out', '--set', changed(SMALL, 'patience=0')), 'patience=0 must be at least 1')

# ---- which weights

def test_weights(own, capfd, tmp_path):
    "Each command takes --weights, and each kind is the file that it says."
    zero = {k: v * 0 for k, v in safetensors.torch.load_file(own / 'best.safetensors').items()}
    with safetensors.safe_open(own / 'best.safetensors', 'pt') as f: metadata = f.metadata()
    safetensors.torch.save_file(zero, own / 'best.safetensors', metadata)
    write(tmp_path, src=names('en', 5), ref=names('de', 5), lines='seven\n')
    def words(*args): return ran(in_here(capfd, *args)).stdout
    average, best, last = (words('translate', own, '--input', tmp_path / 'lines', '--weights', w) for w in ('average', 'best', 'last'))
    assert average == last == 'sieben\n' != best
    files = '--src', tmp_path / 'src', '--ref', tmp_path / 'ref'
    assert words('score', own, *files, '--weights', 'last') == words('score', own, *files) != words('score', own, *files, '--weights', 'best')
    words('evaluate', own, *files, '--weights', 'last')
    words('export', own, '--to', 'safetensors', '--weights', 'best', '--out', tmp_path / 'exported')
    assert (tmp_path / 'exported' / 'model.safetensors').read_bytes() == (own / 'best.safetensors').read_bytes()

@pytest.mark.parametrize('command', ['translate', 'evaluate', 'export', 'score'])
def test_weights_that_are_not_there(own, capfd, command, tmp_path):
    write(tmp_path, src=names('en', 5), ref=names('de', 5))
    files = ['--src', tmp_path / 'src', '--ref', tmp_path / 'ref'] if command == 'score' else []
    refused(in_here(capfd, command, own, *files, '--weights', 'newest'), "weights='newest' is unknown: use one of average, best, last")
    (own / 'best.safetensors').unlink()
    refused(in_here(capfd, command, own, *files, '--weights', 'best'), 'holds no best weights')

# ---- n-best, scores, drawing

def test_n_best(trained):
    "The real command: n lines for each line, the first the one that comes without the option; scores fall; blank lines stay."
    plain = ran(run('translate', trained, '--beam', '5', stdin='\n'.join(LINES) + '\n')).stdout.splitlines()
    five = ran(run('translate', trained, '--n_best', '5', '--scores', stdin='\n'.join(LINES) + '\n')).stdout.splitlines()
    assert len(five) == 5 * len(LINES)
    groups = [[line.split('\t') for line in five[5 * i:5 * i + 5]] for i in range(len(LINES))]
    assert [g[0][1] for g in groups] == plain and groups[2] == [['0.0000', '']] * 5
    for g in groups: assert [float(s) for s, _ in g] == sorted((float(s) for s, _ in g), reverse=True)

def test_drawing(trained, capfd, tmp_path):
    write(tmp_path, lines='\n'.join(LINES))
    def drawn(*more): return ran(in_here(capfd, 'translate', trained, '--input', tmp_path / 'lines', '--sample', *more)).stdout
    cold, warm = drawn('0.01'), drawn('3', '--n_best', '2')
    assert cold == ran(in_here(capfd, 'translate', trained, '--input', tmp_path / 'lines', '--beam', '1')).stdout
    assert len(warm.split('\n')) == 2 * len(LINES) + 1 and warm == drawn('3', '--n_best', '2') != drawn('3', '--n_best', '2', '--seed', '1')

@pytest.mark.parametrize('args, said', [
    (['--n_best', '5', '--beam', '4'], 'n_best=5 must be at most 4'), (['--beam', '0'], 'beam=0 must be at least 1'), (['--n_best', '0'], 'n_best=0 must be at least 1'), (['--sample', '0'], 'sample=0.0 must be at least'),
    (['--sample', 'nan'], 'sample=nan must be'), (['--long', 'drop'], 'use one of split, sentences, refuse')])
def test_bad_search(trained, capfd, tmp_path, args, said):
    write(tmp_path, lines='seven\n')
    refused(in_here(capfd, 'translate', trained, '--input', tmp_path / 'lines', *args), said)

def test_sentences(trained, capfd, tmp_path):
    "A text is cut where sentences end if it is asked for, and where it is too long in any case."
    write(tmp_path, lines='seven. nine!\n', long='seven. ' * 60)
    t = Translator.from_pretrained(trained, 'cpu')
    said = ran(in_here(capfd, 'translate', trained, '--input', tmp_path / 'lines', '--long', 'sentences')).stdout
    assert said == ' '.join(t.translate(['seven.', 'nine!'])) + '\n'
    long = in_here(capfd, 'translate', trained, '--input', tmp_path / 'long')
    assert 'translated in' in ran(long).stderr
    assert all(part.rstrip().endswith('.') for part in t.split_long('seven. ' * 60, 60))
    for most in 1, 2, 5: assert ''.join(t.split_long('ñ"x' * 50, most)) == 'ñ"x' * 50     # a character may be longer than that: no endless cutting

# ---- scores of given translations

def test_score(trained, tmp_path):
    "The real command: what the search reports of its own translations, and a perplexity of them all."
    t = Translator.from_pretrained(trained, 'cpu')
    sources = list(map(namer('en'), range(40)))
    found = [best[0] for best in t.n_best(sources, beam=1, alpha=0.)]
    write(tmp_path, src='\n'.join(sources), ref='\n'.join(text for text, _ in found))
    result = ran(run('score', trained, '--src', tmp_path / 'src', '--ref', tmp_path / 'ref'))
    rows = [tuple(map(float, line.split('\t'))) for line in result.stdout.splitlines()]
    assert len(rows) == 40
    for (log_prob, n), (text, score) in zip(rows, found):
        assert abs(log_prob - score) < 1e-3 and n == len(t.tokenizer.encode([text])[0]) + 1
    perplexity = float(result.stderr.split('perplexity: ')[1])
    assert abs(perplexity - math.exp(-sum(p for p, _ in rows) / sum(n for _, n in rows))) < 1e-2

@pytest.mark.parametrize('files, said', [
    (dict(src='a\nb\n', ref='a\n'), 'ref has 1'), (dict(src='', ref='a\n'), 'empty'), (dict(src='a\n'), 'ref'),
    (dict(src='a\n', ref='seven ' * 200), 'every line is longer than max_len')])
def test_bad_pairs(trained, capfd, tmp_path, files, said):
    write(tmp_path, **files)
    refused(in_here(capfd, 'score', trained, '--src', tmp_path / 'src', '--ref', tmp_path / 'ref'), said)

# ---- BLEU while it trains

def test_bleu_in_the_log(capfd, tmp_path):
    "It is logged and samples are kept; the weights are those of a run without it."
    text = write(tmp_path / 'text', train_en=names('en'), train_de=names('de'))
    for out, more in ('with', ['--bleu', '10']), ('without', []):
        ran(in_here(capfd, 'train', '--recipe', 'demo', '--corpus', 'text_en_de', '--data_dir', text, '--out', tmp_path / out, '--set', changed(SMALL, 'steps=4'), *more))
    assert (tmp_path / 'with/model.safetensors').read_bytes() == (tmp_path / 'without/model.safetensors').read_bytes()
    lines = read_metrics(tmp_path / 'with')
    assert [m['step'] for m in lines if 'valid_bleu' in m] == [2, 4] and not any('valid_bleu' in m for m in read_metrics(tmp_path / 'without'))
    assert (tmp_path / 'with/samples.txt').read_text().count('reference: ') == 6
    assert all(m['grad_norm'] > 0 for m in lines if 'loss' in m)
    refused(in_here(capfd, 'train', '--out', tmp_path / 'new', '--bleu', '-1'), 'bleu=-1 must be at least 0')

# ---- data of one's own

def splits(n=60, **columns):
    columns = columns or dict(en='en', de='de')
    return DatasetDict(train=Dataset.from_dict({c: list(map(namer(lang), range(n))) for c, lang in columns.items()}))

def test_own_splits(tmp_path):
    "A DatasetDict in memory is trained on, and the run goes on in another process' copy of it, but not with another text."
    recipe = get_recipe('demo', SMALL)
    train(recipe, splits(), tmp_path / 'out')
    train(get_recipe('demo', changed(SMALL, 'steps=4')), splits(), tmp_path / 'out', resume=True)
    config = json.loads((tmp_path / 'out/config.json').read_text())
    assert config['corpus'] == 'own_en_de' and (config['source'], config['target']) == ('en', 'de')
    with pytest.raises(ValueError, match='has changed since'): train(get_recipe('demo', changed(SMALL, 'steps=6')), splits(61), tmp_path / 'out', resume=True)
    with pytest.raises(ValueError, match='the same two columns'): train(recipe, splits(en='en', de='de', fr='fr'), tmp_path / 'other')

def test_hub_data(capfd, tmp_path):
    "A data set in a form of the hub, here from a folder; what is wrong with it, or with its name, is said."
    rows = '\n'.join(json.dumps(dict(translation=dict(en=namer('en')(i), de=namer('de')(i)))) for i in range(60))
    write(tmp_path / 'set', train_jsonl=rows)
    def go(where, corpus='hub_en_de'): return in_here(capfd, 'train', '--recipe', 'demo', '--corpus', corpus, '--data_dir', where, '--out', tmp_path / 'out', '--set', SMALL)
    refused(go(tmp_path / 'set', 'hub_en_fr'), 'no column fr, there are translation.')
    refused(go('nobody'), 'nobody is neither a folder nor OWNER/NAME of the hub')
    refused(go('no/body@main'), 'no/body@main holds no data set that can be read')
    refused(in_here(capfd, 'train', '--recipe', 'demo', '--corpus', 'hub_en_de', '--out', tmp_path / 'out'), 'hub_en_de needs data_dir, OWNER/NAME of the hub')
    ran(go(tmp_path / 'set'))

def test_two_vocabularies(capfd, tmp_path):
    "Source and target with tokens of their own: trained, resumed, translated, exported; a tokenizer that is not its own is refused."
    text = write(tmp_path / 'text', train_en=names('en'), train_de=names('de'))
    out, settings = tmp_path / 'out', changed(SMALL, 'src_vocab_size=60')
    for steps in 2, 4: ran(in_here(capfd, 'train', '--recipe', 'demo', '--corpus', 'text_en_de', '--data_dir', text, '--out', out, '--resume', '--set', changed(settings, f'steps={steps}')))
    assert Translator.from_pretrained(out, 'cpu').models[0].src_embed.num_embeddings == 60
    write(tmp_path, lines='seven\n')
    ran(in_here(capfd, 'translate', out, '--input', tmp_path / 'lines'))
    ran(in_here(capfd, 'export', out, '--to', 'safetensors'))
    exported = ran(in_here(capfd, 'translate', out / 'safetensors', '--input', tmp_path / 'lines')).stdout
    assert exported == ran(in_here(capfd, 'translate', out, '--input', tmp_path / 'lines')).stdout
    if find_spec('ctranslate2'):
        ran(in_here(capfd, 'export', out))
        ran(in_here(capfd, 'translate', out, '--input', tmp_path / 'lines', '--engine', 'ctranslate2', '--n_best', '2', '--scores'))
    shutil.copy(out / 'tokenizer.model', out / 'source.model')
    refused(in_here(capfd, 'translate', out, '--input', tmp_path / 'lines'), 'source.model is not the one')

# ---- who multiplies

def test_products(capfd, tmp_path):
    "Chosen once, written down, kept when resumed, and off by a switch."
    text = write(tmp_path / 'text', train_en=names('en'), train_de=names('de'))
    for products in 'auto', 'pytorch', 'onednn':
        out = tmp_path / products
        ran(in_here(capfd, 'train', '--recipe', 'demo', '--corpus', 'text_en_de', '--data_dir', text, '--out', out, '--set', changed(SMALL, f'products={products}')))
        multiplies = json.loads((out / 'config.json').read_text())['multiplies']
        assert multiplies == products or products == 'auto' and multiplies in ('pytorch', 'onednn')
    before = content(tmp_path / 'onednn')
    refused(in_here(capfd, 'train', '--recipe', 'demo', '--corpus', 'text_en_de', '--data_dir', text, '--out', tmp_path / 'onednn', '--resume', '--set',
                    changed(SMALL, 'products=pytorch')), 'products (onednn → pytorch)')
    assert content(tmp_path / 'onednn') == before
    refused(in_here(capfd, 'train', '--out', tmp_path / 'new', '--set', changed(SMALL, 'products=mkl')), "products='mkl' is unknown")
