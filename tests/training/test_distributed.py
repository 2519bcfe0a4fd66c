"A launcher that is gone, calls on rank 0 and signals, in one process; `test_trainer.py` starts groups of them."
import signal

import pytest
from accelerate import Accelerator

from annotated_transformer.training.distributed import _all_reduce_any, _check_launcher, _run_on_main, _SignalHandler


def test_a_launcher_that_is_gone(monkeypatch):
    "Only where torchelastic says that it holds the store."
    monkeypatch.setenv('MASTER_ADDR', '127.0.0.1')
    monkeypatch.setenv('MASTER_PORT', '9')
    _check_launcher()
    monkeypatch.setenv('TORCHELASTIC_USE_AGENT_STORE', 'True')
    with pytest.raises(ValueError, match='launcher of this process cannot be reached.*relaunch with --resume'): _check_launcher()

def test_one_process():
    "A result, flags and an exception are those of the process itself."
    accelerator = Accelerator(cpu=True)
    assert _run_on_main(accelerator, lambda: 7) == 7 and _all_reduce_any(accelerator, True, False) == [True, False]
    def fail(): raise FileNotFoundError('no such folder')
    with pytest.raises(FileNotFoundError, match='no such folder'): _run_on_main(accelerator, fail)

@pytest.mark.parametrize('signum, error, status', [(signal.SIGINT, KeyboardInterrupt, None), (signal.SIGTERM, SystemExit, 0)])
def test_signals_are_recorded(signum, error, status):
    "Handlers are as before afterwards, and the process ends as the sender expects."
    before = signal.getsignal(signum)
    with _SignalHandler() as handler:
        assert handler.signum is None
        signal.raise_signal(signum)
    assert handler.signum == signum and signal.getsignal(signum) is before
    with pytest.raises(error) as e: handler.exit_process('stopped')
    assert getattr(e.value, 'code', None) == status
