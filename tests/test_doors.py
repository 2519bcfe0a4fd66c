"""The doors through which a user comes: `accelerate launch -m`, `python -m`, the last line of a run, a model of one's own by `--import`,
a classifier's log, an attention that the cache does not suit, text of one's own without a recipe, and every script of benchmarks/ and experiments/."""
import json, os, re, runpy, subprocess, sys, traceback
from collections import Counter
from pathlib import Path
import pytest, torch
from conftest import SMALL, in_here, names, refused, run, write
from datasets import Dataset, DatasetDict
from annotated_transformer.model.attention import MultiHeadAttention
from annotated_transformer.model.config import TransformerConfig
from annotated_transformer.inference.beam_search import beam_search, sample
from annotated_transformer.run_directory import read_metrics
from annotated_transformer.model.seq2seq import stepwise
from annotated_transformer.recipe import get_recipe
from annotated_transformer.training.trainer import train
from annotated_transformer.model.transformer import Transformer
from annotated_transformer.inference.translator import Translator

ROOT = Path(__file__).resolve().parents[1]
ONE = dict(os.environ, OMP_NUM_THREADS='1', HF_HUB_OFFLINE='1')

def python(*args, cwd=None, stdin=''):
    "Python, as the shell starts it."
    return subprocess.run([sys.executable, *map(str, args)], cwd=cwd, env=ONE, input=stdin, capture_output=True, text=True, timeout=300)

def closing(stderr): return stderr.replace('\r', '\n').strip().split('\n')[-1]

LAUNCHERS = {'accelerate launch': ['accelerate.commands.launch', '--cpu', '--num_processes', 2], 'torchrun': ['torch.distributed.run', '--standalone', '--nproc_per_node', 2]}

@pytest.mark.parametrize('launcher', LAUNCHERS)
def test_launched_training_logs_bleu_and_ends_like_the_command(launcher, tmp_path, capfd, monkeypatch):
    args = ['--recipe', 'demo', '--corpus', 'numbers', '--bleu', '20', '--set', SMALL]
    monkeypatch.setitem(ONE, 'ACCELERATE_USE_CPU', 'true')
    launched = python('-m', *LAUNCHERS[launcher], '-m', 'annotated_transformer.training', *args, '--out', 'many', cwd=tmp_path)
    assert launched.returncode == 0, launched.stderr
    assert any('valid_bleu' in m for m in read_metrics(tmp_path / 'many'))
    monkeypatch.chdir(tmp_path)
    alone = in_here(capfd, 'train', *args, '--out', 'one')
    assert any('valid_bleu' in m for m in read_metrics(tmp_path / 'one'))
    shape = lambda line: re.sub(r'\d+(\.\d+)?', '0', line).replace('many', 'one')
    lines = [line for line in launched.stderr.replace('\r', '\n').split('\n') if line.startswith('many: ') and 'updates' in line]
    assert [*map(shape, lines)] == [shape(closing(alone.stderr))] and 'Now: transformer_translate one --input FILE' in closing(alone.stderr)

REPORTS = [('rain at last', 'weather'), ('goals in the cup', 'sports'), ('snow on the hills', 'weather'), ('a late penalty', 'sports')] * 30

@pytest.fixture(scope='module')
def classifier(tmp_path_factory):
    folder = tmp_path_factory.mktemp('labels')
    texts = [(f'{text} {i}', label) for i, (text, label) in enumerate(REPORTS)]
    write(folder, train_en='\n'.join(t for t, _ in texts), train_desk='\n'.join(label for _, label in texts))
    result = python('-m', 'annotated_transformer.training', '--recipe', 'classify_pieces', '--corpus', 'text_en_desk', '--data_dir', folder, '--out', folder / 'my run',
                    '--set', 'vocab_size=6 src_vocab_size=60 N=1 d_model=16 d_ff=16 h=2 steps=2 warmup_steps=1 tokens=256 average=1 byte_fallback=False')
    assert result.returncode == 0, result.stderr
    return folder / 'my run', closing(result.stderr)

def test_the_last_line_names_the_command_for_the_run_and_can_be_pasted(classifier):
    folder, line = classifier
    assert 'validation accuracy' in line and f"Now: transformer_classify '{folder}' --input FILE" in line, line

@pytest.mark.parametrize('name, args', dict(translate=[], evaluate=[], score=['--src', 'x', '--ref', 'x'], export=[], train=['--bleu', '3']).items())
def test_a_classifier_is_sent_to_its_own_command(name, args, classifier, capfd, tmp_path, monkeypatch):
    (tmp_path / 'x').write_text('rain\n')
    monkeypatch.chdir(tmp_path)
    if name == 'train': refused(in_here(capfd, 'train', '--init_from', classifier[0], '--corpus', 'text_en_desk', '--data_dir', classifier[0].parent, '--out', 'y', *args), 'labels, no translations')
    else: refused(in_here(capfd, name, classifier[0], *args, stdin='rain\n'), 'use transformer_classify')

@pytest.mark.parametrize('module, several', [('production', 'transformer_score'), ('evaluation', 'transformer_average')])
def test_a_module_of_several_commands_runs_none(module, several, tmp_path):
    result = python('-m', f'annotated_transformer.{module}', 'runs/x', cwd=tmp_path)
    assert result.returncode and result.stderr.startswith('error: ') and several in result.stderr and len(result.stderr.splitlines()) == 1, result.stderr
    assert not [*tmp_path.iterdir()]

def test_a_module_of_one_command_is_that_command(classifier):
    result = python('-m', 'annotated_transformer.tasks.classification.classifier', classifier[0], stdin='rain at last\n')
    assert result.returncode == 0 and result.stdout.count('\n') == 1, result.stderr

def test_a_classifier_of_noise_logs_the_accuracy_that_counting_gives(tmp_path):
    torch.manual_seed(1)
    texts = [' '.join(f'w{i}' for i in torch.randint(20, (5,)).tolist()) for _ in range(360)]
    labels = [f'l{i}' for i in torch.randint(4, (360,)).tolist()]
    rows = lambda part: Dataset.from_dict(dict(text=texts[part], label=labels[part]))
    splits = DatasetDict(train=rows(slice(0, 200)), valid=rows(slice(200, 340)), test=rows(slice(340, 360)))
    recipe = get_recipe('classify_small', "vocab_size=8 src_vocab_size=24 N=1 d_model=16 d_ff=16 h=2 P_drop=0. steps=20 warmup_steps=5 tokens=512 average=1 save_every='20 steps' text=words")
    train(recipe, splits, tmp_path / 'run')
    last = [m for m in read_metrics(tmp_path / 'run') if 'valid_loss' in m][-1]
    found = Translator.from_pretrained(tmp_path / 'run').classify(splits['valid']['text'], top=4)
    right = sum(row[0][0] == label for row, label in zip(found, splits['valid']['label']))
    nats = -sum(torch.tensor(dict(row)[label]).log().item() for row, label in zip(found, splits['valid']['label'])) / 140
    assert abs(last['valid_accuracy'] - right / 140) < 1e-6, Counter(labels)
    assert abs(last['valid_loss'] - nats) < 1e-3 and last['valid_loss'] > 1.2

OWN = '''
from dataclasses import dataclass
from torch import nn

@dataclass(frozen=True)
class GatedConfig(TransformerConfig):
    gate: float = 1.0

@architecture('gated', GatedConfig)
class Gated(Transformer):
    def __init__(self, config, pad_id=0):
        super().__init__(config, pad_id)
        self.scale = nn.Parameter(config.gate * self.generator.weight.new_ones(config.d_model))
    def decode(self, tgt, memory, mask): return super().decode(tgt, memory, mask) * self.scale
    def step(self, *args): return super().step(*args) * self.scale

recipes['gated_tiny'] = Recipe(GatedConfig(vocab_size=80, N=1, d_model=32, d_ff=32, h=2, P_drop=0., gate=.5), steps=4, tokens=512, warmup_steps=2,
                               peak_lr=1e-3, save_every='2 steps', average=2, byte_fallback=False)
'''

@pytest.fixture(scope='module')
def own(tmp_path_factory):
    folder = write(tmp_path_factory.mktemp('own'), train_en=names('en', 200), train_de=names('de', 200), test_en=names('en', 5), test_de=names('de', 5))
    (folder / 'my_gated.py').write_text(OWN)
    result = run('train', '--import', 'my_gated', '--recipe', 'gated_tiny', '--corpus', 'text_en_de', '--data_dir', '.', '--out', 'run', cwd=folder)
    assert result.returncode == 0, result.stderr
    return folder

@pytest.mark.parametrize('name, args', [('translate', []), ('evaluate', ['--src', 'test.en', '--ref', 'test.de']), ('score', ['--src', 'test.en', '--ref', 'test.de']), ('average', [])])
def test_an_architecture_of_ones_own_has_all_commands(name, args, own, capfd, monkeypatch):
    monkeypatch.chdir(own)
    for module in 'my_gated', 'my_gated.py': # by its name, by its file
        result = in_here(capfd, name, 'run', '--import', module, *args, stdin='seven\n')
        assert not result.returncode and result.stdout.count('\n') >= 1, result.stderr
    exported = in_here(capfd, 'export', 'run', '--to', 'safetensors', '--out', f'out-{name}', '--import', 'my_gated')
    assert not exported.returncode, exported.stderr

def test_without_its_module_the_option_is_named(own):
    refused(run('translate', 'run', cwd=own), "no architecture 'gated' is known", '--import my_gated')

@pytest.mark.parametrize('module, why', [('nowhere_at_all', 'no module of this name'), ('nowhere.py', 'no such file'), ('json.py', 'rename the file')])
def test_a_module_that_cannot_be_imported(module, why, own, capfd, monkeypatch):
    monkeypatch.chdir(own)
    Path('json.py').write_text('')
    refused(in_here(capfd, 'average', 'run', '--import', module), why)

class Rotary(MultiHeadAttention):
    "Queries and keys are turned by their index."
    def heads(self, x):
        x = super().heads(x)
        if x.size(-1) < 2: return x
        angle = torch.arange(x.size(-2))[:, None] * torch.tensor([1., .3])[None]
        a, b = x[..., 0:2], x[..., 2:4]
        return torch.cat([a * angle.cos() - b * angle.sin(), a * angle.sin() + b * angle.cos(), x[..., 4:]], -1)

class Distance(MultiHeadAttention):
    "Scores get less by how far the key is behind the query."
    def forward(self, query, key, value, mask=None, kept=None):
        Q, (K, V) = self.heads(self.W_Q(query)), self.project(key, value) if kept is None else kept(self, key, value)
        far = torch.arange(Q.size(-2))[:, None] - torch.arange(K.size(-2))[None]
        scores = (Q @ K.transpose(-2, -1) / Q.size(-1) ** .5 - .7 * far.abs()).masked_fill(~mask, -1e9)
        return self.W_O((scores.softmax(-1) @ V).transpose(-3, -2).flatten(-2))

class Harmless(MultiHeadAttention):
    def forward(self, *args, **kwargs): return super().forward(*args, **kwargs)

def with_attention(kind):
    torch.manual_seed(0)
    model = Transformer(TransformerConfig(20, N=2, d_model=16, d_ff=16, h=2, P_drop=0.)).eval()
    for layer in model.decoder.layers:
        new = kind(16, 2)
        new.load_state_dict(layer.self_attn.state_dict())
        layer.self_attn = new.eval()
    return model

SRC = torch.tensor([[5, 6, 7, 8, 3], [9, 4, 3, 0, 0], [10, 3, 0, 0, 0]])

@pytest.mark.parametrize('kind', [Rotary, Distance])
def test_no_search_writes_with_an_attention_that_the_cache_does_not_suit(kind):
    model, tgt = with_attention(kind), torch.tensor([[2, 5, 6, 7, 8]] * 3)
    assert (stepwise(model, SRC, tgt) - model(SRC, tgt)).abs().max() > 1e-3           # why it must be refused
    for search in beam_search, sample:
        with pytest.raises(ValueError, match='cannot be searched.*step'): search(model, SRC, bos_id=2, eos_id=3)

@pytest.mark.parametrize('kind', [MultiHeadAttention, Harmless])
def test_the_papers_attention_and_a_harmless_subclass_are_searched(kind):
    model, tgt = with_attention(kind), torch.tensor([[2, 5, 6, 7, 8]] * 3)
    torch.testing.assert_close(stepwise(model, SRC, tgt), model(SRC, tgt), rtol=0, atol=1e-5)
    assert len(beam_search(model, SRC, bos_id=2, eos_id=3)) == 3

def test_text_of_ones_own_needs_a_recipe(tmp_path, capfd):
    write(tmp_path, train_en=names('en'), train_fr=names('de'))
    refused(in_here(capfd, 'train', '--corpus', 'text_en_fr', '--data_dir', tmp_path, '--out', tmp_path / 'run'), 'text_en_fr needs a --recipe', 'multi30k_tiny')
    assert not (tmp_path / 'run').exists()

def test_a_run_is_resumed_with_its_own_recipe(tmp_path, capfd):
    write(tmp_path, train_en=names('en'), train_fr=names('de'))
    args = '--corpus', 'text_en_fr', '--data_dir', tmp_path, '--out', tmp_path / 'run'
    assert not in_here(capfd, 'train', '--recipe', 'demo', '--set', SMALL, *args).returncode
    assert not in_here(capfd, 'train', '--resume', '--set', 'steps=4', *args).returncode
    config = json.loads((tmp_path / 'run/config.json').read_text())
    assert config['model']['d_model'] == 32 and read_metrics(tmp_path / 'run')[-1]['step'] == 4

PEERS = {'hugging_face.py': 'transformers'}               # what only the bench extra installs

@pytest.mark.parametrize('script', sorted(f'{folder}/{p.name}' for folder in ('benchmarks', 'experiments') for p in (ROOT / folder).glob('*.py')))
def test_every_script_starts(script, monkeypatch):
    "In a copy of this process, which has loaded what is slow to load."
    if peer := PEERS.get(Path(script).name): pytest.importorskip(peer)
    monkeypatch.setattr(sys, 'argv', [script, '--help'])
    monkeypatch.syspath_prepend(str((ROOT / script).parent))
    if not (child := os.fork()):
        status = 1
        try: runpy.run_path(str(ROOT / script), run_name='__main__'); status = 0
        except SystemExit as e: status = e.code or 0
        except BaseException: traceback.print_exc()
        finally: sys.stderr.flush(); os._exit(status)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0

def test_the_benchmark_of_the_data(tmp_path):
    result = python(ROOT / 'benchmarks/data.py', '--pairs', 1000, '--vocab', 120, '--out', tmp_path / 'x.json')
    assert result.returncode == 0, result.stderr
    seconds = json.loads((tmp_path / 'x.json').read_text())['1000 pairs']['first']['seconds']
    assert {'fingerprint', 'read and split', 'learn pieces', 'cut into pieces', 'store'} <= set(seconds)
