import torch


def greedy(log_probs_fn, B, bos_id, eos_id, max_len):
    prefixes = torch.full((B, 1), bos_id)
    ended = torch.zeros(B, dtype=torch.bool)
    sentences = [[] for _ in range(B)]
    while prefixes.size(1) < max_len and not ended.all():
        token = log_probs_fn(prefixes).argmax(-1)
        ended = ended | (token == eos_id)
        for b in (~ended).nonzero()[:, 0].tolist():
            sentences[b].append(token[b].item())
        prefixes = torch.cat([prefixes, token[:, None]], 1)
    return sentences
