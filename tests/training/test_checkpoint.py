"A disk that refuses, training states that do not fit, and which checkpoints are kept, renamed, averaged and due."
import resource
import shutil

import pytest
import safetensors.torch
import torch
from accelerate import Accelerator
from helpers import run_in_process, assert_user_error

from annotated_transformer.run_directory import RunDirectory, _verify_checksums
from annotated_transformer.training import checkpoint
from annotated_transformer.training.optimizer import adam


def test_a_disk_that_refuses_the_mean(trained, tmp_path, capfd, monkeypatch):
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

def test_a_fault_of_ours_keeps_its_traceback(tmp_path, monkeypatch):
    model, optimizer, accelerator, _ = saved_model(tmp_path)
    def fault(*_): raise RuntimeError('shape')
    for module, name in (checkpoint, 'save_weights'), (torch, 'save'):
        with monkeypatch.context() as patch, pytest.raises(RuntimeError, match='^shape$'):
            patch.setattr(module, name, fault)
            checkpoint.save_checkpoint(tmp_path, 2, model, optimizer, accelerator, keep_last=1)
    checkpoint.save_checkpoint(tmp_path, 2, model, optimizer, accelerator, keep_last=1)       # nothing is in its way

@pytest.mark.parametrize('size', (10, 3_000_000))
def test_a_full_disk_is_an_os_error(tmp_path, size):
    "PyTorch raises RuntimeError after it, whose text is the writer's position."
    old = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (1000, old[1]))
    try:
        with pytest.raises(OSError, match='File too large'): checkpoint._save_state(dict(a=torch.zeros(size)), tmp_path / 'state')
    finally: resource.setrlimit(resource.RLIMIT_FSIZE, old)

def save_all(folder, steps, **more):
    "Checkpoints of a model whose weights are the number of the step."
    model, accelerator = torch.nn.Linear(3, 3), Accelerator(cpu=True)
    for step in steps:
        for p in model.parameters(): p.data.fill_(step)
        checkpoint.save_checkpoint(folder, step, model, adam(model), accelerator, **more)
    return RunDirectory(folder)

def test_how_long_a_checkpoint_stays(tmp_path):
    "Three scheduled ones; an interrupted one until the next on schedule; the checksums of all that are left are right."
    seen = {}
    for step in 10, 20, 30, 40, 45, 50, 60, 70:
        run = save_all(tmp_path, [step], keep_last=3, kind='interrupted' if step == 45 else 'step', is_best=step in (10, 30, 60))
        for path in run.checkpoints('*'): seen.setdefault(path.name, []).append(step)
    assert seen == {'step-00000010': [10, 20, 30], 'step-00000020': [20, 30, 40, 45], 'step-00000030': [30, 40, 45, 50], 'step-00000040': [40, 45, 50, 60],
                    'interrupted-00000045': [45], 'step-00000050': [50, 60, 70], 'step-00000060': [60, 70], 'step-00000070': [70]}
    for path in run.checkpoints(): _verify_checksums(path)
    assert safetensors.torch.load_file(run.best_file)['bias'].eq(60).all()

def test_a_damaged_checkpoint_is_renamed_on_request(tmp_path, capfd):
    run = save_all(tmp_path, [1, 2], keep_last=2)
    path = run.checkpoints()[-1] / 'model.safetensors'
    path.write_bytes(path.read_bytes()[:-1] + b'?')
    with pytest.raises(ValueError, match='step-00000002/model.safetensors is corrupt'): run.newest_checkpoint()
    assert run.newest_checkpoint(skip_corrupt=True).name == 'step-00000001'
    assert capfd.readouterr().out.endswith('renamed to step-00000002.corrupt\n')

def test_a_state_with_numbers_for_names(tmp_path):
    "The optimizer's own state dict numbers its parameters."
    model, optimizer, _, path = saved_model(tmp_path)
    torch.save(torch.load(path, weights_only=True) | dict(optimizer=optimizer.state_dict()), path)
    with pytest.raises(ValueError, match='does not match this model'): checkpoint._load_training_state(path, dict(model.named_parameters()))

def test_a_weight_that_is_not_a_number_is_not_written(tmp_path):
    run = save_all(tmp_path, [1], keep_last=1)
    with pytest.raises(ValueError, match='a weight is not finite after step 2'):
        model = torch.nn.Linear(3, 3)
        model.weight.data[0, 0] = torch.nan
        checkpoint.save_checkpoint(tmp_path, 2, model, adam(model), Accelerator(cpu=True), 1)
    assert [p.name for p in run.checkpoints()] == ['step-00000001']

def test_the_mean_of_an_interrupted_checkpoint(tmp_path):
    "It is averaged only where there is none on schedule."
    save_all(tmp_path, [3], keep_last=1, kind='interrupted')
    assert [p.name for p in checkpoint.average_checkpoints(tmp_path, 5)] == ['interrupted-00000003']

def test_a_schedule_in_minutes():
    due = checkpoint._SaveSchedule('10 minutes', 3)
    now = due.reset_if_elapsed()
    due.last_save -= 601
    assert (due.is_step_due(1), now, due.reset_if_elapsed(), due.reset_if_elapsed()) == (False, False, True, False)
