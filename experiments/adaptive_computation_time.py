"""Section 2h: adaptive computation time on parity, against plain repetition (Graves 2016; Fojo et al. 2018).

Vectors of 16 and of 32 numbers. Networks that read a vector one to four times, networks that decide how often, at six prices of a step,
and networks that mix the states of two steps in fixed shares; the same updates for all, five seeds, two learning rates. Right answers and inner steps on new vectors are written down, in all and by how many of the
numbers are not zero. What is done is kept, run by run; an interrupted command goes on, and several processes may share the work by --only and --seeds.

    python experiments/adaptive_computation_time.py --out nbs/results/adaptive_computation_time.json
"""
import argparse, json, time
from functools import partial
from pathlib import Path
from statistics import mean
import torch
from annotated_transformer.background.adaptive_computation_time import (
    ACTCell, _ParityNetwork, RepeatRNNCell, make_parity, _evaluate_parity, _parity_loss)
from annotated_transformer.data.number_names import train_toy
from recording import ResultCache, provenance

UPDATES, LEARNING_RATES = {16: 2000, 32: 8000}, (3e-3, 1e-2)      # size → updates of 128 vectors; the highest rate of a run
SETTINGS = dict(repeated=(1, 2, 3, 4), adaptive=(.1, .03, .01, .003, .001, .0003), mixed=(1.,))      # ρ; τ; the bias of a frozen halting unit

p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
p.add_argument('--only', nargs='+', type=int, default=list(UPDATES), choices=UPDATES, metavar='SIZE', help='sizes to work at: 16, 32')
p.add_argument('--seeds', type=int, nargs='+', default=[*range(5)])
p.add_argument('--share', type=float, default=1., help='share of the updates, for a trial')
p.add_argument('--runs', type=Path, default=Path('runs/adaptive_computation_time'), help='folder of what is done')
p.add_argument('--out', type=Path, help='the record, a JSON file')

def make_cell(size, kind, value):
    "Inner steps: so many; as many as it decides; two, whose states are mixed in fixed shares."
    if kind == 'repeated': return RepeatRNNCell(size, 128, value)
    return ACTCell(size, 128) if kind == 'adaptive' else ACTCell(size, 128, halting_bias=value, freeze_halting=True)

def train_and_evaluate(size, kind, value, rate, seed, share):
    "One network, trained and judged."
    start = time.time()
    torch.manual_seed(seed)
    model = _ParityNetwork(make_cell(size, kind, value))
    loss = partial(_parity_loss, tau=value if kind == 'adaptive' else 0.)
    losses = train_toy(model, partial(make_parity, size, 128), max(20, round(UPDATES[size] * share)), rate, loss)
    return _evaluate_parity(model, size, 500 * size) | dict(seed=seed, loss=mean(losses[-len(losses) // 20:]), minutes=(time.time() - start) / 60)

def main(a):
    torch.set_num_threads(1)
    once, sizes = ResultCache(a.runs / 'parts', str(a.share)).get_or_compute, {}
    for size in a.only:
        for rate in LEARNING_RATES:
            found = sizes.setdefault(str(size), {}).setdefault(str(rate), {kind: {} for kind in SETTINGS})
            for kind, values in SETTINGS.items():
                for value in values:
                    found[kind][str(value)] = [once(f'{size}_{rate}_{kind}_{value}_{seed}', lambda: train_and_evaluate(size, kind, value, rate, seed, a.share)) for seed in a.seeds]
    for size, rates in sizes.items():
        for rate, kinds in rates.items():
            for kind, settings in kinds.items():
                for value, runs in settings.items():
                    print(f'{size} numbers, rate {rate}, {kind} {value:<6}: right', *(f'{run["right"]:.3f}' for run in runs), 'steps', *(f'{run["steps"]:.2f}' for run in runs))
    if {*a.only} < {*UPDATES} or not a.out: return
    a.out.write_text(json.dumps(provenance('torch') | dict(state=128, batch=128, updates=UPDATES, sizes=sizes), indent=1) + '\n')

if __name__ == '__main__': main(p.parse_args())
