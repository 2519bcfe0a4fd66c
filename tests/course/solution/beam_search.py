import torch


def beam_search(log_probs_fn, bos_id, eos_id, beam=4, alpha=0.6, max_len=50):
    prefixes, log_prob = torch.tensor([[bos_id]]), torch.zeros(1)
    finished = []
    for t in range(1, max_len + 1):
        total = log_prob[:, None] + log_probs_fn(prefixes)
        if t == max_len:
            only_eos = torch.full_like(total, -torch.inf)
            only_eos[:, eos_id] = total[:, eos_id]
            total = only_eos
        V = total.size(-1)
        best, index = total.flatten().topk(min(2 * beam, total.numel()))
        origin, token = index // V, index % V
        is_eos = token == eos_id
        for i in is_eos[:beam].nonzero()[:, 0].tolist():
            if best[i] > -torch.inf:
                score = best[i].item() / ((5 + t) / 6) ** alpha
                finished.append((score, prefixes[origin[i], 1:].tolist()))
        log_prob, i = best[~is_eos][:beam], (~is_eos).nonzero()[:beam, 0]
        prefixes = torch.cat([prefixes[origin[i]], token[i, None]], 1)
    score, ids = max(finished)
    return ids, score
