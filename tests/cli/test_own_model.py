"Models from outside the package: named by an entry point of an installed package, or imported; trained, opened and refused by the commands."
import json
import os

import pytest
from helpers import ran, refused, run

MODEL = '''
from annotated_transformer.model.attention import MultiHeadAttention
from annotated_transformer.model.transformer import Transformer

class Halved(MultiHeadAttention):
    def queries(self, query, start=0): return super().queries(query, start) / 2

class HalvedTransformer(Transformer):
    def make_attention(self, role): return Halved(self.config.d_model, self.config.h)
'''
SMALL = ['--steps', '4', '--tokens', '256', '--N', '1', '--d_model', '16', '--d_ff', '16', '--h', '2', '--warmup_steps', '2', '--save_every', '2 steps', '--average', '1']

@pytest.fixture(scope='module')
def installed(tmp_path_factory):
    "A package beside the run, as pip would have installed it."
    folder = tmp_path_factory.mktemp('installed')
    (folder / 'halved.py').write_text(MODEL)
    info = folder / 'halved-1.0.dist-info'
    info.mkdir()
    (info / 'METADATA').write_text('Metadata-Version: 2.1\nName: halved\nVersion: 1.0\n')
    (info / 'entry_points.txt').write_text('[annotated_transformer.models]\nhalved = halved:HalvedTransformer\n')
    ran(run('train', '--recipe', 'demo', '--architecture', 'halved', *SMALL, '--out', 'run', cwd=folder, env=path(folder)))
    return folder

def path(folder): return dict(PYTHONPATH=os.pathsep.join(filter(None, [str(folder), os.environ.get('PYTHONPATH')])))

def test_an_installed_package_needs_no_import(installed):
    assert json.loads((installed / 'run/config.json').read_text())['architecture'] == 'halved'
    said = ran(run('translate', 'run', cwd=installed, stdin='seven\n', env=path(installed)))
    assert said.stdout.count('\n') == 1

def test_without_the_package_the_name_is_said(installed):
    refused(run('translate', 'run', cwd=installed, stdin='seven\n'), "no architecture 'halved' is known")
