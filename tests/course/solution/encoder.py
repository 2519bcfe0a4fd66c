from torch import nn

from .add_norm import AddNorm
from .feed_forward import FeedForward
from .multi_head import MultiHeadAttention


class EncoderLayer(nn.Module):
    def __init__(self, d_model, h, d_ff, P_drop=0.1):
        super().__init__()
        self.self_attn = MultiHeadAttention(d_model, h)
        self.feed_forward = FeedForward(d_model, d_ff)
        self.add_norm = nn.ModuleList(AddNorm(d_model, P_drop) for _ in range(2))

    def forward(self, x, mask=None):
        x = self.add_norm[0](x, lambda y: self.self_attn(y, y, y, mask))
        return self.add_norm[1](x, self.feed_forward)


class Encoder(nn.Module):
    def __init__(self, N, d_model, h, d_ff, P_drop=0.1):
        super().__init__()
        self.layers = nn.ModuleList(EncoderLayer(d_model, h, d_ff, P_drop) for _ in range(N))

    def forward(self, x, mask=None):
        for layer in self.layers:
            x = layer(x, mask)
        return x
