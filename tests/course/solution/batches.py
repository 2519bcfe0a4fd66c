def make_batches(lengths, max_tokens):
    order = sorted(range(len(lengths)), key=lambda i: (max(lengths[i]), lengths[i]))
    batches, batch, longest = [], [], 0
    for i in order:
        if max(lengths[i]) > max_tokens:
            raise ValueError(f'pair {i} is longer than {max_tokens}')
        longest = max(longest, *lengths[i])
        if (len(batch) + 1) * longest > max_tokens:
            batches.append(batch)
            batch, longest = [], max(lengths[i])
        batch.append(i)
    return batches + [batch] if batch else batches
