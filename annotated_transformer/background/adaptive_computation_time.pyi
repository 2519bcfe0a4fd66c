import torch
import torch._tensor
import torch.nn.modules.linear
from ..utils.validation import validate_fields as validate_fields
from _typeshed import Incomplete
from fastcore.basics import patch as patch
from torch import Tensor, nn
from typing import Any

def make_parity(n: int, size: int, generator: torch.Generator | None = None) -> tuple[Tensor, Tensor]: ...

_CELL_TYPES: Incomplete
_State = Tensor | tuple[Tensor, Tensor]

class _MultiStepCell(nn.Module):
    cell: Any
    d_in: int
    def __init__(self, d_in: int, d: int, kind: str = 'rnn') -> None: ...
    def step(self, x: Tensor, state: _State | None, first_step: bool) -> _State: ...

class RepeatRNNCell(_MultiStepCell):
    repetitions: int
    def __init__(self, d_in: int, d: int, repetitions: int = 2, kind: str = 'rnn') -> None: ...
    def forward(self, x: Tensor, state: _State | None = None) -> tuple[_State, Tensor, Tensor]: ...

class _ParityNetwork(nn.Module):
    cell: _MultiStepCell
    out: torch.nn.modules.linear.Linear
    def __init__(self, cell: _MultiStepCell) -> None: ...
    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]: ...

def _parity_loss(model: nn.Module, x: Tensor, odd: Tensor, tau: float = 0.0) -> Tensor: ...
def _evaluate_parity(model: nn.Module, n: int, size: int = 4000, seed: int = 99) -> dict[str, float | list[float]]: ...

class ACTCell(_MultiStepCell):
    epsilon: float
    halt: torch.nn.modules.linear.Linear
    halting_probs: torch._tensor.Tensor
    max_steps: int
    def __init__(self, d_in: int, d: int, kind: str = 'rnn', max_steps: int = 20, epsilon: float = 0.01, halting_bias: float = 1.0, freeze_halting: bool = False) -> None: ...
    def halting_prob(self, s: Tensor, remaining: Tensor, n: int) -> tuple[Tensor, Tensor]: ...
    def forward(self, x: Tensor, state: _State | None = None) -> tuple[_State, Tensor, Tensor]: ...
__all__ = ['make_parity', 'RepeatRNNCell', 'ACTCell']
