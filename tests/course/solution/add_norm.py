import torch
from torch import nn


class LayerNorm(nn.Module):
    def __init__(self, d_model, eps=1e-5):
        super().__init__()
        self.eps = eps
        self.weight = nn.Parameter(torch.ones(d_model))
        self.bias = nn.Parameter(torch.zeros(d_model))

    def forward(self, x):
        centred = x - x.mean(-1, keepdim=True)
        variance = x.var(-1, keepdim=True, correction=0)
        return centred / (variance + self.eps).sqrt() * self.weight + self.bias


class AddNorm(nn.Module):
    def __init__(self, d_model, P_drop=0.1):
        super().__init__()
        self.norm = LayerNorm(d_model)
        self.dropout = nn.Dropout(P_drop)

    def forward(self, x, sublayer):
        return self.norm(x + self.dropout(sublayer(x)))
