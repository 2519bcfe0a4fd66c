"""What does a processor do with a product? Seven measurements for the chapter on processors, each a part of one record.

    width     the same product by instructions of 4, 8 and 16 lanes (oneDNN limited to them), by MKL, in bfloat16, and by plain Python
    sizes     square products and those of layers, against the operations per byte; speed of copying
    updates   whole updates of three sizes: products by either library, PyTorch's loss in place of ours, bfloat16 with PyTorch's fused
              attention and with ours; memory of the losses
    dropout   whole updates of three sizes with PyTorch's dropout, with four activations to a draw, and without dropout
    memory    whole updates of two sizes in processes of their own, by turns: memory freed as glibc does it, kept, and kept without
              glibc's cache of small blocks, which keeps large ones apart; alone, since a child's peak begins with that of its parent
    shapes    memory (of Linux) of training steps in float32 and in bfloat16: many shapes, many with a smaller cache of oneDNN, eight with the smaller cache
    threads   one program with all cores and two such programs at once, with threads that sleep while they wait and threads that spin

All but `threads` count processor time of one thread, the best or the median of rounds by turns. Still, a machine that does nothing else
is needed: cores share memory, and often multipliers. A part is written into the file beside the parts that it holds already.

    python benchmarks/processors.py --out nbs/results/processors_cpu.json                        # all, some eleven minutes
    python benchmarks/processors.py --parts updates --out nbs/results/processors_cpu.json
"""
import argparse, json, os, platform, re, resource, subprocess, sys, time
from importlib.metadata import version
from pathlib import Path
from statistics import median
os.environ.setdefault('OMP_NUM_THREADS', '1')
import torch
from torch.nn import functional as F
from annotated_transformer.cpu import (
    _BFloat16Attention, _FastDropout, _OneDNNLinear, _OneDNNLinearFunction, _is_onednn_available, _keep_freed_memory, _linear_onednn, _replace_modules,
    choose_matmul_backend, optimize_for_training)
from annotated_transformer.model.attention import MultiHeadAttention
from annotated_transformer.training.optimizer import adam
from annotated_transformer.recipe import get_recipe
from annotated_transformer.model.loss import label_smoothed_loss
from annotated_transformer.model.transformer import Transformer
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / 'experiments'))
from recording import processor_family

def benchmark_gflops(functions, operations, seconds=.5):
    "GFLOP/s of each function in its best trial, by turns, in about `seconds` for each."
    times, n = {name: [] for name in functions}, min(1000, max(1, int(2e8 // operations)))
    for f in functions.values(): f()
    begin, trials = time.process_time(), 0
    while time.process_time() - begin < seconds * len(functions) or trials < 5:
        trials += 1
        for name, f in functions.items():
            start = time.process_time()
            for _ in range(n): f()
            times[name].append((time.process_time() - start) / n)
    return {name: operations / min(t) / 1e9 for name, t in times.items()}

def start_child(*args, **env):
    "Start this program again with other settings; what it prints is JSON."
    return subprocess.Popen([sys.executable, __file__, *map(str, args)], env=os.environ | env,
                            stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

def read_result(process):
    out = process.communicate()[0]
    if process.returncode: sys.exit(f'{process.args} ended with status {process.returncode}')
    return json.loads(out)

# ---------------------------------------------------------------- width
def square_matmuls(n=1024):
    x, y = torch.randn(2, n, n)
    x16, y16 = x.bfloat16(), y.bfloat16()
    return {'MKL': lambda: x @ y, 'oneDNN': lambda: _linear_onednn(x, y), 'bfloat16': lambda: x16 @ y16}

def benchmark_square(only): return benchmark_gflops({k: f for k, f in square_matmuls().items() if k in only.split(',')}, 2 * 1024**3)

def benchmark_python(n=100):
    A, B = torch.randn(2, n, n).tolist()
    columns = list(zip(*B))
    return benchmark_gflops({'Python': lambda: [[sum(map(float.__mul__, row, column)) for column in columns] for row in A]}, 2 * n**3)

def width(rounds):
    lanes = {4: 'SSE41', 8: 'AVX2', 16: 'AVX512_CORE'}
    rates = {n: read_result(start_child('--child', 'width', 'oneDNN', ONEDNN_MAX_CPU_ISA=isa))['oneDNN'] for n, isa in lanes.items()}
    return dict(GFLOP_per_s=benchmark_python() | read_result(start_child('--child', 'width', 'MKL,oneDNN,bfloat16')), lanes=rates)

# ---------------------------------------------------------------- sizes
def sizes(rounds):
    squares, layers = {}, {}
    for n in (8, 16, 32, 64, 128, 256, 512, 1024, 2048):
        x, y = torch.randn(2, n, n)
        squares[n] = benchmark_gflops({'MKL': lambda: x @ y, 'oneDNN': lambda: _linear_onednn(x, y)}, 2 * n**3, .3)         # noqa: B023
    for d_in, d_out in ((128, 128), (128, 256), (128, 10000), (512, 512), (512, 2048), (2048, 512), (512, 37000)):
        x, w, grad = (torch.randn(n, m, requires_grad=g) for n, m, g in ((1024, d_in, True), (d_out, d_in, True), (1024, d_out, False)))
        def both(product): torch.autograd.grad(product(x, w, None), (x, w), grad)                           # noqa: B023
        layers[f'{d_in} → {d_out}'] = benchmark_gflops({'MKL': lambda: both(F.linear), 'oneDNN': lambda: both(_OneDNNLinearFunction.apply)},   # noqa: B023
                                            6 * 1024 * d_in * d_out)
    x, y = torch.randn(2, 2**26)
    copied = benchmark_gflops({'copy': lambda: y.copy_(x)}, 2 * 4 * len(x))['copy']
    return dict(squares=squares, layers=layers, copy_GB_per_s=copied)

# ---------------------------------------------------------------- updates
def plain_loss(logits, target, eps_ls=.1, pad_id=0):
    "What `label_smoothed_loss` computes, by PyTorch."
    total = F.cross_entropy(logits.float().flatten(0, 1), target.flatten(), ignore_index=pad_id, label_smoothing=eps_ls, reduction='sum')
    return total, (target != pad_id).sum()

variants = {"PyTorch's products": dict(), "oneDNN's products": dict(fast=True), "oneDNN's products, PyTorch's loss": dict(fast=True, loss=plain_loss),
            "bfloat16, PyTorch's attention": dict(half=True), 'bfloat16': dict(half=True, attention=True)}

class NoDropout(torch.nn.Dropout):
    def forward(self, x): return x

def copy_with_layers(model, fast=False, cheap=False, drops=True, attention=False, **_):
    "A model of the same weights with the layers of a variant."
    twin = Transformer(model.config)
    for name, p in model.named_parameters(remove_duplicate=False):
        *path, last = name.split('.')
        setattr(twin.get_submodule('.'.join(path)), last, p)
    if fast: _replace_modules(twin, torch.nn.Linear, _OneDNNLinear)
    if attention: _replace_modules(twin, MultiHeadAttention, _BFloat16Attention)
    if cheap: _replace_modules(twin, torch.nn.Dropout, _FastDropout)
    if not drops: _replace_modules(twin, torch.nn.Dropout, lambda _: NoDropout(0.))
    return twin

def mean_loss(model, src, tgt, c, half=False, loss=label_smoothed_loss, **_):
    with torch.autocast('cpu', torch.bfloat16, enabled=half): logits = model(src, tgt[:, :-1])
    total, n = loss(logits, tgt[:, 1:], c.eps_ls)
    return total / n

def run_train_step(model, optimizer, *args, **options):
    mean_loss(model, *args, **options).backward()
    optimizer.step(); optimizer.zero_grad()

def benchmark_recipe(name, tokens, rounds, variants=variants):
    torch.manual_seed(0)
    c, took = get_recipe(name).model, {k: [] for k in variants}
    model = Transformer(c)
    optimizer = adam(model)
    for group in optimizer.param_groups: group['lr'] = 1e-5
    src, tgt = torch.randint(4, c.vocab_size, (2, tokens // 32, 32))
    models = {k: copy_with_layers(model, **options) for k, options in variants.items()}
    with torch.no_grad(): losses = {k: mean_loss(models[k].eval(), src, tgt, c, **options).item() for k, options in variants.items()}
    for m in models.values(): m.train()
    for i in range(-1, rounds):
        for variant, options in variants.items():
            start = time.process_time()
            run_train_step(models[variant], optimizer, src, tgt, c, **options)
            if i >= 0: took[variant].append(time.process_time() - start)
    base = took[next(iter(variants))]
    return dict(tokens=tokens, rounds=rounds, seconds={k: median(t) for k, t in took.items()}, first_loss=losses,
                speed={k: median(b / s for b, s in zip(base, t)) for k, t in took.items()})

def loss_memory(which, n, V):
    "Peak of one loss and its gradient, in units of the logits."
    logits, target = torch.randn(1, n, V), torch.randint(1, V, (1, n))
    logits.requires_grad_()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    torch.autograd.grad((label_smoothed_loss if which == 'ours' else plain_loss)(logits, target)[0], logits)
    unit = 1 if sys.platform == 'darwin' else 1024
    return (resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before) * unit / (4 * n * V)

def updates(rounds):
    # first, since a child's peak begins with that of its parent
    memory = {which: read_result(start_child('--child', 'loss', which, 1024, 37000)) for which in ('ours', 'PyTorch')}
    runs = {name: benchmark_recipe(name, tokens, rounds) for name, tokens, rounds in (('base', 1024, rounds), ('multi30k_tiny', 8192, rounds), ('demo', 2048, 4 * rounds))}
    return dict(recipes=runs, loss_memory=memory, faster_products={str(w): choose_matmul_backend(w) for w in (128, 512)})

# ---------------------------------------------------------------- dropout
def dropout(rounds):
    ways = {"PyTorch's": dict(), 'four from one draw': dict(cheap=True), 'none': dict(drops=False)}
    sizes = ('base', 1024, rounds), ('multi30k_tiny', 8192, 2 * rounds), ('parsing_small', 4096, 2 * rounds)
    found = {name: benchmark_recipe(name, tokens, n, ways) for name, tokens, n in sizes}
    for name, run in found.items(): run.update(P_drop=get_recipe(name).model.P_drop, d_model=get_recipe(name).model.d_model)
    return dict(recipes=found)

# ---------------------------------------------------------------- memory
def step_seconds(name, tokens, n, kept):
    "Median of the updates of one process, after two that warm up, and its peak memory."
    if kept: _keep_freed_memory()
    torch.manual_seed(0)
    c, took = get_recipe(name).model, []
    model = Transformer(c).train()
    optimizer = adam(model)
    for i in range(n + 2):
        width = 20 + 4 * (i % 3)                                   # batches of three shapes
        src, tgt = torch.randint(4, c.vocab_size, (2, tokens // width, width))
        start = time.process_time()
        run_train_step(model, optimizer, src, tgt, c)
        took.append(time.process_time() - start)
    return dict(seconds=median(took[2:]), peak_MB=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == 'darwin' else 1024) / 1e6)

def memory(rounds):
    ways = {'returned': (0, {}), 'kept': (1, {}), 'kept, no small cache': (1, dict(GLIBC_TUNABLES='glibc.malloc.tcache_count=0'))}
    found = {}
    for name, tokens in (('base', 1024), ('multi30k_tiny', 8192)):
        runs = {way: [] for way in ways}
        for _ in range(rounds):
            for way, (kept, env) in ways.items(): runs[way].append(read_result(start_child('--child', 'memory', name, tokens, 5, kept, **env)))
        times, peaks = ({way: [run[key] for run in done] for way, done in runs.items()} for key in ('seconds', 'peak_MB'))
        speed = {way: median(a / b for a, b in zip(times['returned'], t)) for way, t in times.items()}
        found[name] = dict(tokens=tokens, rounds=rounds, seconds=times, peak_MB=peaks, speed=speed)
    return dict(recipes=found)

# ---------------------------------------------------------------- shapes
def memory_of_shapes(num_shapes, steps, dtype, tokens=4096):
    "MB in memory after each quarter of the steps, on batches of `num_shapes` shapes, and the median seconds of the second half."
    torch.manual_seed(0)
    model, took, resident = optimize_for_training(Transformer(get_recipe('multi30k_tiny').model).train()), [], []
    optimizer, V = adam(model), model.config.vocab_size
    for i in range(steps):
        shape = torch.randint(num_shapes, ()).item()
        T = 10 + 24 * shape // num_shapes                           # as long as captions, equally many tokens
        S, B = max(4, T - shape % 4), tokens // T
        start = time.process_time()
        with torch.autocast('cpu', torch.bfloat16, enabled=dtype == 'bfloat16'):
            loss, _ = model.loss(torch.randint(4, V, (B, S)), torch.randint(4, V, (B, T + 1)))
        loss.backward(); optimizer.step(); optimizer.zero_grad()
        took.append(time.process_time() - start)
        if (i + 1) % (steps // 4) == 0:
            resident.append(int(re.search(r'VmRSS:\s+(\d+)', Path('/proc/self/status').read_text())[1]) * 1024 / 1e6)
    return dict(resident_MB=resident, seconds=median(took[steps // 2:]))

def shapes(rounds):
    "For each type: oneDNN's own limit of compiled products, ours, and ours with few shapes."
    ways = {}
    for dtype in ('float32', 'bfloat16'):
        for n, capacity in ((64, 1024), (64, 64), (8, 64)):
            child = start_child('--child', 'shapes', n, 32 * rounds, dtype, ONEDNN_PRIMITIVE_CACHE_CAPACITY=str(capacity))
            ways[f'{dtype}, {n} shapes, {capacity:,} products kept'] = read_result(child)
    return dict(steps=32 * rounds, recipe='multi30k_tiny', ways=ways)

# ---------------------------------------------------------------- threads
def count_steps(seconds):
    "Updates of a small model in a given time, which begins when the parent says so."
    c = get_recipe('multi30k_tiny').model
    torch.manual_seed(0)
    model = Transformer(c).train()
    optimizer = adam(model)
    src, tgt = torch.randint(4, c.vocab_size, (2, 32, 32))
    step = lambda: run_train_step(model, optimizer, src, tgt, c)
    step()
    print('ready', flush=True)
    sys.stdin.readline()
    done, begin, cpu = 0, time.perf_counter(), time.process_time()
    while not done or time.perf_counter() < begin + seconds: step(); done += 1
    return dict(updates=done, cpu=time.process_time() - cpu, seconds=time.perf_counter() - begin)

def threads(rounds):
    seconds = 2 * rounds
    cores = len(os.sched_getaffinity(0)) if hasattr(os, 'sched_getaffinity') else os.cpu_count()
    results = dict(cores=cores)
    for policy in ('spinning', 'sleeping'):
        env = dict(OMP_NUM_THREADS=str(cores), OMP_WAIT_POLICY='active' if policy == 'spinning' else 'passive')
        rates = {}
        for n in (1, 2):
            running = [start_child('--child', 'threads', seconds, **env) for _ in range(n)]
            for process in running: process.stdout.readline()
            for process in running: process.stdin.write('go\n'); process.stdin.flush()
            ran = [read_result(process) for process in running]
            rates[n] = dict(updates_per_s=sum(r['updates'] / r['seconds'] for r in ran), cores_busy=sum(r['cpu'] / r['seconds'] for r in ran))
        results[policy] = dict(alone=rates[1], two=rates[2], together=rates[2]['updates_per_s'] / rates[1]['updates_per_s'])
    return results

child_commands = dict(width=benchmark_square, loss=lambda which, n, V: loss_memory(which, int(n), int(V)),
                memory=lambda name, tokens, n, kept: step_seconds(name, int(tokens), int(n), kept == '1'),
                shapes=lambda n, steps, dtype: memory_of_shapes(int(n), int(steps), dtype), threads=lambda seconds: count_steps(float(seconds)))
parts = dict(width=width, sizes=sizes, updates=updates, dropout=dropout, memory=memory, shapes=shapes, threads=threads)
p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
p.add_argument('--parts', nargs='+', choices=parts, default=list(parts))
p.add_argument('--rounds', type=int, default=5, help='of updates')
p.add_argument('--out', help='the record, a JSON file')
p.add_argument('--child', nargs='+', help=argparse.SUPPRESS)

def main(a):
    if a.child:
        if a.child[0] != 'threads': torch.set_num_threads(1)
        print(json.dumps(child_commands[a.child[0]](*a.child[1:])))
        return
    if not _is_onednn_available(): sys.exit('error: this PyTorch has no oneDNN')
    torch.set_num_threads(1); torch.manual_seed(0)
    out = Path(a.out) if a.out else None
    record = json.loads(out.read_text()) if out and out.exists() else {}
    git = subprocess.run(['git', 'rev-parse', '--short', 'HEAD'], capture_output=True, text=True, cwd=Path(__file__).parent)
    for part in a.parts:
        load = os.getloadavg()[0]
        record[part] = dict(command=' '.join(['python', *sys.argv]), commit=git.stdout.strip(), machine=f'{processor_family()}, {os.cpu_count()} cores',
                            load_before=load, seed=0, versions=dict(torch=version('torch'), python=platform.python_version()), **parts[part](a.rounds))
        print(json.dumps({part: record[part]}, indent=1), flush=True)
        if out: out.write_text(json.dumps(record, indent=1, ensure_ascii=False) + '\n')

if __name__ == '__main__': main(p.parse_args())
