"""Section 4, what is learned over a short path: the first of n tokens is recalled at the last, each layer as it is customarily initialised.

The first of n tokens is one of eight, the others are noise, and the last output names the first. Each layer is stacked as often
as it takes to connect the ends. Adam's learning rate is chosen for each layer and length with three seeds of its own; then five others
count updates until 95 % of a batch is right. Updates depend on no clock, so other work may run. Interrupted, the same command continues.

    python experiments/short_paths.py --out nbs/results/short_paths.json      # some minutes on one thread
"""
import argparse, json, math, sys
from pathlib import Path
import torch
from torch import nn
from torch.nn import functional as F
from tqdm import tqdm
from annotated_transformer.analysis.complexity import SelfAttention, _CausalConv1d
from recording import ResultCache, provenance

D, K, BATCH = 32, 3, 32          # width, kernel, sequences in a batch
LENGTHS, RATES = [8, 32, 128], [1e-3, 3e-3, 1e-2, 3e-2]
SEEDS, TUNING_SEEDS = range(5), range(100, 103)
ARMS = ['self-attention', 'dilated convolution, fan-in', 'convolution, fan-in', 'plain cell, orthogonal', 'GRU, orthogonal', 'LSTM, forget bias 1', 'LSTM, chrono']

def longest_path(name, n):
    "Layers, or steps of a recurrent layer, between the ends of n positions."
    if name == 'self-attention': return 1
    if 'dilated' in name: return next(L for L in range(n) if K**L >= n)
    return math.ceil((n - 1) / (K - 1)) if 'convolution' in name else n

class Fold(nn.Module):
    "A compiled recurrent layer with an orthogonal matrix for each gate; an LSTM's forget gate starts with bias 1, or as far open as n asks."
    def __init__(self, name, n):
        super().__init__()
        self.rnn = dict(plain=nn.RNN, GRU=nn.GRU, LSTM=nn.LSTM)[name.replace(',', '').split()[0]](D, D, batch_first=True)
        for matrix in self.rnn.weight_hh_l0.detach().split(D): nn.init.orthogonal_(matrix)
        for matrix in self.rnn.weight_ih_l0.detach().split(D): nn.init.xavier_uniform_(matrix)
        biases = [b.detach() for b in (self.rnn.bias_ih_l0, self.rnn.bias_hh_l0)]
        for b in biases: b.zero_()
        if name == 'LSTM, forget bias 1': biases[0][D:2*D] = 1
        if name == 'LSTM, chrono':          # Tallec & Ollivier (2018): forgets after 1 to n - 1 steps
            biases[0][D:2*D] = torch.empty(D).uniform_(1, max(2, n - 1)).log()
            biases[0][:D] = -biases[0][D:2*D]

    def forward(self, x): return self.rnn(x)[0]

def stack(name, n):
    "As many layers as it takes to connect the ends of n positions."
    if name == 'self-attention':
        layer = SelfAttention(D)
        for p in layer.parameters(): nn.init.xavier_uniform_(p)
        return layer
    if 'convolution' not in name: return Fold(name, n)
    parts = []
    for l in range(longest_path(name, n)):
        conv = _CausalConv1d(D, K, dilation=K**l if 'dilated' in name else 1)
        nn.init.kaiming_normal_(conv.conv.weight, nonlinearity='relu'); nn.init.zeros_(conv.conv.bias)
        parts += [conv, nn.ReLU()]
    return nn.Sequential(*parts)

def learn(name, n, seed, rate, limit):
    "Updates until 95 % of a batch name the first token, at most `limit`, and the mean loss of the last ten."
    torch.manual_seed(seed)
    data = torch.Generator().manual_seed(1000 + seed)          # the same tokens for all layers
    model, losses = nn.Sequential(nn.Embedding(16, D), stack(name, n), nn.Linear(D, 8)), []
    optimizer = torch.optim.Adam(model.parameters(), rate)
    for _ in range(limit):
        first, noise = torch.randint(8, (BATCH, 1), generator=data), torch.randint(8, 16, (BATCH, n - 1), generator=data)
        logits = model(torch.cat([first, noise], 1))[:, -1]                # (B, 8)
        losses.append((loss := F.cross_entropy(logits, first[:, 0])).item())
        if (logits.argmax(-1) == first[:, 0]).float().mean() >= .95: break
        optimizer.zero_grad(); loss.backward(); optimizer.step()
    else: done = limit
    last = sum(losses[-10:]) / len(losses[-10:])
    return dict(updates=done, loss=last if math.isfinite(last) else None)

def main(a):
    torch.set_num_threads(1)
    if a.tiny: settings = dict(lengths=[4, 8], seeds=[0, 1], tuning_seeds=[100], limit=5, rates=RATES)
    else: settings = dict(lengths=LENGTHS, seeds=[*SEEDS], tuning_seeds=[*TUNING_SEEDS], limit=300, rates=RATES)
    lengths, seeds, tuning_seeds, limit, _ = settings.values()
    cache = ResultCache(a.runs or Path('runs/short_paths' + '_tiny' * a.tiny), settings)
    def once(name, n, seed, rate):
        return cache.get_or_compute(f'{name}, n = {n}, seed {seed}, rate {rate:g}', lambda: learn(name, n, seed, rate, limit), quiet=True)
    arms = []
    try:
        for n, name in tqdm([(n, name) for n in lengths for name in ARMS]):
            tuning = {rate: [once(name, n, seed, rate) for seed in tuning_seeds] for rate in RATES}
            def cost(rate):      # the loss decides among rates that all fail
                losses = [run['loss'] for run in tuning[rate]]                             # noqa: B023
                return sum(run['updates'] for run in tuning[rate]), math.inf if None in losses else sum(losses)      # noqa: B023
            rate = min(RATES, key=cost)
            updates = [once(name, n, seed, rate)['updates'] for seed in seeds]
            arms.append(dict(name=name, n=n, path=longest_path(name, n), rate=rate, tuning=[[run['updates'] for run in runs] for runs in tuning.values()], updates=updates))
            tqdm.write(f'n = {n:3}  {name:28} rate {rate:g}, updates {updates}')
    except KeyboardInterrupt:
        print('interrupted: the same command continues', file=sys.stderr); sys.exit(130)
    record = provenance('torch') | settings | dict(arms=arms)
    if a.out: a.out.write_text(json.dumps(record, indent=1, ensure_ascii=False) + '\n')

p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
p.add_argument('--runs', type=Path, help='folder for what is finished; default runs/short_paths')
p.add_argument('--out', type=Path, help='the record, a JSON file')
p.add_argument('--tiny', action='store_true', help='a trial of seconds: short lengths, few updates, nothing to keep')
if __name__ == '__main__': main(p.parse_args())
