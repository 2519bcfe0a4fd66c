def label_smoothed_loss(logits, target, eps_ls=0.1, pad_id=0):
    log_p = logits.log_softmax(-1)
    gold = log_p.gather(-1, target[..., None])[..., 0]
    loss = -(1 - eps_ls) * gold - eps_ls * log_p.mean(-1)
    is_token = target != pad_id
    return loss[is_token].sum(), is_token.sum()
