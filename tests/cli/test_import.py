"`--import`: a model of one's own has all commands."
import json
from pathlib import Path

import pytest
from helpers import EN_DE, run_in_process, number_lines, assert_user_error, write_files
from processes import run_forked

OWN = '''
from dataclasses import dataclass
from torch import nn
from annotated_transformer.model.config import TransformerConfig
from annotated_transformer.model.seq2seq import register_architecture
from annotated_transformer.model.transformer import Transformer

@dataclass(frozen=True)
class GatedConfig(TransformerConfig):
    gate: float = 1.0

@register_architecture('gated')
class Gated(Transformer):
    config_class = GatedConfig

    def __init__(self, config, pad_id=0):
        super().__init__(config, pad_id)
        self.scale = nn.Parameter(config.gate * self.output_projection.weight.new_ones(config.d_model))
    def decode(self, *args): return super().decode(*args) * self.scale
'''

RECIPE = '''
architecture: gated
model: {vocab_size: 80, N: 1, d_model: 32, d_ff: 32, h: 2, P_drop: 0.0, gate: 0.5}
data: {max_tokens: 512, byte_fallback: false}
schedule: {max_steps: 4, warmup_steps: 2, peak_lr: 1e-3}
checkpoints: {save_every: 2 steps, average_checkpoints: 2}
'''

@pytest.fixture(scope='module')
def own(tmp_path_factory):
    folder = write_files(tmp_path_factory.mktemp('own'), train_en=number_lines('en', 200), train_de=number_lines('de', 200), test_en=number_lines('en', 5), test_de=number_lines('de', 5))
    (folder / 'my_gated.py').write_text(OWN)
    (folder / 'gated.yaml').write_text(RECIPE)
    result = run_forked('train', '--import', 'my_gated', '--recipe', 'gated.yaml', '--gate', '0.25', *EN_DE, '--data_dir', '.', '--output_dir', 'run', cwd=folder)
    assert result.returncode == 0, result.stderr
    assert json.loads((folder / 'run/config.json').read_text())['model']['gate'] == .25
    return folder

@pytest.mark.parametrize('name, args', [('translate', []), ('evaluate', ['--src', 'test.en', '--ref', 'test.de']), ('score', ['--src', 'test.en', '--ref', 'test.de']), ('average', [])])
def test_an_architecture_of_ones_own_has_all_commands(name, args, own, capfd, monkeypatch):
    monkeypatch.chdir(own)
    for module in 'my_gated', 'my_gated.py': # by its name, by its file
        result = run_in_process(capfd, name, 'run', '--import', module, *args, stdin='seven\n')
        assert not result.returncode and result.stdout.count('\n') >= 1, result.stderr
    exported = run_in_process(capfd, 'export', 'run', '--format', 'safetensors', '--output_dir', f'out-{name}', '--import', 'my_gated')
    assert not exported.returncode, exported.stderr

def test_without_its_module_the_option_is_named(own):
    assert_user_error(run_forked('translate', 'run', cwd=own), "unknown architecture 'gated'", '--import my_gated')

@pytest.mark.parametrize('module, why', [('nowhere_at_all', 'no module of this name'), ('nowhere.py', 'no such file'), ('json.py', 'rename the file')])
def test_a_module_that_cannot_be_imported(module, why, own, capfd, monkeypatch):
    monkeypatch.chdir(own)
    Path('json.py').write_text('')
    assert_user_error(run_in_process(capfd, 'average', 'run', '--import', module), why)
