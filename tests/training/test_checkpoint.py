"A disk that refuses."
from helpers import run_in_process, assert_user_error

from annotated_transformer.training import checkpoint


def test_a_disk_that_refuses_the_mean(trained, tmp_path, capfd, monkeypatch):
    import shutil
    run = shutil.copytree(trained, tmp_path / 'a run')
    before = (run / 'model.safetensors').read_bytes()
    def full(*_, **__): raise checkpoint.safetensors.SafetensorError('Error while serializing: I/O error: No space left on device (os error 28)')
    monkeypatch.setattr(checkpoint.safetensors.torch, 'save_file', full)
    assert_user_error(run_in_process(capfd, 'average', run), 'make room on the disk', f"transformer_average '{run}'")
    assert (run / 'model.safetensors').read_bytes() == before and not [*run.glob('*.tmp')]
