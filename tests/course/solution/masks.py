import torch


def subsequent_mask(T):
    return torch.ones(T, T, dtype=torch.bool).tril()


def padding_mask(ids, pad_id):
    return (ids != pad_id)[:, None, None, :]
