import torch
import torch._tensor
import torch.nn.modules.container
import torch.nn.parameter
from ..data.text_files import read_lines as read_lines
from ..utils.validation import UserError as UserError, validate_fields as validate_fields
from fastcore.basics import patch as patch
from pathlib import Path
from torch import Tensor as Tensor, nn
from typing import NamedTuple

class _BabiExample(NamedTuple):
    facts: list[list[str]]
    question: list[str]
    answer: str
    support: tuple[int, ...]

class MemoryNetwork(nn.Module):
    B: torch.nn.parameter.Parameter
    H: torch.nn.parameter.Parameter
    V: int
    W: torch.nn.parameter.Parameter
    adjacent: bool
    attn_weights: list[torch._tensor.Tensor]
    hops: int
    temporal_encoding: torch.nn.modules.container.ParameterList
    words: torch.nn.modules.container.ParameterList
    j: Tensor
    k: Tensor
    def __init__(self, V: int, M: int, J: int, R: int = 10, d: int = 20, hops: int = 3, position_encoding: bool = True, tying: str = 'adjacent') -> None: ...
    def zero_padding_embedding(self) -> None: ...
    def bag_of_words(self, ids: Tensor) -> list[Tensor]: ...
    def forward(self, story: Tensor, question: Tensor, time_indices: Tensor | None = None, linear: bool = False) -> Tensor: ...

def _build_vocab(questions: list[_BabiExample]) -> list[str]: ...
def _encode_stories(questions: list[_BabiExample], vocab: list[str], M: int, J: int) -> tuple[Tensor, Tensor, Tensor]: ...
def _sample_time_indices(n: Tensor, M: int, generator: torch.Generator) -> Tensor: ...
def _train_memory_network(model: MemoryNetwork, data: tuple[Tensor, Tensor, Tensor], epochs: int = 100, lr: float = 0.01, anneal: bool = True, noise: bool = False, linear: bool = False, batch_size: int = 32, seed: int = 0, progress: bool = False) -> None: ...
def _evaluate_memory_network(model: MemoryNetwork, data: tuple[Tensor, Tensor, Tensor]) -> tuple[Tensor, Tensor]: ...
def read_babi(path: str | Path) -> list[_BabiExample]: ...
__all__ = ['MemoryNetwork', 'read_babi']
