"The runs that tests of several files share, and pytest's last line."
import os
import shutil

os.environ['HF_HUB_OFFLINE'] = '1'
os.environ['OMP_NUM_THREADS'] = '1'      # of this process and its children: the workers share the cores; read when torch is loaded, so before the imports

import pytest
from filelock import FileLock
from helpers import EN_DE, TRAINED_OVERRIDES, last_line, cli_args, number_lines, assert_success, write_files
from processes import run_forked

@pytest.fixture(scope='session')
def trained(tmp_path_factory):
    "A small run, trained by the first worker that asks for it; each has a copy."
    base = tmp_path_factory.getbasetemp()
    folder = (base.parent if 'PYTEST_XDIST_WORKER' in os.environ else base) / 'corpus'
    with FileLock(f'{folder}.lock'):
        if not (folder / 'run/model.safetensors').exists():
            write_files(folder, train_en=number_lines('en'), train_de=number_lines('de'))
            assert_success(run_forked('train', '--recipe', 'demo', *EN_DE, '--data_dir', folder, '--output_dir', folder / 'run', *cli_args(TRAINED_OVERRIDES)))
    return shutil.copytree(folder, tmp_path_factory.mktemp('trained') / 'corpus') / 'run'

@pytest.fixture
def own(trained, tmp_path):
    "A copy of the trained run that may be spoilt."
    return shutil.copytree(trained, tmp_path / 'own', ignore=shutil.ignore_patterns('ctranslate2*'))

LABELED_TEXTS = [('rain at last', 'weather'), ('goals in the cup', 'sports'), ('snow on the hills', 'weather'), ('a late penalty', 'sports')] * 30

@pytest.fixture(scope='session')
def classifier(tmp_path_factory):
    folder = tmp_path_factory.mktemp('labels')
    texts = [(f'{text} {i}', label) for i, (text, label) in enumerate(LABELED_TEXTS)]
    write_files(folder, train_en='\n'.join(t for t, _ in texts), train_desk='\n'.join(label for _, label in texts))
    result = run_forked('train', '--recipe', 'agnews_bpe', '--dataset', 'text', '--source_lang', 'en', '--target_lang', 'desk', '--data_dir', folder, '--output_dir', folder / 'my run',
                    *cli_args(dict(vocab_size=6, src_vocab_size=60, N=1, d_model=16, d_ff=16, h=2, max_steps=2, warmup_steps=1, max_tokens=256, average_checkpoints=1, byte_fallback=False)))
    return folder / 'my run', last_line(assert_success(result).stderr)

def pytest_unconfigure(config):
    "After all that pytest says: `N passed, N failed`."
    reporter = config.pluginmanager.get_plugin('terminalreporter')
    if reporter is None or hasattr(config, 'workerinput'): return
    n = {kind: len(reporter.stats.get(kind, [])) for kind in ('passed', 'failed', 'error')}
    print(f"{n['passed']} passed, {n['failed'] + n['error']} failed")
