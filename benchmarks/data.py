"""Does the data side hold at the size of WMT? A million generated pairs, read, cut into pieces, stored and planned.

The pairs are English and German number names in two text files. One process prepares them as training does, up to the
first batch; a second one starts from what the first has stored. Memory is that of a process and its workers together:
anonymous memory, pages they share counted once, and, as `ru_maxrss`, the largest process with all file pages it has mapped.
Padding and balance are those of the plan: the padded share of all cells, and how much the longest of 8 shares of a batch
exceeds the mean share.

    python benchmarks/data.py --multi30k data/multi30k --out nbs/results/data_cpu.json
    python benchmarks/data.py --pairs 10000                # a short one
"""
import argparse, json, os, platform, resource, subprocess, sys, tempfile, threading, time
from importlib.metadata import version
from multiprocessing import Pool
from pathlib import Path
import datasets, numpy as np, psutil
from annotated_transformer.training import run_setup as runs
from annotated_transformer.data import preprocessing as preparation
from annotated_transformer.data.batching import Batches, make_batches
from annotated_transformer.data.number_names import number_speller, seeded_shuffle
from annotated_transformer.recipe import get_recipe
from annotated_transformer.run_directory import RunDirectory

def write_pairs(folder, n):
    "Two files with the names of the first n numbers in a fixed random order."
    numbers = seeded_shuffle(range(1_000_000), 0)[:n]
    for lang in ('en', 'de'):
        with Pool() as pool, open(folder / f'train.{lang}', 'w') as f:
            for name in pool.imap(number_speller(lang), numbers, 10_000): f.write(name + '\n')

def time_calls(owner, name, stage, seconds):
    "From now on calls of owner.name add their wall-clock seconds to seconds[stage]."
    function = getattr(owner, name)
    def wrapper(*args, **options):
        begin = time.perf_counter()
        try: return function(*args, **options)
        finally: seconds[stage] = seconds.get(stage, 0) + time.perf_counter() - begin
    setattr(owner, name, wrapper)

def batch_statistics(src_len, tgt_len, max_tokens):
    "Padding and balance of one epoch's plan."
    batches, real = make_batches(src_len, tgt_len, max_tokens), src_len + tgt_len
    cells = sum(len(b) * int(src_len[b].max() + tgt_len[b].max()) for b in batches)
    loads = [np.array([real[b[i::8]].sum() for i in range(8)]) for b in batches]
    return dict(batches=len(batches), padding=1 - int(real.sum()) / cells, imbalance=float(np.mean([x.max() / x.mean() - 1 for x in loads])))

def child_main(corpus, data_dir, run_dir, recipe, changes, look, started):
    "What one process does: prepare a run, plan it, read its first batch; with `look`, judge the plan. Prints one line of JSON."
    seconds, imported = {}, time.time() - float(started)
    for owner, name, stage in ((runs, '_dataset_hash', 'fingerprint'), (preparation, 'load_corpus', 'read and split'), (preparation, '_train_tokenizer', 'learn pieces'),
                               (preparation, 'tokenize_dataset', 'cut into pieces'), (datasets.Dataset, 'save_to_disk', 'store')): time_calls(owner, name, stage, seconds)
    run_dir, begin, cpu = Path(run_dir), time.perf_counter(), sum(os.times()[:4])
    run_dir.mkdir(parents=True)
    runs._create_run(RunDirectory(run_dir), get_recipe(recipe, **changes), corpus, data_dir)
    pairs, prepared = datasets.load_from_disk(run_dir / 'data' / 'train'), time.perf_counter()
    batches, planned = Batches(pairs, 4096), time.perf_counter()
    batches[0]
    seconds |= {'plan': planned - prepared, 'first batch': time.perf_counter() - planned, 'all': time.perf_counter() - begin}
    maxrss = max(resource.getrusage(who).ru_maxrss for who in (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN)) / 1024
    result = dict(pairs=len(pairs), import_s=imported, seconds=seconds, cpu_seconds=sum(os.times()[:4]) - cpu, ru_maxrss_MB=maxrss)
    if look == 'look':
        src, tgt = (pairs.data[name].to_numpy() for name in ('n_src', 'n_tgt'))
        result['plan'] = {m: batch_statistics(src, tgt - 1, m) for m in (4096, 25_000)}
    print(json.dumps(result), flush=True)

def anonymous_mb(pid):
    "Anonymous memory of a process and its descendants."
    total = 0
    for p in [psutil.Process(pid), *psutil.Process(pid).children(recursive=True)]:
        try: total += sum(int(line.split()[1]) for line in open(f'/proc/{p.pid}/smaps_rollup') if line.startswith('Pss_Anon'))
        except OSError: pass                                   # it has just ended
    return total / 1024

def run_child(*args):
    "Start `child_main` and watch its memory."
    child = subprocess.Popen([sys.executable, __file__, '--process', json.dumps([*(a if isinstance(a, (dict, tuple)) else str(a) for a in args), str(time.time())])], stdout=subprocess.PIPE, text=True)
    lines, peak = [], 0.
    reader = threading.Thread(target=lambda: lines.extend(child.stdout))
    reader.start()
    while reader.is_alive():
        try: peak = max(peak, anonymous_mb(child.pid))
        except psutil.NoSuchProcess: pass
        reader.join(.1)
    if child.wait(): sys.exit(f'failed: {args}')
    return json.loads(lines[-1]) | dict(anonymous_MB=peak)

def benchmark_corpus(name, data_dir, folder, recipe, changes):
    "A first and a second process on one corpus."
    first = run_child(name, data_dir, folder / 'first', recipe, changes, 'no')
    second = run_child(name, data_dir, folder / 'second', recipe, changes, 'no')
    look = run_child(name, data_dir, folder / 'third', recipe, changes, 'look')
    s = first['seconds']
    print(f"{first['pairs']:,} pairs: " + ', '.join(f'{k} {v:.1f} s' for k, v in s.items()) + f"; {first['pairs'] / s['all']:,.0f} pairs/s, {first['pairs'] / first['cpu_seconds']:,.0f} per second of one core")
    print(f"  anonymous memory {first['anonymous_MB']:,.0f} MB, second {second['anonymous_MB']:,.0f} MB; the second run's first batch after {second['seconds']['all']:.2f} s")
    for m, q in look['plan'].items(): print(f"  {int(m):>6,} tokens: {q['batches']:,} batches, {q['padding']:.2%} padding, {q['imbalance']:.2%} imbalance")
    return dict(first=first, second=second, plan=look['plan'], pairs_per_s={k: first['pairs'] / v for k, v in s.items()})

def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument('--pairs', type=int, nargs='+', default=[250_000, 1_000_000], help='sizes of the generated corpus, up to 1000000')
    p.add_argument('--vocab', type=int, default=200, help='pieces of the generated corpus')
    p.add_argument('--multi30k', help='folder of Multi30k, to look at its plan, too')
    p.add_argument('--out', help='write the results to this JSON file')
    p.add_argument('--process', help=argparse.SUPPRESS)
    a = p.parse_args()
    if a.process: return child_main(*json.loads(a.process))
    results = dict(command=' '.join(['python', *sys.argv]), machine=f'{platform.machine()}, {os.cpu_count()} cores', load_before=os.getloadavg()[0], python=platform.python_version(),
                   versions={name: version(name) for name in ('annotated_transformer', 'datasets', 'pyarrow', 'sentencepiece', 'numpy')})
    with tempfile.TemporaryDirectory() as folder:
        folder = Path(folder)
        for n in a.pairs:
            (folder / str(n) / 'text').mkdir(parents=True)
            write_pairs(folder / str(n) / 'text', n)
            results[f'{n} pairs'] = benchmark_corpus(('text', 'en', 'de'), folder / str(n) / 'text', folder / str(n), 'demo', dict(vocab_size=a.vocab))
        if a.multi30k:
            for text in ('raw', 'moses_lc'):
                print(f'Multi30k, {text}')
                results[f'multi30k, {text}'] = benchmark_corpus('multi30k', a.multi30k, folder / text, 'multi30k_tiny', dict(preprocessing=text))
    if a.out: Path(a.out).write_text(json.dumps(results, indent=1) + '\n')

if __name__ == '__main__': main()
