"""ByteNet (Kalchbrenner et al. 2016): translation by two stacks of dilated convolutions, the decoder unfolded on the encoder."""
__all__ = ['ByteNetBlock', 'ByteNetConfig', 'ByteNet']
from collections.abc import Iterable
from dataclasses import dataclass, field
import torch
from fastcore.basics import patch
from torch import Tensor, nn
from torch.nn import functional as F
from ..utils.validation import UserError, validate_fields, _validate_types
from ..model.seq2seq import Seq2SeqModel, register_architecture

class _DilatedConv(nn.Conv1d):
    """y_t = b + Σ_j W_j x_{t-(k-1-j)r}, masked; else with its inputs on both sides.
    Kalchbrenner et al. (2016), §3.4 and §3.5."""

    def __init__(self, d_in: int, d_out: int, k: int=3, r: int=1, masked: bool=False):
        super().__init__(d_in, d_out, k, dilation=r)
        span = (k - 1) * r
        before = span if masked else span // 2
        self.pad_widths = (before, span - before)

    def forward(self, x: Tensor) -> Tensor:
        ...

    def last_output(self, x: Tensor) -> Tensor:
        ...

class ByteNetBlock(nn.Module):
    """x + widen(convolve(narrow(x))), ReLU block of Kalchbrenner et al. (2016), §3.6."""

    def __init__(self, d_model: int, k: int=3, r: int=1, P_drop: float=0.0, masked: bool=False):
        super().__init__()
        d = d_model // 2

        def norm_relu(width: int) -> list[nn.Module]:
            ...
        self.narrow = nn.Sequential(*norm_relu(d_model), nn.Linear(d_model, d), *norm_relu(d))
        self.conv = _DilatedConv(d, d, k, r, masked)
        self.widen = nn.Sequential(*norm_relu(d), nn.Linear(d, d_model), nn.Dropout(P_drop))

    def forward(self, x: Tensor, mask: Tensor | None=None) -> Tensor:
        ...

    def step(self, x: Tensor, past: Tensor) -> tuple[Tensor, Tensor]:
        ...

@dataclass(frozen=True)
class ByteNetConfig:
    """Hyper-parameters of ByteNet, 2 × 10 blocks; the paper: d_model=1600, sets=6, on
    letters. Raises ValueError on impossible values."""
    vocab_size: int = 37000
    d_model: int = 128
    k: int = 3
    dilations: list = field(default_factory=lambda: [1, 2, 4, 8, 16])
    sets: int = 2
    a: float = 1.2
    b: float = 0.0
    P_drop: float = 0.1
    eps_ls: float = 0.1
    max_len: int = 1024
    src_vocab_size: int | None = None

    def __post_init__(self) -> None:
        ...

@register_architecture('bytenet')
class ByteNet(Seq2SeqModel):
    """An encoder and a causal decoder of dilated convolutions, the decoder unfolded on
    the encoder (Kalchbrenner et al. 2016)."""
    config_class = ByteNetConfig

    def __init__(self, config: ByteNetConfig, pad_id: int=0):
        super().__init__(config, pad_id)
        c, V, d = (config, config.vocab_size, config.d_model)
        self.source = nn.Embedding(c.src_vocab_size or V, d)
        self.target = nn.Embedding(V, d)
        self.encoder, self.decoder = [nn.ModuleList((ByteNetBlock(d, c.k, r, c.P_drop, masked) for r in c.sets * c.dilations)) for masked in (False, True)]
        self.output_projection = nn.Sequential(nn.LayerNorm(d), nn.ReLU(), nn.Linear(d, d), nn.ReLU(), nn.Linear(d, V))

    def encode(self, src: Tensor) -> Tensor:
        ...

    def hidden_states(self, src: Tensor, tgt: Tensor) -> Tensor:
        ...

    def init_state(self, src: Tensor) -> dict[str, Tensor]:
        ...

    def decode_step(self, state: dict[str, Tensor], token: Tensor) -> Tensor:
        ...
