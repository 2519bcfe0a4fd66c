"""ConvS2S (Gehring et al. 2017): translation by gated convolutions, with attention in every layer of the decoder."""
__all__ = ['GatedConv', 'ConvS2SConfig', 'ConvS2S']
import math
from collections.abc import Iterable
from dataclasses import dataclass
import torch
from fastcore.basics import patch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.nn.utils.parametrizations import weight_norm
from ..utils.validation import UserError, validate_fields, _validate_types
from ..model.seq2seq import Seq2SeqModel, register_architecture

def _scaled_residual(a: Tensor, b: Tensor) -> Tensor:
    ...

def _grad_multiply(x: Tensor, scale: float) -> Tensor:
    ...

def _init_weight_norm(layer: nn.Linear | nn.Conv1d, gain: float=1.0, P_drop: float=0.0) -> nn.Module:
    ...

class GatedConv(nn.Module):
    """GLU(W x + b) of each window of k positions, §3.2 of Gehring et al. (2017)."""

    def __init__(self, d: int, k: int, P_drop: float=0.0):
        super().__init__()
        self.conv = _init_weight_norm(nn.Conv1d(d, 2 * d, k), 4, P_drop)
        self.dropout = nn.Dropout(P_drop)

    def forward(self, x: Tensor) -> Tensor:
        ...

def _encoder_decoder_attention(Q: Tensor, K: Tensor, V: Tensor, mask: Tensor) -> tuple[Tensor, Tensor]:
    ...

class _ConvDecoderLayer(nn.Module):
    """A gated convolution over the prefix, then attention to the source, §3.3."""
    gated: GatedConv

    def __init__(self, d: int, k: int, P_drop: float, attend: bool=True):
        super().__init__()
        self.gated = GatedConv(d, k, P_drop)
        self.query = _init_weight_norm(nn.Linear(d, d)) if attend else None

    def forward(self, h: Tensor, x: Tensor, g: Tensor, source: tuple[Tensor, Tensor, Tensor]) -> Tensor:
        ...

class _TokenPositionEmbedding(nn.Module):
    """Token + learned position, drawn from N(0, 0.1²), §3.1 of Gehring et al. (2017)."""

    def __init__(self, vocab_size: int, d: int, n_positions: int | None, P_drop: float=0.0):
        super().__init__()
        self.token_embedding = nn.Embedding(vocab_size, d)
        self.position_embedding = nn.Embedding(n_positions, d) if n_positions else None
        self.dropout = nn.Dropout(P_drop)
        for table in self.parameters():
            nn.init.normal_(table, std=0.1)

    def forward(self, ids: Tensor, offset: int=0) -> Tensor:
        ...

@dataclass(frozen=True)
class ConvS2SConfig:
    """Hyper-parameters of ConvS2S; the defaults are its authors' small recipe.
    Raises ValueError on impossible values."""
    vocab_size: int = 37000
    d_model: int = 256
    encoder_layers: int = 4
    decoder_layers: int = 3
    k: int = 3
    P_drop: float = 0.2
    eps_ls: float = 0.1
    attention_layers: str = 'all'
    positions: bool = True
    tie_embeddings: bool = False
    max_len: int = 1024
    src_vocab_size: int | None = None

    def __post_init__(self) -> None:
        ...

@register_architecture('convs2s')
class ConvS2S(Seq2SeqModel):
    """The convolutional sequence-to-sequence model of Gehring et al. (2017)."""
    config_class = ConvS2SConfig

    def __init__(self, config: ConvS2SConfig, pad_id: int=0):
        super().__init__(config, pad_id)
        c, d = (config, config.d_model)
        self.max_target_length = c.max_len if c.positions else None
        self.src_embed, self.tgt_embed = [_TokenPositionEmbedding(size, d, self.max_target_length, c.P_drop) for size in (c.src_vocab_size or c.vocab_size, c.vocab_size)]
        self.encoder = nn.ModuleList((GatedConv(d, c.k, c.P_drop) for _ in range(c.encoder_layers)))
        single = dict(first=0, last=c.decoder_layers - 1).get(c.attention_layers)
        self.decoder = nn.ModuleList((_ConvDecoderLayer(d, c.k, c.P_drop, single in (None, l)) for l in range(c.decoder_layers)))
        self.dropout = nn.Dropout(c.P_drop)
        self.output_projection = nn.Linear(d, c.vocab_size)
        nn.init.zeros_(self.output_projection.bias)
        if c.tie_embeddings:
            self.output_projection.weight = self.tgt_embed.token_embedding.weight
        else:
            _init_weight_norm(self.output_projection, 1, c.P_drop)

    def encode(self, src: Tensor) -> tuple[Tensor, Tensor, Tensor]:
        ...

    def hidden_states(self, src: Tensor, tgt: Tensor) -> Tensor:
        ...

    def init_state(self, src: Tensor) -> dict[str, Tensor]:
        ...

    def decode_step(self, state: dict[str, Tensor], token: Tensor) -> Tensor:
        ...
