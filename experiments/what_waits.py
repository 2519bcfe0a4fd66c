"""Section 4 on the clock: seconds of a recurrent, a convolutional and a self-attention layer, forward and backward, and what a second thread gains.

Every round times all layers with all numbers of threads at each size, in shuffled order, so that they are paired by round. A size
at which a layer's forward and backward pass exceeds --max_gflop or --max_gb is skipped and named. What is measured stays in
--runs: interrupted, the same command continues. A busy machine gives no record, nor do threads that sleep while they wait (OMP_WAIT_POLICY):
they take so long to wake up that a second thread makes short steps slower.

    python experiments/what_waits.py --out nbs/results/what_waits.json                        # about ten minutes of two idle cores
    python experiments/what_waits.py --device cuda --max_gflop 20000 --out what_waits_cuda.json
"""
import argparse, json, os, random, sys, time
from pathlib import Path
from statistics import median
import torch
from torch import nn
from torch.nn import functional as F
from tqdm import tqdm
from annotated_transformer.background.convs2s import GatedConv
from annotated_transformer.model.attention import MultiHeadAttention
from recording import ResultCache, provenance

LAYERS = 'recurrence', 'convolution', 'self-attention'
K, H = 3, 8           # width of the kernel, heads
D_MODEL, LENGTHS, BATCHES = 512, [2**i for i in range(5, 13)], [1, 16, 64]
ROUNDS, MIN_SECONDS = 5, .1            # seconds that the calls of a measurement fill
TINY = 16, [8, 16], [1, 2], 2, .001
VECTORS = 28          # of d_model numbers for each token, at most: activations and gradients of any of these layers

class Recurrence(nn.LSTM):
    "nn.LSTM, the cell of the strongest recurrent translators; its loop is compiled, where nn.GRU calls operations one by one."
    def forward(self, x): return super().forward(x)[0]

class Convolution(GatedConv):
    "ConvS2S's gated convolution, as in its encoder."
    def forward(self, x): return super().forward(F.pad(x, (0, 0, K // 2, K // 2)))

class Attention(MultiHeadAttention):
    "Multi-head self-attention, by PyTorch's fused kernel."
    def forward(self, x): return super().forward(x, x, x)

def build_layers(d): return dict(zip(LAYERS, (Recurrence(d, d, batch_first=True), Convolution(d, K), Attention(d, H))))

def gflop(name, n, B, d):
    "Forward and backward pass: three times the products of the forward pass."
    each = {'recurrence': 16 * d, 'convolution': 4 * K * d, 'self-attention': 8 * d + 4 * n}[name]
    return 3 * B * n * d * each / 1e9

def reason_to_skip(n, B, d, a):
    "Why the layers are not timed at a size, by the one that works most and by an upper estimate of memory; None: they are."
    work, name = max((gflop(name, n, B, d), name) for name in LAYERS)
    if work > a.max_gflop: return f'{name} takes {work:,.0f} GFLOP, more than {a.max_gflop:g}'
    if (size := 4e-9 * VECTORS * B * n * d) > a.max_gb: return f'about {size:.1f} GB of memory, more than {a.max_gb:g}'

def synchronise(device):
    if device == 'cuda': torch.cuda.synchronize()

def seconds(f, device, min_seconds):
    "Of one call: the median of the calls in `min_seconds`, after one that warms up; of a call ten times as long, that one."
    def timed():
        start = time.perf_counter()
        f(); synchronise(device)
        return time.perf_counter() - start
    synchronise(device)
    if (first := timed()) > 10 * min_seconds: return first
    calls = []
    while sum(calls) < min_seconds: calls.append(timed())
    return median(calls)

def one_call(layer, x, grad):
    "A forward and backward pass."
    return torch.autograd.grad(layer(x), [x, *layer.parameters()], grad)

def warm_up(layers, d, n, B, threads, device):
    "Each layer once with each number of threads: the first long call of a process takes half as long again."
    x, grad = torch.randn(2, B, n, d, device=device)
    x.requires_grad_()
    for t in threads:
        torch.set_num_threads(t)
        for layer in layers.values(): one_call(layer, x, grad)

def measure_size(layers, d, n, B, threads, rng, device, min_seconds):
    "Seconds by layer and number of threads, all at one size, in random order."
    jobs, found = [(name, t) for name in layers for t in threads], {}
    x, grad = torch.randn(2, B, n, d, device=device)
    x.requires_grad_()
    for name, t in rng.sample(jobs, len(jobs)):
        torch.set_num_threads(t)
        layer = layers[name]
        found[f'{name}, {t}'] = seconds(lambda: one_call(layer, x, grad), device, min_seconds)      # noqa: B023
    return found

def main(a):
    d, lengths, batches, num_rounds, min_seconds = TINY if a.tiny else (D_MODEL, LENGTHS, BATCHES, ROUNDS, MIN_SECONDS)
    threads, cores = [1] if a.device == 'cuda' else [1, 2], len(os.sched_getaffinity(0)) if hasattr(os, 'sched_getaffinity') else os.cpu_count()
    if cores < max(threads): sys.exit('error: a second thread needs a second core')
    if a.device == 'cuda' and not torch.cuda.is_available(): sys.exit('error: --device cuda: this PyTorch sees no GPU')
    load = os.getloadavg()[0]
    if load > .5 and a.out and not a.tiny: sys.exit(f'error: this machine is busy (load {load:.1f}): --out would be the record of a busy machine; stop other work, or leave --out away')
    if (policy := os.environ.get('OMP_WAIT_POLICY', '')) and a.out and not a.tiny: sys.exit(f'error: OMP_WAIT_POLICY={policy}: the record is of threads that wait as by default; unset it, or leave --out away')
    torch.manual_seed(0)
    layers = {name: layer.to(a.device) for name, layer in build_layers(d).items()}
    sizes = {(n, B): reason_to_skip(n, B, d, a) for B in batches for n in lengths}
    skipped = [dict(n=n, batch=B, reason=reason) for (n, B), reason in sizes.items() if reason]
    for s in skipped: print(f"skipped: n = {s['n']}, batch {s['batch']}: {s['reason']}")
    work = {size: sum(gflop(name, *size, d) / t for name in LAYERS for t in threads) for size, reason in sizes.items() if not reason}
    settings = dict(d_model=d, lengths=lengths, batches=batches, threads=threads, rounds=num_rounds, min_seconds=min_seconds,
                    max_gflop=a.max_gflop, max_gb=a.max_gb, wait_policy=policy or 'default', device=torch.cuda.get_device_name() if a.device == 'cuda' else 'cpu')
    cache = ResultCache(a.runs or Path('runs/what_waits' + '_tiny' * a.tiny), settings)
    rounds = []
    warm_up(layers, d, *max(work, key=work.get), threads, a.device)
    try:
        with tqdm(total=num_rounds * sum(work.values()), unit='GFLOP', bar_format='{percentage:3.0f}% |{bar}| {elapsed} of about {elapsed}+{remaining}') as bar:
            for i in range(num_rounds):
                rng, rows = random.Random(i), {}
                for n, B in rng.sample([*work], len(work)):
                    rows |= {(name, n, B): s for name, s in cache.get_or_compute(f'round {i}, n = {n}, batch {B}', lambda: measure_size(layers, d, n, B, threads, rng, a.device, min_seconds), quiet=True).items()}      # noqa: B023
                    bar.update(work[n, B])
                rounds.append(rows)
    except KeyboardInterrupt:
        print('interrupted: the same command continues', file=sys.stderr); sys.exit(130)
    cells = [dict(layer=key.partition(', ')[0], threads=int(key.partition(', ')[2]), n=n, batch=B, seconds=[rows[key, n, B] for rows in rounds]) for key, n, B in sorted(rounds[0])]
    record = provenance('torch') | settings | dict(load_before=load, cells=cells, skipped=skipped)
    print(record['processor'])
    for c in cells: print(f"{c['layer']:15} batch {c['batch']:2}, n = {c['n']:4}, {c['threads']} thread{'s' * (c['threads'] > 1)}: {median(c['seconds']):.4f} s")
    if a.out: a.out.write_text(json.dumps(record, indent=1) + '\n')

p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
p.add_argument('--max_gflop', type=float, default=640, help='of one forward and backward pass')
p.add_argument('--max_gb', type=float, default=8, help='of memory, by an upper estimate')
p.add_argument('--device', choices=['cpu', 'cuda'], default='cpu')
p.add_argument('--runs', type=Path, help='folder for what is measured; default runs/what_waits')
p.add_argument('--out', type=Path, help='the record, a JSON file')
p.add_argument('--tiny', action='store_true', help='a trial of seconds: two small sizes, two rounds, nothing to keep')
if __name__ == '__main__': main(p.parse_args())
