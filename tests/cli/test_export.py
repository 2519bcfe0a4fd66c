"transformer_export never writes over anything else."
import pytest
import torch
from helpers import EN_DE, SMALL, change, content, flags, in_here, names, refused, spoil, write


@pytest.mark.parametrize('resume', [[], ['--resume']])
def test_train_into_an_export(own, capfd, resume, tmp_path):
    assert in_here(capfd, 'export', own, '--to', 'safetensors', '--out', tmp_path / 'given').returncode == 0
    before = content(tmp_path / 'given')
    write(tmp_path, train_en=names('en', 60), train_de=names('de', 60))
    args = '--recipe', 'demo', *EN_DE, '--data_dir', tmp_path, '--out', tmp_path / 'given', *flags(SMALL)
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
    spoil(own / 'model.safetensors', lambda w: w.update({'gate.weight': torch.ones(1, 1), 'gate.bias': torch.ones(1)}))
    with pytest.raises(ValueError, match='CTranslate2 has no gate.weight'): ctranslate2.to_ctranslate2(own, tmp_path / 'out')
    assert not (tmp_path / 'out').exists()
