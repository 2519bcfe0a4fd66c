def train_step(model, optimizer, src, tgt, loss_fn, lr, micro_batches=1, pad_id=0):
    model.train()
    for group in optimizer.param_groups:
        group['lr'] = lr
    optimizer.zero_grad()
    num_tokens = (tgt[:, 1:] != pad_id).sum().item()
    total = 0.
    for micro_src, micro_tgt in zip(src.chunk(micro_batches), tgt.chunk(micro_batches)):
        loss, _ = loss_fn(model(micro_src, micro_tgt[:, :-1]), micro_tgt[:, 1:])
        (loss / num_tokens).backward()
        total += loss.item()
    optimizer.step()
    return total / num_tokens
