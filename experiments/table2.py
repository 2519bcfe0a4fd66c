"""Table 2 in miniature, trained to convergence: recurrent networks, ByteNet, ConvS2S and the Transformer on the captions of Multi30k.

All have about four million parameters, the same tokens in the same batches, the same loop and the same search. Peak of the learning
rate, dropout and warm-up are chosen for each system on the validation captions, from the same values, by eight runs of seed 100:
the rate after TUNE_START epochs, then dropout and warm-up by runs of TUNE epochs. Then each is trained with SEEDS seeds until its validation
loss has not fallen for four epochs, at most EPOCHS. The mean of the last five checkpoints translates test_2016_flickr with beam 4
and α 0.6; every fourth epoch the validation captions are translated greedily, so that quality can be read at any cost.
The cost of a step is counted, and measured on one thread of this machine.

Predicted before any of these runs, BLEU at convergence: RNN 28, RNN + attention 35, ByteNet 33, ConvS2S 38, post-norm Transformer 38,
pre-norm Transformer 39. The paper's claim has two parts: at convergence the Transformer (of the two norms the one with the lower loss in
tuning) is ahead of the best other system (by the loss in tuning) on the test captions, and at equal training FLOPs, those of the
system that has spent less at its end, it is ahead by greedy BLEU on the validation captions. Half a BLEU is the smallest difference
that matters, five seeds, paired. Predicted: confirmed at convergence, undecided at equal FLOPs, where ConvS2S learns faster at first.

    python experiments/table2.py --data data/multi30k --out nbs/results/table2.json      # --workers 12 shares one GPU

Each run is written down when it ends: interrupted, the same command goes on, and on another machine it goes on from the record at
--out, whose runs are not made again. With --minutes no run begins after that time; the record says which are missing.
"""
import argparse, gc, json, multiprocessing, os, shutil, sys, time
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from functools import partial
from pathlib import Path
from statistics import median
import torch
from torch import nn
from annotated_transformer.analysis.table_2 import _count_step_flops, bleu_by_length
from annotated_transformer.data.moses import moses_lc
from annotated_transformer.data.preprocessing import load_batches
from annotated_transformer.inference.evaluation import eval_bleu, evaluate, load_test_split
from annotated_transformer.inference.translator import Translator
from annotated_transformer.model.loss import label_smoothed_loss
from annotated_transformer.model.seq2seq import build_model
from annotated_transformer.recipe import get_recipe
from annotated_transformer.run_directory import RunDirectory
from annotated_transformer.training.distributed import _exit_if_parent_dies
from annotated_transformer.training.optimizer import adam
from annotated_transformer.training.trainer import train
from annotated_transformer.utils.plotting import n_parameters
from annotated_transformer.utils.validation import NonFiniteError
from recording import ResultCache, provenance

SYSTEMS = {          # recipe, and the width that gives about four million parameters
    'RNN + attention': ('rnn_attention_tiny', {}), 'RNN': ('rnn_tiny', {}), 'ByteNet': ('bytenet_tiny', dict(d_model=208)), 'ConvS2S': ('convs2s_tiny', {}),
    'post-norm Transformer': ('transformer_tiny', dict(d_model=192, d_ff=768)), 'pre-norm Transformer': ('transformer_tiny', dict(d_model=192, d_ff=768, norm='pre'))}
RATES, DROPOUTS, WARMUPS = (1e-3, 3e-3, 1e-2, 3e-2), (.1, .2, .3), (400, 1600)
TUNING_SEED, TUNE_START, TUNE, EPOCHS, SEEDS = 100, 5, 15, 32, 5      # epochs
LENGTH_BIN_EDGES = [0, 9, 11, 13, 16, 100]          # words of the source
CORPUS = 'multi30k', 'en', 'de'

def recipe_of(system, **changes):
    name, width = SYSTEMS[system]
    common = dict(max_tokens=4096, save_every='1 epoch', average_checkpoints=5, early_stopping_patience=4, tf32=True, max_steps=100_000)
    return get_recipe(name, **common | width | changes)

def steps_of_epoch(run, recipe): return len(load_batches(RunDirectory(run).data / 'train', recipe.data.max_tokens, 0, 0))

def every_fourth(steps_per_epoch, n_sentences, model, run_dir, step):
    "Callback of the training: BLEU of the validation captions, greedily, every fourth epoch."
    return eval_bleu(n_sentences, model, run_dir, step) if step // steps_per_epoch % 4 == 0 else {}

def run_one(a, system, epochs, seed, final, **changes):
    "Train once, in a worker; what there is to say of the run. A final run is scored, too."
    run = a.runs / (f'{system} {epochs} epochs seed {seed} ' + ' '.join(f'{k} {v:g}' for k, v in changes.items()) + ' final' * final)
    per_epoch = steps_of_epoch(a.runs / f'prepared {system}', recipe_of(system))
    recipe = recipe_of(system, seed=seed, max_steps=4 if a.tiny else epochs * per_epoch, **changes)
    start, n_sentences = time.time(), 20 if a.tiny else 1014
    try: train(recipe, CORPUS, run, a.data, resume=True, callback=partial(every_fourth, per_epoch, n_sentences) if final else None)
    except NonFiniteError as e: return dict(changes, seed=seed, diverged=str(e), valid_loss=float('inf'), curve=[])
    metrics = RunDirectory(run).metrics()
    curve = [(m['step'], m['valid_loss']) for m in metrics if 'valid_loss' in m]
    found = dict(changes, seed=seed, steps=curve[-1][0], valid_loss=min(loss for _, loss in curve), curve=curve, stopped_early=curve[-1][0] < recipe.schedule.max_steps,
                 device=torch.cuda.get_device_name() if torch.cuda.is_available() else 'cpu', torch=torch.__version__)
    if final:
        sources, references = (side[:n_sentences] for side in load_test_split(run))
        translator = Translator.from_pretrained(run)
        scores, written = evaluate(translator, sources, references)
        tokens = moses_lc(written, 'de'), moses_lc(references, 'de')
        found |= {k: v for k, v in scores.items() if k != 'sentences/s'} | dict(
            bleu_curve=[(m['step'], m['valid_bleu']) for m in metrics if 'valid_bleu' in m],
            by_length=bleu_by_length(sources, *tokens, LENGTH_BIN_EDGES), samples=[*zip(sources, references, written)][:3])
    shutil.rmtree(run); gc.collect()
    return found | dict(minutes=(time.time() - start) / 60)

def step_costs(a, device, rounds):
    "Arithmetic and time of a step of every system, on the same batches, in turns."
    data = load_batches(a.runs / 'prepared pre-norm Transformer/data/train', 4096, 0, 0)
    batches = [tuple(t.to(device) for t in data[i]) for i in range(rounds + 1)]
    torch.manual_seed(0)
    models = {s: build_model((r := recipe_of(s)).architecture, r.model).to(device).train() for s in SYSTEMS}
    optimizers = {s: adam(model) for s, model in models.items()}
    torch.backends.cuda.matmul.allow_tf32 = True
    clock = time.process_time if device == 'cpu' else lambda: (torch.cuda.synchronize(), time.perf_counter())[1]
    found = {s: dict(parameters=n_parameters(model), seconds=[]) for s, model in models.items()}
    if device == 'cpu':
        for s, model in models.items(): found[s]['flops'] = sum(_count_step_flops(model, *b) for b in batches) / len(batches)
    for i, (src, tgt) in enumerate(batches):
        for s, model in models.items():
            start = clock()
            loss, n = label_smoothed_loss(model(src, tgt[:, :-1]), tgt[:, 1:], .1)
            (loss / n).backward()
            nn.utils.clip_grad_norm_(model.parameters(), 1.)
            optimizers[s].step(); optimizers[s].zero_grad()
            if i: found[s]['seconds'].append(clock() - start)                   # the first warms up
    return {s: f | dict(seconds=median(f['seconds']), device=device if device == 'cpu' else torch.cuda.get_device_name()) for s, f in found.items()}

def prepare(a):
    "One step of every system, so that all runs find the text prepared."
    for s in SYSTEMS:
        if not (run := a.runs / f'prepared {s}').exists(): train(recipe_of(s, max_steps=2, warmup_steps=1), CORPUS, run, a.data)

def name_of(system, epochs, job, final):
    return f'{system}, {epochs} epochs, ' + ', '.join(f'{k} {job[k]:g}' for k in ('peak_lr', 'P_drop', 'warmup_steps', 'seed')) + ', final' * final

def continue_from(record, settings, cache):
    "Write down the runs of an earlier record, as if they had been made here."
    if changed := [k for k, v in settings.items() if record.get(k) != v]:
        sys.exit(f'error: --out: that record was made with {changed[0]}={record.get(changed[0])}, this command with {settings[changed[0]]}: choose another file')
    for system, found in record['systems'].items():
        epochs = [TUNE_START] * len(RATES) + [TUNE] * (len(found['tried']) - len(RATES)) + [EPOCHS] * len(found['runs'])
        for n, run in zip(epochs, found['tried'] + found['runs']):
            cache.get_or_compute(name_of(system, n, run, n == EPOCHS), lambda run=run: run, quiet=True)

class Schedule:
    "All runs of a system, in order, on shared workers."
    def __init__(self, a, cache, pool):
        self.a, self.cache, self.pool, self.end = a, cache, pool, time.time() + 60 * a.minutes
        self.threads = ThreadPoolExecutor(a.workers)           # a run is asked for when a worker is free, so that `end` holds for its beginning

    def results(self, system, jobs, epochs, final=False):
        "The results of runs side by side; None for one that had no time to begin."
        def one(job):
            name = name_of(system, epochs, job, final)
            if not self.cache.has(name) and time.time() > self.end: return
            return self.cache.get_or_compute(name, lambda: self.pool.submit(run_one, self.a, system, epochs, final=final, **job).result())
        return [*self.threads.map(one, jobs)]

    def tune(self, system):
        "Rate, then dropout and warm-up: the runs, and the best settings; None where time was too short."
        pick = lambda runs, key: min(runs, key=lambda r: r['valid_loss'])[key]
        base = dict(seed=TUNING_SEED, P_drop=DROPOUTS[1], warmup_steps=WARMUPS[0])
        if None in (starts := self.results(system, [base | dict(peak_lr=rate) for rate in RATES], TUNE_START)): return
        base |= dict(peak_lr=pick(starts, 'peak_lr'))
        *drops, longer = full = self.results(system, [base | dict(P_drop=p) for p in DROPOUTS] + [base | dict(warmup_steps=WARMUPS[1])], TUNE)
        if None in full: return
        return starts + full, dict(peak_lr=base['peak_lr'], P_drop=pick(drops, 'P_drop'), warmup_steps=pick([drops[1], longer], 'warmup_steps'))

    def system(self, system):
        if not (tuned := self.tune(system)): return
        runs = self.results(system, [tuned[1] | dict(seed=seed) for seed in range(1 if self.a.tiny else SEEDS)], EPOCHS, final=True)
        return dict(tried=tuned[0], best=tuned[1], runs=[r for r in runs if r])

    def run(self, systems=SYSTEMS):
        with ThreadPoolExecutor(len(SYSTEMS)) as threads: found = dict(zip(systems, threads.map(self.system, systems)))
        return {s: f for s, f in found.items() if f}

def start_worker():
    torch.set_num_threads(1)
    sys.stderr = open(os.devnull, 'w')                             # progress bars of all workers
    _exit_if_parent_dies()

def main(a):
    torch.set_num_threads(1)
    prepare(a)
    settings = dict(rates=RATES, dropouts=DROPOUTS, warmups=WARMUPS, tune_start=TUNE_START, tune=TUNE, epochs=EPOCHS, tiny=a.tiny)
    cache = ResultCache(a.runs / 'parts', json.loads(json.dumps(settings)))
    if a.costs: return print({s: f'{c["seconds"]:.4f} s' for s, c in cache.get_or_compute(f'cost {a.costs}', lambda: step_costs(a, a.costs, 2 if a.tiny else 20)).items()})
    if a.out and a.out.exists(): continue_from(json.loads(a.out.read_text()), json.loads(json.dumps(settings)), cache)
    with ProcessPoolExecutor(a.workers, multiprocessing.get_context('spawn'), start_worker) as pool:
        schedule = Schedule(a, cache, pool)
        schedule.run(a.systems)
        schedule.end = 0                                      # the record is of all systems: what there is
        found = schedule.run()
    missing = {s: SEEDS - len(found[s]['runs']) if s in found else SEEDS for s in SYSTEMS}
    for s, f in found.items(): print(f'{s:<22}', f['best'], ', '.join(f"{r['lower-cased tokenised BLEU']:.2f}" for r in f['runs'] if 'diverged' not in r))
    if any(missing.values()): print('runs that are missing:', missing)
    if not a.out: return
    costs = {d: cache.get_or_compute(f'cost {d}', lambda: step_costs(a, 'cpu', 20)) for d in ('cpu', 'cuda') if d == 'cpu' or cache.has('cost cuda')}
    record = provenance('torch', 'accelerate', 'sentencepiece', 'sacrebleu', 'sacremoses') | dict(
        corpus='_'.join(CORPUS), edges=LENGTH_BIN_EDGES, missing=missing, costs=costs, systems=found) | settings
    a.out.write_text(json.dumps(record, indent=1, ensure_ascii=False) + '\n')

p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
p.add_argument('--data', required=True, help='folder of Multi30k')
p.add_argument('--runs', type=Path, default=Path('runs/table2'), help='folder of the runs')
p.add_argument('--systems', nargs='+', choices=SYSTEMS, default=[*SYSTEMS], metavar='SYSTEM', help=f"systems to train: {', '.join(SYSTEMS)}")
p.add_argument('--workers', type=int, default=2, help='runs at a time')
p.add_argument('--minutes', type=float, default=1e6, help='begin no run after this time')
p.add_argument('--costs', choices=['cpu', 'cuda'], help='measure only the time of a step, there')
p.add_argument('--out', type=Path, help='the record, a JSON file')
p.add_argument('--tiny', action='store_true', help='a trial: four steps, one seed, nothing to keep')
if __name__ == '__main__': main(p.parse_args())
