"""The Transformer of Figure 1 in one class, decoding incrementally with a KV cache (§3)."""
__all__ = ['Transformer', 'DecoderCache']
from fastcore.basics import patch
import torch
from torch import Tensor, nn
from .attention import KeyValueCache, MultiHeadAttention, padding_mask, subsequent_mask
from .config import TransformerConfig
from .embeddings import Embedding, OutputProjection
from .feed_forward import FeedForward
from .seq2seq import Seq2SeqModel, register_architecture
from .positional_encoding import PositionalEncoding
from .layers import AddNorm, DecoderLayer, EncoderLayer, Stack

@register_architecture('transformer')
class Transformer(Seq2SeqModel):
    """The model of Figure 1; to change a part, override its `make_…` in a subclass."""
    config_class = TransformerConfig
    cache_class: type['DecoderCache']
    output_projection: OutputProjection

    def __init__(self, config: TransformerConfig, pad_id: int=0):
        super().__init__(config, pad_id)
        self.encoder = Stack(self._encoder_layer, config.N, self.make_final_norm())
        self.decoder = Stack(self._decoder_layer, config.N, self.make_final_norm())
        self.src_position = self.make_positions()
        self.tgt_position = self.make_positions()
        self.src_embed, self.tgt_embed, self.output_projection = self._embeddings()
        if config.positions == 'learned':
            self.max_target_length = config.max_len
        self.reset_parameters()

    def encode(self, src: Tensor) -> Tensor:
        ...

    def decode(self, tgt: Tensor, memory: Tensor, memory_mask: Tensor, cache: 'DecoderCache|None'=None) -> Tensor:
        ...

    def hidden_states(self, src: Tensor, tgt: Tensor) -> Tensor:
        ...

    def _encoder_layer(self) -> EncoderLayer:
        ...

    def _decoder_layer(self) -> DecoderLayer:
        ...

    def _embeddings(self) -> tuple[Embedding, Embedding, OutputProjection]:
        ...

    def make_attention(self, role: str) -> nn.Module:
        ...

    def make_feed_forward(self) -> nn.Module:
        ...

    def make_residual(self) -> nn.Module:
        ...

    def make_final_norm(self) -> nn.Module | None:
        ...

    def make_positions(self) -> nn.Module:
        ...

    def reset_parameters(self) -> None:
        ...

    def init_state(self, src: Tensor) -> DecoderCache:
        ...

    def decode_step(self, state: DecoderCache, token: Tensor) -> Tensor:
        ...

    def reorder(self, state: DecoderCache, beam_idx: Tensor) -> None:
        ...

class DecoderCache:
    """Memory, keys and values of R hypotheses, each of them a row of the batch."""

    def __init__(self, memory: Tensor, memory_mask: Tensor):
        self.memory, self.memory_mask = (memory, memory_mask)
        self.source_idx = torch.arange(len(memory), device=memory.device)
        self.length = 0
        self.layers: dict[nn.Module, tuple[KeyValueCache, KeyValueCache]] = {}

    def layer_caches(self, layer: nn.Module) -> tuple[KeyValueCache, KeyValueCache]:
        ...

    def reorder(self, beam_idx: Tensor) -> None:
        ...
Transformer.cache_class = DecoderCache
