"Models from outside the package, named by an entry point or imported: trained, opened, scored, continued and put into an ensemble by the commands."
import json
import os
import sys

import pytest
from helpers import run_in_process, assert_success, assert_user_error, run
from processes import run_forked

PACKAGE = '''
from dataclasses import dataclass
import torch
from torch import nn
from annotated_transformer.model.seq2seq import Seq2SeqModel

@dataclass(frozen=True)
class BagConfig:
    vocab_size: int = 120
    width: int = 16
    max_len: int = 60
    eps_ls: float = 0.

class Bag(Seq2SeqModel):
    "The mean of the source's vectors, and a recurrent network that writes."
    config_class = BagConfig
    def __init__(self, config, pad_id=0):
        super().__init__(config, pad_id)
        V, d = config.vocab_size, config.width
        self.embed, self.out = nn.Embedding(V, d), nn.Linear(d, V)
        self.write = nn.GRU(2 * d, d, batch_first=True)
    def forward(self, src, tgt):
        bag = self.embed(src).mean(1, keepdim=True).expand(-1, tgt.size(1), -1)
        return self.out(self.write(torch.cat([self.embed(tgt), bag], -1))[0])
'''
BIAS = '''
import torch
from torch.nn import functional as F
from annotated_transformer.model.attention import MultiHeadAttention
from annotated_transformer.model.seq2seq import register_architecture
from annotated_transformer.model.transformer import Transformer

class Relative(MultiHeadAttention):
    "A learned bias for each head and each distance up to eight (Shaw et al. 2018, as a bias)."
    def __init__(self, *args):
        super().__init__(*args)
        self.bias = torch.nn.Parameter(torch.randn(self.h, 17))
    def attend(self, Q, K, V, mask=None, start_pos=0):
        far = start_pos + torch.arange(Q.size(-2))[:, None] - torch.arange(K.size(-2))
        bias = self.bias[:, far.clamp(-8, 8) + 8]
        return F.scaled_dot_product_attention(Q, K, V, bias if mask is None else bias.masked_fill(~mask, -torch.inf))

@register_architecture('relative')
class RelativeTransformer(Transformer):
    def make_attention(self, role):
        return (MultiHeadAttention if role == 'cross' else Relative)(self.config.d_model, self.config.h)
'''
SMALL = ['--max_tokens', '256', '--warmup_steps', '2', '--save_every', '2 steps', '--average_checkpoints', '1']
TINY = ['--N', '1', '--d_model', '16', '--d_ff', '16', '--h', '2']

@pytest.fixture(scope='module')
def installed(tmp_path_factory):
    "A package beside the run, as pip would have installed it."
    folder = tmp_path_factory.mktemp('installed')
    (folder / 'bags.py').write_text(PACKAGE)
    info = folder / 'bags-1.0.dist-info'
    info.mkdir()
    (info / 'METADATA').write_text('Metadata-Version: 2.1\nName: bags\nVersion: 1.0\n')
    (info / 'entry_points.txt').write_text('[annotated_transformer.models]\nbag = bags:Bag\n')
    (folder / 'bag.yaml').write_text('architecture: bag\nmodel: {vocab_size: 120}\ndata: {byte_fallback: false}\nschedule: {max_steps: 4, peak_lr: 0.001}\n')
    assert_success(run('train', '--recipe', 'bag.yaml', '--width', '24', *SMALL, '--output_dir', 'run', cwd=folder, env=path(folder)))
    return folder

def path(folder): return dict(PYTHONPATH=os.pathsep.join(filter(None, [str(folder), os.environ.get('PYTHONPATH')])))

def test_an_installed_package_needs_no_import(installed):
    config = json.loads((installed / 'run/config.json').read_text())
    assert config['architecture'] == 'bag' and config['model']['width'] == 24
    assert_success(run_forked('train', '--output_dir', 'run', '--resume', '--max_steps', '6', cwd=installed, env=path(installed)))
    assert assert_success(run_forked('translate', 'run,run', cwd=installed, stdin='seven\n', env=path(installed))).stdout.count('\n') == 1
    assert 'sacreBLEU' in assert_success(run_forked('evaluate', 'run', cwd=installed, env=path(installed))).stdout

def test_without_the_package_the_name_is_said(installed):
    assert_user_error(run_forked('translate', 'run', cwd=installed, stdin='seven\n'), "unknown architecture 'bag'")

def test_a_relative_bias_has_all_commands(tmp_path, capfd, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, 'path', [*sys.path])
    (tmp_path / 'my_bias.py').write_text(BIAS)
    own = '--import', 'my_bias.py'
    for out, name in ('run', 'relative'), ('paper', 'transformer'):
        assert_success(run_in_process(capfd, 'train', *own, '--recipe', 'demo', '--architecture', name, '--positions', 'none', '--max_steps', '4', *SMALL, *TINY, '--output_dir', out))
    output = assert_success(run_in_process(capfd, 'train', *own, '--output_dir', 'run', '--resume', '--max_steps', '6')).stderr
    *_, recommended = output.strip().rpartition('Next: transformer_translate ')
    assert recommended == 'run --import my_bias --input FILE'
    (tmp_path / 'en').write_text('seven\ntwenty-one\n')
    (tmp_path / 'de').write_text('sieben\neinundzwanzig\n')
    assert 'sacreBLEU' in assert_success(run_in_process(capfd, 'evaluate', 'run', *own, '--src', 'en', '--ref', 'de')).stdout
    assert assert_success(run_in_process(capfd, 'score', 'run', *own, '--src', 'en', '--ref', 'de')).stdout.count('\n') >= 2
    assert assert_success(run_in_process(capfd, 'translate', *recommended.replace('FILE', 'en').split())).stdout.count('\n') == 2
    assert assert_success(run_in_process(capfd, 'translate', 'run,paper', *own, '--input', 'en')).stdout.count('\n') == 2
