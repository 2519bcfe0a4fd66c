"""How fast are training and decoding on one GPU, and which option gains how much? One command of under nine minutes.

    python benchmarks/gpu.py --output gpu.json --data_dir data/multi30k --run_dir runs/gpu      # all of it
    python benchmarks/gpu.py --parts run --data_dir data/multi30k --run_dir runs/gpu            # resume the training run
    python benchmarks/gpu.py --tiny                                   # the same code on a CPU, small models, no timings to keep

Parts, in this order; each has a share of the time, and what one leaves over is the next one's:

  train      base and big at 25,000 + 25,000 tokens of random ids. Each rung of a ladder adds one option to the fastest rung
             before it and shows the step (median, synchronised), real target tokens/s, MFU, peak memory, and how far the loss
             after the same number of steps is from that of float32. MFU is relative to the card's bfloat16 peak and counts
             padding; tokens/s do not. `few shapes`: every batch has one of 8 shapes (B, T); the three most frequent are timed.
  attention  F.scaled_dot_product_attention at base's shapes, forward and backward: is_causal, a boolean mask, neither.
  decoding   beam search with base, random weights, batch 64, beam 4, as many target tokens as source tokens.
  cells      the cells of the notebooks flagged `#| gpu`, after the cells above them.
  run        transformer_train --recipe multi30k_tiny --resume until SIGTERM; it saves a checkpoint and can be resumed.

The measurements are made in a process of its own, which is replaced if a rung fails or exceeds its time. Each rung is written
to --output when it ends; a rung that does not fit into the time left is recorded as skipped.
"""
import argparse, json, multiprocessing, os, platform, signal, subprocess, sys, time, traceback
from importlib import import_module
from pathlib import Path
# This process imports no PyTorch: no failure on the GPU ends it. gpu_rungs.py has the measurements.

ROOT = Path(__file__).resolve().parents[1]
SHARES = dict(train=.6, attention=.03, decoding=.08, cells=.14, run=.15)
TINY_RUN = dict(N=1, d_model=32, d_ff=64, vocab_size=500, max_tokens=512, max_steps=20, warmup_steps=2, save_every='20 steps', average_checkpoints=1)
MAX_LOSS_DIFFERENCE = .05     # from float32, in nats: a rung beyond it is not built upon
FEW = dict(few_shapes=True, dynamic=False, compile='layers', mode=None)
GRAPHS = FEW | dict(mode='reduce-overhead')
LADDER = [                    # model; rung; what it adds to the fastest before; seconds that it is expected to take
    *((m, name, change, need) for m, slower in (('base', 1), ('big', 2)) for name, change, need in (
        ('float32', {}, 15 * slower), ('TF32', dict(tf32=True), 8 * slower), ('bf16 autocast', dict(bf16=True), 8 * slower),
        ('loss in chunks of 4096', dict(loss_chunk_size=4096), 8 * slower), ('V a multiple of 64', dict(vocab_multiple=64), 8 * slower))),
    ('base', 'loss in chunks of 1024', dict(loss_chunk_size=1024), 8), ('base', 'loss in chunks of 16384', dict(loss_chunk_size=16384), 8),
    *((m, 'layers compiled, dynamic', dict(compile='layers', dynamic=True), 30) for m in ('base', 'big')),
    ('base', 'few shapes, layers compiled', FEW, 45), ('base', 'few shapes, CUDA graphs', GRAPHS, 45),
    ('base', 'model compiled, dynamic', dict(compile='model', dynamic=True, few_shapes=False, mode=None), 90),
    ('big', 'few shapes, layers compiled', FEW, 45), ('big', 'few shapes, CUDA graphs', GRAPHS, 45)]

def serve(pipe):
    "In the worker: answer calls (module, function, arguments) with (True, result) or (False, error) until the other end is closed."
    sys.path[:0] = [str(ROOT), str(ROOT / 'benchmarks')]
    while True:
        try: module, function, args = pipe.recv()
        except EOFError: return
        try: answer = True, getattr(import_module(module), function)(*args)
        except Exception as e: answer = False, f'{type(e).__name__}: {e}\n{traceback.format_exc()}'
        pipe.send(answer)

class Worker:
    "A process that makes measurements, one after another; after a failure or a timeout, a new one."
    process = None

    def send(self, module, function, *args):
        if self.process is not None and not self.process.is_alive(): self.close()
        if self.process is None:
            context = multiprocessing.get_context('spawn')
            self.pipe, end = context.Pipe()
            self.process = context.Process(target=serve, args=(end,), daemon=True)
            self.process.start(); end.close()
        self.pipe.send((module, function, args))

    def receive(self, timeout):
        "The answer to the last call. Raises RuntimeError with its error, TimeoutError."
        try: success, value = self.pipe.recv() if self.pipe.poll(timeout) else (False, None)
        except (EOFError, ConnectionError): self.process.join(3); success, value = False, f'the process died, exit status {self.process.exitcode}'
        if success: return value
        self.close()
        raise TimeoutError(f'stopped after {timeout:.0f} s') if value is None else RuntimeError(value)

    def call(self, timeout, *call):
        self.send(*call)
        return self.receive(timeout)

    def close(self):
        "End the process, by force if it is busy."
        if self.process is None: return
        self.pipe.close(); self.process.join(3); self.process.kill(); self.process.join()
        self.process = None

class Bench:
    "The record of all rungs, in a file, and the time that each part may take."
    def __init__(self, output, minutes, parts=tuple(SHARES), **record):
        self.output, self.record, now, share = Path(output), record | dict(rungs=[]), time.monotonic(), 0
        self.deadlines, self.end = {}, now + 60 * minutes
        for part in parts:
            share += SHARES[part] / sum(SHARES[p] for p in parts)
            self.deadlines[part] = now + 60 * minutes * share

    def time_left(self, part): return self.deadlines[part] - time.monotonic()

    def save(self):
        self.output.parent.mkdir(parents=True, exist_ok=True)
        new = self.output.with_name(self.output.name + '.new')
        new.write_text(json.dumps(self.record, indent=1) + '\n')
        os.replace(new, self.output)

    def rung(self, part, name, need, measure, skip=None, **fields):
        "Call measure(seconds it may take) if `need` seconds are left for the part; record the result, the error or why it was skipped."
        start, left = time.monotonic(), self.time_left(part)
        entry = dict(part=part, name=name, status='skipped', **fields)
        if skip or need > left: entry['reason'] = skip or f'needs about {need:g} s, {max(0, left):.0f} s are left'
        else:
            try: entry |= dict(measure(min(2.5 * need, self.end - start)), status='ok')
            except Exception as e:
                first, *more = (str(e).strip() or type(e).__name__).splitlines()
                entry |= dict(status='failed', error=' '.join([first, *more[:first.endswith(':')]])[:300], details='\n'.join(more)[-2000:])
        entry['seconds'] = round(time.monotonic() - start, 1)
        self.record['rungs'].append(entry)
        self.save(); print(table_row(entry), flush=True)
        return entry

COLUMNS = dict(step_s='step {:8.4f} s', sentences_per_s='{:8,.1f} sentences/s', tokens_per_s='{:>9,.0f} tokens/s', mfu='MFU {:6.2%}', peak_memory_GB='peak {:5.1f} GB',
               loss_difference='loss {:+.4f}', causal_s='causal {:.6f} s', boolean_mask_s='boolean mask {:.6f} s', no_mask_s='no mask {:.6f} s',
               passed='{} passed', steps='{} steps', valid_loss='validation loss {:.3f}', reason='{}', error='{}')

def table_row(entry):
    "One line about a rung."
    values = [form.format(entry[key]) for key, form in COLUMNS.items() if entry.get(key) is not None]
    return f"{entry['part']:10} {entry['name']:34} {entry['status']:7}  {'  '.join(values)}  ({entry['seconds']} s)"

def run_ladder(bench, call, on_cpu):
    "Each rung adds its options to those of the fastest rung before it, if its loss is near that of float32."
    best, first_loss = {}, {}
    for recipe, name, change, need in LADDER:
        options, speed = best.get(recipe, ({}, 0))
        options = options | change
        def measure(limit, recipe=recipe, options=options, speed=speed):
            result = call(limit, 'train', recipe, options)
            difference = result['loss'] - first_loss.setdefault(recipe, result['loss'])
            kept = abs(difference) <= MAX_LOSS_DIFFERENCE and result['tokens_per_s'] > speed
            if kept: best[recipe] = options, result['tokens_per_s']
            return result | dict(loss_difference=difference, kept=kept)
        skip = 'CUDA graphs need a GPU' if options.get('mode') and on_cpu else None
        bench.rung('train', f'{recipe}, {name}', need, measure, skip, options=options)

def run_notebooks(bench, tiny, need=60):
    "All notebooks with a cell flagged `#| gpu` at once, each in a process of its own; with `tiny` only the shortest one."
    paths = sorted((p for p in (ROOT / 'nbs').rglob('*.ipynb') if '"#| gpu\\n"' in p.read_text(encoding='utf-8')), key=lambda p: p.stat().st_size)
    paths, workers, end = paths[:1] if tiny else paths, {}, bench.deadlines['cells']
    def measure(limit, path): return workers[path].receive(max(1, end - time.monotonic()))
    try:
        for path in paths if bench.time_left('cells') >= need else ():
            workers[path] = Worker()
            workers[path].send('gpu_rungs', 'gpu_cells', str(path))
        for path in paths: bench.rung('cells', path.stem, 0 if path in workers else need, lambda limit, path=path: measure(limit, path))
    finally:
        for worker in workers.values(): worker.close()

def train_run(limit, command, run_dir):
    "Train to the end, or until SIGTERM 20 s before the limit. Raises RuntimeError with the last line of a training that fails."
    log = run_dir.with_name(run_dir.name + '.log')
    log.parent.mkdir(parents=True, exist_ok=True)
    with open(log, 'w') as file, subprocess.Popen(command, stdout=file, stderr=file, cwd=ROOT) as process:
        try: process.wait(max(1, limit - 20))
        except subprocess.TimeoutExpired: process.terminate(); process.wait(20)
        finally: process.kill()
    last_line = log.read_text().replace('\r', '\n').strip().rpartition('\n')[2]
    if process.returncode: raise RuntimeError(f'exit status {process.returncode}: {last_line}')
    metrics = [json.loads(line) for line in (run_dir / 'metrics.jsonl').read_text().splitlines()]
    newest = {key: value for row in metrics for key, value in row.items()}
    return dict(steps=newest['step'], last_line=last_line, **{key: newest[key] for key in ('tokens_per_s', 'valid_loss') if key in newest})

def output_of(*command):
    "What a command prints; None if it fails or does not exist."
    try: return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=20, check=True).stdout.strip()
    except (OSError, subprocess.SubprocessError): return None

def main(args):
    device, worker, data_dir, run_dir = args.device or ('cpu' if args.tiny else 'cuda'), Worker(), args.data_dir, args.run_dir.resolve()
    signal.signal(signal.SIGTERM, lambda *_: sys.exit('stopped by SIGTERM'))
    bench = Bench(args.output, args.minutes, args.parts, command=' '.join(['python', *sys.argv]), tiny=args.tiny, python=platform.python_version(),
                  driver=output_of('nvidia-smi', '--query-gpu=driver_version', '--format=csv,noheader'),
                  commit=output_of('git', 'describe', '--always', '--dirty', '--abbrev=40', '--exclude=*'))
    def call(limit, function, *arguments): return worker.call(limit, 'gpu_rungs', function, device, args.tiny, *arguments)
    try:
        try: bench.record = call(180, 'describe_device') | bench.record
        except (RuntimeError, TimeoutError) as e: sys.exit(f'error: {e}; --tiny rehearses without a GPU')
        print(*(f'{key}: {value}' for key, value in bench.record.items() if key != 'rungs'), sep='\n', flush=True)
        if 'train' in args.parts: run_ladder(bench, call, device == 'cpu')
        for T in (32, 64, 256) if 'attention' in args.parts else ():
            bench.rung('attention', f'base, {T} positions', 5, lambda limit, T=T: call(limit, 'attention', T))
        for dtype in ('bfloat16', 'float32') if 'decoding' in args.parts else ():
            bench.rung('decoding', f'base, batch 64, beam 4, {dtype}', 15, lambda limit, dtype=dtype: call(limit, 'decode', dtype))
        worker.close()                                                 # its memory is the notebooks' now
        if 'cells' in args.parts: run_notebooks(bench, args.tiny)
        if 'run' in args.parts:
            words = [word for name, value in TINY_RUN.items() for word in (f'--{name}', str(value))] if args.tiny else []
            command = [sys.executable, '-m', 'annotated_transformer.training', '--recipe', 'multi30k_tiny', '--dataset', 'multi30k', '--resume',
                       '--data_dir', str(data_dir and data_dir.resolve()), '--output_dir', str(run_dir), *words]
            bench.rung('run', 'multi30k_tiny', 45, lambda _: train_run(bench.end - time.monotonic(), command, run_dir), None if data_dir else 'no --data_dir')
    finally: worker.close()
    print('', *map(table_row, bench.record['rungs']), sep='\n')

p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
p.add_argument('--output', default='gpu.json', help='JSON file for the record, rewritten after every rung')
p.add_argument('--minutes', type=float, default=8.5, help='time for all parts together')
p.add_argument('--parts', nargs='+', choices=SHARES, default=list(SHARES), help='only these')
p.add_argument('--data_dir', type=Path, help='folder of Multi30k, task 1, for the training run; without it there is none')
p.add_argument('--run_dir', type=Path, default=Path('runs/gpu'), help='directory of the training run; an earlier one is resumed')
p.add_argument('--tiny', action='store_true', help='rehearse on a CPU: one layer, few tokens, one or two steps a rung, one notebook')
p.add_argument('--device', choices=['cuda', 'cpu'], help='cuda, or with --tiny cpu')

if __name__ == '__main__': main(p.parse_args())
