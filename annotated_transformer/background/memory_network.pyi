"""End-to-end memory networks (Sukhbaatar et al. 2015): several hops of attention over the sentences of a story, trained on the bAbI tasks."""
__all__ = ['MemoryNetwork', 'read_babi']
import re
from pathlib import Path
from typing import NamedTuple, NoReturn
import torch
from fastcore.basics import patch
from torch import Tensor, nn
from torch.nn import functional as F
from tqdm.auto import trange
from ..utils.validation import UserError, validate_fields
from ..data.text_files import read_lines

class _BabiExample(NamedTuple):
    """A bAbI question with the facts before it, and the answer."""
    facts: list[list[str]]
    question: list[str]
    answer: str
    support: tuple[int, ...]

class MemoryNetwork(nn.Module):
    """R end-to-end memory networks side by side, K hops each (Sukhbaatar et al. 2015).
    Raises ValueError on impossible sizes."""
    j: Tensor
    k: Tensor

    def __init__(self, V: int, M: int, J: int, R: int=10, d: int=20, hops: int=3, position_encoding: bool=True, tying: str='adjacent'):
        super().__init__()
        validate_fields(dict(V=V, M=M, J=J, R=R, d=d, hops=hops), 'V M J R d hops', ge=1)
        validate_fields(dict(tying=tying), 'tying', choices=('adjacent', 'layers'))
        self.V, self.hops, self.adjacent = (V, hops, tying == 'adjacent')
        n = hops + 1 if self.adjacent else 2

        def init(*shape: int) -> nn.Parameter:
            ...
        self.words = nn.ParameterList((init(V, d) for _ in range(n)))
        self.temporal_encoding = nn.ParameterList((init(M, d) for _ in range(n)))
        if not self.adjacent:
            self.B, self.W = (init(V, d), init(V, d))
        if not self.adjacent:
            self.H = init(d, d)
        j, k = (torch.arange(1, n + 1) - (n + 1) / 2 for n in (J, d))
        self.register_buffer('j', j * 2 / J * position_encoding)
        self.register_buffer('k', k * 2 / d)
        self.zero_padding_embedding()

    @torch.no_grad()
    def zero_padding_embedding(self) -> None:
        ...

    def bag_of_words(self, ids: Tensor) -> list[Tensor]:
        ...

    def forward(self, story: Tensor, question: Tensor, time_indices: Tensor | None=None, linear: bool=False) -> Tensor:
        ...

def _build_vocab(questions: list[_BabiExample]) -> list[str]:
    ...

def _encode_stories(questions: list[_BabiExample], vocab: list[str], M: int, J: int) -> tuple[Tensor, Tensor, Tensor]:
    ...

def _sample_time_indices(n: Tensor, M: int, generator: torch.Generator) -> Tensor:
    ...

def _train_memory_network(model: MemoryNetwork, data: tuple[Tensor, Tensor, Tensor], epochs: int=100, lr: float=0.01, anneal: bool=True, noise: bool=False, linear: bool=False, batch_size: int=32, seed: int=0, progress: bool=False) -> None:
    ...

@torch.no_grad()
def _evaluate_memory_network(model: MemoryNetwork, data: tuple[Tensor, Tensor, Tensor]) -> tuple[Tensor, Tensor]:
    ...

def read_babi(path: str | Path) -> list[_BabiExample]:
    ...
