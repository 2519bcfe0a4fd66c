def learning_rate(step, d_model=512, warmup_steps=4000):
    if step < 1:
        raise ValueError('steps count from 1')
    return d_model ** -0.5 * min(step ** -0.5, step * warmup_steps ** -1.5)
