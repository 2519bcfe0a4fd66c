"""Scaled dot-product attention, multi-head attention, masks and a key-value cache (§3.2)."""
__all__ = ['attention', 'subsequent_mask', 'padding_mask', 'MultiHeadAttention', 'KeyValueCache']
import math
import torch
from fastcore.basics import patch
from torch import Tensor, nn
from torch.nn import functional as F
from ..utils.validation import UserError

def attention(Q: Tensor, K: Tensor, V: Tensor, mask: Tensor | None=None, dropout: nn.Module | None=None) -> tuple[Tensor, Tensor]:
    ...

def subsequent_mask(T: int, device: torch.device | str | None=None) -> Tensor:
    ...

def padding_mask(ids: Tensor, pad_id: int) -> Tensor:
    ...

class MultiHeadAttention(nn.Module):
    """MultiHead(Q, K, V) = Concat(head_1, …, head_h) W_O, §3.2.2.
    Raises ValueError if h does not divide d_model, unless d_k and d_v are both set."""

    def __init__(self, d_model: int, h: int, d_k: int | None=None, d_v: int | None=None, P_attn: float=0.0):
        super().__init__()
        if None in (d_k, d_v) and d_model % h:
            raise UserError(f'h={h} does not divide d_model={d_model}: set both d_k and d_v')
        d_k, d_v = (d_k or d_model // h, d_v or d_model // h)
        self.h, self.dropout = (h, nn.Dropout(P_attn))
        self.W_Q = nn.Linear(d_model, h * d_k, bias=False)
        self.W_K = nn.Linear(d_model, h * d_k, bias=False)
        self.W_V = nn.Linear(d_model, h * d_v, bias=False)
        self.W_O = nn.Linear(h * d_v, d_model, bias=False)
        self.need_weights = False
        self.attn_weights: Tensor | None = None

    def split_heads(self, x: Tensor) -> Tensor:
        ...

    def project_queries(self, query: Tensor, start_pos: int=0) -> Tensor:
        ...

    def project_keys_values(self, key: Tensor, value: Tensor, start_pos: int=0) -> tuple[Tensor, Tensor]:
        ...

    def attend(self, Q: Tensor, K: Tensor, V: Tensor, mask: Tensor | None=None, start_pos: int=0) -> Tensor:
        ...

    def forward(self, query: Tensor, key: Tensor, value: Tensor, mask: Tensor | None=None, cache: 'KeyValueCache|None'=None) -> Tensor:
        ...

class KeyValueCache:
    """Keys and values of one attention module, for all positions processed so far."""

    def __init__(self, static_kv: bool=False):
        self.static_kv = static_kv
        self.K: Tensor | None = None
        self.V: Tensor | None = None
        self.start_pos = 0

    def update(self, attn: MultiHeadAttention, key: Tensor, value: Tensor) -> tuple[Tensor, Tensor]:
        ...

    def reorder(self, beam_idx: Tensor) -> None:
        ...
