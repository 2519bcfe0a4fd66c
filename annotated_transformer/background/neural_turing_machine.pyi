"""Neural Turing machine (Graves et al. 2014): an external memory that is read and written by attention, by content and by position."""
__all__ = ['NeuralTuringMachine', 'make_copy_task']
import torch
from fastcore.basics import patch
from torch import Tensor, nn
from torch.nn import functional as F
from ..utils.validation import UserError, validate_fields

def _content_addressing(k: Tensor, M: Tensor, beta: Tensor) -> Tensor:
    ...

def _circular_convolution(w: Tensor, s: Tensor) -> Tensor:
    ...

def _sharpen(w: Tensor, gamma: Tensor, epsilon: float=1e-12) -> Tensor:
    ...

def _write_memory(M: Tensor, w: Tensor, e: Tensor, a: Tensor) -> Tensor:
    ...

class _BatchedLinear(nn.Module):
    """R linear layers side by side."""

    def __init__(self, R: int, d_in: int, d_out: int):
        super().__init__()
        limit = d_in ** (-0.5)
        self.weight = nn.Parameter(torch.empty(R, d_in, d_out).uniform_(-limit, limit))
        self.bias = nn.Parameter(torch.zeros(R, 1, d_out))

    def forward(self, x: Tensor) -> Tensor:
        ...

class NeuralTuringMachine(nn.Module):
    """R neural Turing machines side by side, each with a feed-forward controller, a
    write head and a read head (Graves et al. 2014). Raises ValueError on impossible
    sizes."""

    def __init__(self, d_in: int, d_out: int, N: int=128, W: int=20, d: int=100, R: int=1, shifts: int=1, content: bool=True):
        super().__init__()
        validate_fields(dict(d_in=d_in, d_out=d_out, N=N, W=W, d=d, R=R), 'd_in d_out N W d R', ge=1)
        validate_fields(dict(shifts=shifts), 'shifts', ge=0)
        if 2 * shifts + 1 > N:
            raise UserError(f'shifts={shifts} does not fit in a memory of N={N} slots')
        self.d_in, self.N, self.W, self.content = (d_in, N, W, content)
        self.sizes = [W, 1, 1, 2 * shifts + 1, 1]
        self.controller = _BatchedLinear(R, d_in + W, d)
        self.heads = _BatchedLinear(R, d, 2 * sum(self.sizes))
        self.change = _BatchedLinear(R, d, 2 * W)
        self.answer = _BatchedLinear(R, d + W, d_out)

    def address(self, h: Tensor, w: Tensor, M: Tensor) -> Tensor:
        ...

    def step(self, x: Tensor, r: Tensor, w: Tensor, M: Tensor) -> tuple[Tensor, Tensor, Tensor, Tensor]:
        ...

    def forward(self, x: Tensor) -> Tensor:
        ...

def make_copy_task(bits: int, max_len: int, size: int=16, R: int=1, n: int | None=None, generator: torch.Generator | None=None) -> tuple[Tensor, Tensor]:
    ...

def _copy_loss(model: nn.Module, x: Tensor, target: Tensor) -> Tensor:
    ...

@torch.no_grad()
def _evaluate_copy(model: nn.Module, bits: int, n: int, size: int=50, R: int=1, seed: int=99) -> Tensor:
    ...

class _CopyLSTM(nn.Module):
    """Baseline: R LSTMs side by side, with a linear layer each. Raises ValueError on
    impossible sizes, or if the input has another R."""

    def __init__(self, d_in: int, d_out: int, d: int=256, layers: int=3, R: int=1):
        super().__init__()
        validate_fields(dict(d_in=d_in, d_out=d_out, d=d, layers=layers, R=R), 'd_in d_out d layers R', ge=1)
        self.read = nn.ModuleList((nn.LSTM(d_in, d, layers, batch_first=True) for _ in range(R)))
        self.answer = nn.ModuleList((nn.Linear(d, d_out) for _ in range(R)))

    def forward(self, x: Tensor) -> Tensor:
        ...
