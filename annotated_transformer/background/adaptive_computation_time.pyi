"""Adaptive computation time (Graves 2016): recurrent cells that take several steps on one input, and a halting unit that learns how many."""
__all__ = ['make_parity', 'RepeatRNNCell', 'ACTCell']
import torch
from fastcore.basics import patch
from torch import Tensor, nn
from torch.nn import functional as F
from ..utils.validation import validate_fields

def make_parity(n: int, size: int, generator: torch.Generator | None=None) -> tuple[Tensor, Tensor]:
    ...
_CELL_TYPES = dict(rnn=nn.RNNCell, gru=nn.GRUCell, lstm=nn.LSTMCell)
_State = Tensor | tuple[Tensor, Tensor]

class _MultiStepCell(nn.Module):
    """A recurrent cell that takes several steps on one input; a flag marks the first.
    Raises ValueError on impossible sizes or an unknown kind."""

    def __init__(self, d_in: int, d: int, kind: str='rnn'):
        super().__init__()
        validate_fields(dict(d_in=d_in, d=d), 'd_in d', ge=1)
        validate_fields(dict(kind=kind), 'kind', choices=_CELL_TYPES)
        self.d_in, self.cell = (d_in, _CELL_TYPES[kind](d_in + 1, d))

    def step(self, x: Tensor, state: _State | None, first_step: bool) -> _State:
        ...

class RepeatRNNCell(_MultiStepCell):
    """A cell that takes ρ steps on every input (Fojo et al. 2018).
    Raises ValueError if ρ < 1."""

    def __init__(self, d_in: int, d: int, repetitions: int=2, kind: str='rnn'):
        super().__init__(d_in, d, kind)
        validate_fields(dict(repetitions=repetitions), 'repetitions', ge=1)
        self.repetitions = repetitions

    def forward(self, x: Tensor, state: _State | None=None) -> tuple[_State, Tensor, Tensor]:
        ...

class _ParityNetwork(nn.Module):
    """Reads a vector with a multi-step cell and predicts its parity."""

    def __init__(self, cell: _MultiStepCell):
        super().__init__()
        self.cell, self.out = (cell, nn.Linear(cell.cell.hidden_size, 1))

    def forward(self, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        ...

def _parity_loss(model: nn.Module, x: Tensor, odd: Tensor, tau: float=0.0) -> Tensor:
    ...

@torch.no_grad()
def _evaluate_parity(model: nn.Module, n: int, size: int=4000, seed: int=99) -> dict[str, float | list[float]]:
    ...

class ACTCell(_MultiStepCell):
    """Adaptive computation time: a halting unit decides how many steps each input takes
    (Graves 2016, section 2). Raises ValueError on impossible values."""

    def __init__(self, d_in: int, d: int, kind: str='rnn', max_steps: int=20, epsilon: float=0.01, halting_bias: float=1.0, freeze_halting: bool=False):
        super().__init__(d_in, d, kind)
        validate_fields(dict(max_steps=max_steps), 'max_steps', ge=1)
        validate_fields(dict(epsilon=epsilon), 'epsilon', ge=0, lt=1)
        self.max_steps, self.epsilon, self.halt = (max_steps, epsilon, nn.Linear(d, 1))
        nn.init.constant_(self.halt.bias, halting_bias)
        if freeze_halting:
            nn.init.zeros_(self.halt.weight)
            self.halt.requires_grad_(False)

    def halting_prob(self, s: Tensor, remaining: Tensor, n: int) -> tuple[Tensor, Tensor]:
        ...

    def forward(self, x: Tensor, state: _State | None=None) -> tuple[_State, Tensor, Tensor]:
        ...
