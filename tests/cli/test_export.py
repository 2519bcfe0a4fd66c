"transformer_export never writes over anything else."
import pytest
import torch
from helpers import EN_DE, SMALL_OVERRIDES, edit_config, snapshot_dir, cli_args, run_in_process, number_lines, assert_user_error, corrupt_weights, write_files


@pytest.mark.parametrize('resume', [[], ['--resume']])
def test_train_into_an_export(own, capfd, resume, tmp_path):
    assert run_in_process(capfd, 'export', own, '--format', 'safetensors', '--output_dir', tmp_path / 'given').returncode == 0
    before = snapshot_dir(tmp_path / 'given')
    write_files(tmp_path, train_en=number_lines('en', 60), train_de=number_lines('de', 60))
    args = '--recipe', 'demo', *EN_DE, '--data_dir', tmp_path, '--output_dir', tmp_path / 'given', *cli_args(SMALL_OVERRIDES)
    assert_user_error(run_in_process(capfd, 'train', *args, *resume), 'contains output of another command (export)')
    assert snapshot_dir(tmp_path / 'given') == before

@pytest.mark.parametrize('to', ['ctranslate2', 'safetensors'])
def test_export_over_a_run(own, trained, capfd, to, tmp_path):
    "Neither the run itself, nor another one, nor anybody's folder is written into."
    write_files(tmp_path / 'mine', thesis_tex='years')
    for out in own, trained, tmp_path / 'mine':
        before = snapshot_dir(out)
        assert_user_error(run_in_process(capfd, 'export', own, '--format', to, '--output_dir', out), 'choose a new or empty folder')
        assert snapshot_dir(out) == before

def test_an_export_is_not_a_run(own, capfd, tmp_path):
    assert run_in_process(capfd, 'export', own, '--output_dir', tmp_path / 'ct').returncode == 0
    for engine in 'pytorch', 'ctranslate2':
        assert_user_error(run_in_process(capfd, 'translate', tmp_path / 'ct', '--engine', engine, stdin='seven'), 'ct is an export: use the run directory that it was made from')

def test_export_again(own, capfd, tmp_path):
    "Into its own folder, yes; a failing one leaves the old."
    for _ in range(2): assert run_in_process(capfd, 'export', own, '--format', 'safetensors', '--output_dir', tmp_path / 'out').returncode == 0
    before = snapshot_dir(tmp_path / 'out')
    edit_config(own / 'config.json', d_ff=64)
    assert_user_error(run_in_process(capfd, 'export', own, '--format', 'safetensors', '--output_dir', tmp_path / 'out'), 'd_ff')
    assert snapshot_dir(tmp_path / 'out') == before

def test_export_leaves_nothing_behind(own, tmp_path, monkeypatch):
    "A gate that a user has built into the model is trained, saved and loaded, and cannot be exported without a word."
    from annotated_transformer.export import ctranslate2
    from annotated_transformer.model import transformer
    class Gated(transformer.Transformer):
        def __init__(self, *args):
            super().__init__(*args)
            self.gate = torch.nn.Linear(1, 1)
    Gated.architecture = 'transformer'
    monkeypatch.setattr(transformer, 'Transformer', Gated)
    corrupt_weights(own / 'model.safetensors', lambda w: w.update({'gate.weight': torch.ones(1, 1), 'gate.bias': torch.ones(1)}))
    with pytest.raises(ValueError, match='CTranslate2 does not support parameter gate.weight'): ctranslate2.to_ctranslate2(own, tmp_path / 'out')
    assert not (tmp_path / 'out').exists()
