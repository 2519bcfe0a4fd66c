from torch import nn

from .add_norm import AddNorm
from .feed_forward import FeedForward
from .multi_head import MultiHeadAttention


class DecoderLayer(nn.Module):
    def __init__(self, d_model, h, d_ff, P_drop=0.1):
        super().__init__()
        self.self_attn = MultiHeadAttention(d_model, h)
        self.cross_attn = MultiHeadAttention(d_model, h)
        self.feed_forward = FeedForward(d_model, d_ff)
        self.add_norm = nn.ModuleList(AddNorm(d_model, P_drop) for _ in range(3))

    def forward(self, x, memory, mask=None, memory_mask=None):
        x = self.add_norm[0](x, lambda y: self.self_attn(y, y, y, mask))
        x = self.add_norm[1](x, lambda y: self.cross_attn(y, memory, memory, memory_mask))
        return self.add_norm[2](x, self.feed_forward)


class Decoder(nn.Module):
    def __init__(self, N, d_model, h, d_ff, P_drop=0.1):
        super().__init__()
        self.layers = nn.ModuleList(DecoderLayer(d_model, h, d_ff, P_drop) for _ in range(N))

    def forward(self, x, memory, mask=None, memory_mask=None):
        for layer in self.layers:
            x = layer(x, memory, mask, memory_mask)
        return x
