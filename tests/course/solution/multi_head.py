from torch import nn

from .attention import attention


class MultiHeadAttention(nn.Module):
    def __init__(self, d_model, h):
        super().__init__()
        self.h = h
        self.W_Q = nn.Linear(d_model, d_model, bias=False)
        self.W_K = nn.Linear(d_model, d_model, bias=False)
        self.W_V = nn.Linear(d_model, d_model, bias=False)
        self.W_O = nn.Linear(d_model, d_model, bias=False)

    def split(self, x):
        return x.unflatten(-1, (self.h, -1)).transpose(1, 2)

    def forward(self, query, key, value, mask=None):
        Q, K, V = self.split(self.W_Q(query)), self.split(self.W_K(key)), self.split(self.W_V(value))
        out, _ = attention(Q, K, V, mask)
        return self.W_O(out.transpose(1, 2).flatten(-2))
