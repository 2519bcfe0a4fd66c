"A disk that refuses, and training states that do not fit."
import pytest
import torch
from accelerate import Accelerator
from helpers import run_in_process, assert_user_error

from annotated_transformer.run_directory import RunDirectory
from annotated_transformer.training import checkpoint
from annotated_transformer.training.optimizer import adam


def test_a_disk_that_refuses_the_mean(trained, tmp_path, capfd, monkeypatch):
    import shutil
    run = shutil.copytree(trained, tmp_path / 'a run')
    before = (run / 'model.safetensors').read_bytes()
    def full(*_, **__): raise checkpoint.safetensors.SafetensorError('Error while serializing: I/O error: No space left on device (os error 28)')
    monkeypatch.setattr(checkpoint.safetensors.torch, 'save_file', full)
    assert_user_error(run_in_process(capfd, 'average', run), 'check free space and permissions', f"transformer_average '{run}'")
    assert (run / 'model.safetensors').read_bytes() == before and not [*run.glob('*.tmp')]

def saved_model(folder):
    "A model with a checkpoint, and the path of its training state."
    model, accelerator = torch.nn.Linear(3, 2), Accelerator(cpu=True)
    checkpoint.save_checkpoint(folder, 1, model, optimizer := adam(model), accelerator, keep_last=1)
    return model, optimizer, accelerator, RunDirectory(folder).checkpoints()[0] / 'training_state.pt'

def test_a_state_that_lacks_a_key_is_not_called_another_models(tmp_path):
    model, *_, path = saved_model(tmp_path)
    state = torch.load(path, weights_only=True)
    for key in state:
        torch.save({k: v for k, v in state.items() if k != key}, path)
        with pytest.raises(ValueError, match=r'training_state.pt is not a valid training state \(KeyError\): resume from'):
            checkpoint._load_training_state(path, dict(model.named_parameters()))

def test_a_state_of_another_model(tmp_path):
    *_, path = saved_model(tmp_path)
    for other in torch.nn.Linear(4, 2), torch.nn.Sequential(torch.nn.Linear(3, 2)):
        with pytest.raises(ValueError, match=r'training_state.pt does not match this model \(names or shapes'):
            checkpoint._load_training_state(path, dict(other.named_parameters()))

def test_a_folder_that_may_not_be_written(tmp_path, monkeypatch):
    "Free space is one cause among several."
    model, optimizer, accelerator, _ = saved_model(tmp_path)
    def denied(*_): raise PermissionError(13, 'Permission denied')
    monkeypatch.setattr(checkpoint, 'save_weights', denied)
    with pytest.raises(ValueError, match='step-00000002 could not be written .*Permission denied.*: check free space and permissions, then --resume'):
        checkpoint.save_checkpoint(tmp_path, 2, model, optimizer, accelerator, keep_last=1)
