"""Recurrent encoder-decoders with attention: Cho et al. 2014, Bahdanau et al. 2015 and Luong et al. 2015 in one configurable class."""
__all__ = ['RecurrentConfig', 'RecurrentTranslator']
from dataclasses import dataclass
import torch
from fastcore.basics import patch
from torch import Tensor, nn
from torch.nn.utils.rnn import pack_padded_sequence, pad_packed_sequence
from ..utils.validation import UserError, validate_fields, _validate_types
from ..model.seq2seq import Seq2SeqModel, register_architecture
_SCORE_FUNCTIONS = ('none', 'additive', 'dot', 'general', 'concat', 'location')

@dataclass(frozen=True)
class RecurrentConfig:
    """Hyper-parameters of a recurrent encoder-decoder.
    Raises ValueError on impossible values."""
    vocab_size: int = 4000
    d_model: int = 256
    N: int = 1
    cell: str = 'gru'
    bidirectional: bool = True
    reverse: bool = False
    score: str = 'additive'
    window: str = 'global'
    D: int = 10
    input_feeding: bool = False
    P_drop: float = 0.3
    eps_ls: float = 0.1
    max_len: int = 1024
    src_vocab_size: int | None = None

    def __post_init__(self) -> None:
        ...

@register_architecture('recurrent')
class RecurrentTranslator(Seq2SeqModel):
    """A recurrent encoder-decoder, with or without attention: Cho et al. 2014, Bahdanau
    et al. 2015, Luong et al. 2015, by its configuration."""
    config_class = RecurrentConfig
    attn_weights: Tensor

    def __init__(self, config: RecurrentConfig, pad_id: int=0):
        super().__init__(config, pad_id)
        c, d = (config, config.d_model)
        network = dict(gru=nn.GRU, lstm=nn.LSTM)[c.cell]
        self.attend_first = c.score in ('none', 'additive')
        self.sequential = c.score == 'additive' or c.input_feeding
        self.n_states = c.N * (2 if c.cell == 'lstm' else 1)
        self.src_embed = nn.Embedding(c.src_vocab_size or c.vocab_size, d)
        self.tgt_embed = nn.Embedding(c.vocab_size, d)
        self.encoder = network(d, d // 2 if c.bidirectional else d, c.N, batch_first=True, bidirectional=c.bidirectional)
        self.bridge = nn.Linear(d, self.n_states * d)
        width = 2 * d if self.attend_first or c.input_feeding else d
        self.decoder = network(width, d, c.N, batch_first=True)
        self.score = _AttentionScore(d, c.score, c.max_len)
        self.window = _AttentionWindow(d, c.window, c.D)
        self.combine = nn.Linear(2 * d, d, bias=False)
        self.dropout = nn.Dropout(c.P_drop)
        self.output_projection = nn.Linear(d, c.vocab_size)
        self.reset_parameters()

    def reset_parameters(self) -> None:
        ...

    def init_state(self, src: Tensor) -> dict[str, Tensor]:
        ...

    def advance(self, x: Tensor, hidden: Tensor) -> tuple[Tensor, Tensor]:
        ...

    def attentional_vector(self, y: Tensor, context: Tensor) -> Tensor:
        ...

    def step(self, x: Tensor, state: dict[str, Tensor]) -> Tensor:
        ...

    def hidden_states(self, src: Tensor, tgt: Tensor) -> Tensor:
        ...

    def decode_step(self, state: dict[str, Tensor], token: Tensor) -> Tensor:
        ...

    def attend(self, query: Tensor, state: dict[str, Tensor], t: Tensor) -> Tensor:
        ...

class _AttentionScore(nn.Module):
    """Score function of a decoder state and the encoder states."""

    def __init__(self, d: int, score: str, max_len: int):
        super().__init__()
        self.kind = score
        if score == 'location':
            self.W = nn.Linear(d, max_len, bias=False)
        if score == 'general':
            self.W = nn.Linear(d, d, bias=False)
        if score in ('additive', 'concat'):
            self.W, self.U = (nn.Linear(d, d, bias=False) for _ in range(2))
            self.v = nn.Linear(d, 1, bias=False)

    def project_keys(self, memory: Tensor) -> Tensor:
        ...

    def forward(self, query: Tensor, keys: Tensor) -> Tensor:
        ...

class _AttentionWindow(nn.Module):
    """Positions that a decoder may attend to: all, or a window. Luong et al. 2015, §3.2."""

    def __init__(self, d: int, window: str, D: int):
        super().__init__()
        self.kind, self.D = (window, D)
        if window == 'local-p':
            self.W_p = nn.Linear(d, d, bias=False)
            self.v_p = nn.Linear(d, 1, bias=False)

    def forward(self, query: Tensor, mask: Tensor, t: Tensor) -> tuple[Tensor, Tensor | float]:
        ...
