"""Section 2g: copying with a memory that is written, beside an LSTM (Graves et al. 2014).

Sequences of 1 to 20 vectors of eight bits. Machines with both ways of addressing, with content alone and with location alone, each with 128 places,
and the paper's rival, three layers of LSTM; the same updates for all, five seeds. Wrong bits in new sequences of up to 120 vectors, length by length and
place by place, the loss on the way, how sharp the reading head is, and where both heads are in two sequences are written down. What is done is kept, run by run; an interrupted command
goes on, and several processes may share the work by --only and --seeds. The record is written when all arms are there.

    python experiments/neural_turing_machine.py --out nbs/results/neural_turing_machine.json
"""
import argparse, json, time
from functools import partial
from pathlib import Path
from statistics import mean
import torch
from annotated_transformer.background.neural_turing_machine import (
    _CopyLSTM, NeuralTuringMachine, _copy_loss, make_copy_task, _evaluate_copy)
from annotated_transformer.utils.plotting import n_parameters
from annotated_transformer.data.number_names import train_toy
from recording import ResultCache, provenance

BITS, MAX_LENGTH, BATCH, UPDATES = 8, 20, 16, 4000
TEST_LENGTHS, PLOT_LENGTH = (10, 20, 30, 50, 80, 120), 20
ARMS = {'machine': {}, 'content alone': dict(shifts=0), 'location alone': dict(content=False), 'LSTM': {}}
LEARNING_RATES = {'machine': 2e-3, 'content alone': 2e-3, 'location alone': 2e-3, 'LSTM': 1e-3}      # at their highest, from short trials

p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
p.add_argument('--only', nargs='+', default=list(ARMS), choices=ARMS, metavar='ARM', help=f'arms to work at: {", ".join(ARMS)}')
p.add_argument('--seeds', type=int, nargs='+', default=[*range(5)])
p.add_argument('--share', type=float, default=1., help='share of the updates, for a trial')
p.add_argument('--rate', type=float, help='another learning rate for all, for a trial')
p.add_argument('--runs', type=Path, default=Path('runs/neural_turing_machine'), help='folder of what is done')
p.add_argument('--out', type=Path, help='the record, a JSON file')

def head_positions(model, seed):
    "Where each head is, step by step, in a sequence of the longest; for the first seed all weights in a shorter one too, at the places that are used."
    def weights(n):
        x, _ = make_copy_task(BITS, n, 1, n=n, generator=torch.Generator().manual_seed(99))
        with torch.no_grad(): model(x)
        return model.weights[0, 0]                                    # (T, 2, N)
    found = dict(path=weights(TEST_LENGTHS[-1]).argmax(-1).T.tolist())
    if seed: return found
    w = weights(PLOT_LENGTH)
    used = (w.amax((0, 1)) > .05).nonzero()[:, 0].tolist()
    return found | dict(places=used, weights=[[[round(v, 2) for v in head] for head in now] for now in w[..., used].tolist()])

def train_and_evaluate(arm, rate, seed, share):
    "One network, trained and judged."
    start, worked = time.time(), time.process_time()
    torch.manual_seed(seed)
    model = _CopyLSTM(BITS + 2, BITS) if arm == 'LSTM' else NeuralTuringMachine(BITS + 2, BITS, **ARMS[arm])
    losses = train_toy(model, partial(make_copy_task, BITS, MAX_LENGTH, BATCH), max(20, round(UPDATES * share)), rate, _copy_loss)
    part = max(1, len(losses) // 100)
    curve = [mean(losses[i:i + part]) for i in range(0, len(losses), part)]
    wrong, focus = {}, {}
    for n in TEST_LENGTHS:
        wrong[n] = _evaluate_copy(model, BITS, n)[0]
        if arm != 'LSTM': focus[n] = model.weights[0, :, n + 1:, 1].amax(-1).mean().item()    # of the reading head, from the second mark on
    found = dict(seed=seed, rate=rate, parameters=n_parameters(model), loss=mean(losses[-len(losses) // 20:]), curve=curve,
                 wrong={n: v.sum().item() for n, v in wrong.items()}, by_place=[round(v, 3) for v in wrong[TEST_LENGTHS[-1]].tolist()])
    if arm != 'LSTM': found |= dict(focus=focus, heads=head_positions(model, seed))
    return found | dict(minutes=(time.time() - start) / 60, cpu_minutes=(time.process_time() - worked) / 60)

def main(a):
    torch.set_num_threads(1)
    once = ResultCache(a.runs / 'parts', f'{a.share} {a.rate}').get_or_compute
    arms = {arm: [once(f'{arm}_{seed}'.replace(' ', '-'), lambda: train_and_evaluate(arm, a.rate or LEARNING_RATES[arm], seed, a.share)) for seed in a.seeds] for arm in a.only}
    for arm, runs in arms.items():
        for run in runs:
            print(f'{arm} {run["seed"]}: loss {run["loss"]:.4f}, wrong bits', ', '.join(f'{v:.1f} of {BITS * int(n)}' for n, v in run['wrong'].items()))
    if {*a.only} < {*ARMS} or not a.out: return
    a.out.write_text(json.dumps(provenance('torch') | dict(bits=BITS, longest=MAX_LENGTH, batch=BATCH, updates=UPDATES, lengths=TEST_LENGTHS, arms=arms), indent=1) + '\n')

if __name__ == '__main__': main(p.parse_args())
