import torch


def positional_encoding(length, d_model):
    pos = torch.arange(length).double()[:, None]
    i = torch.arange(0, d_model, 2).double()
    angle = pos / 10000 ** (i / d_model)
    return torch.stack([angle.sin(), angle.cos()], -1).flatten(1)
