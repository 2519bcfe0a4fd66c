"""Section 2f: end-to-end memory networks on the bAbI tasks, the nine columns learned end to end in Table 1 of Sukhbaatar et al. 2015.

For every task, or all together, ten networks with other beginnings are trained side by side on nine tenths of the questions, and the one
that is wrong least often on what it learned from (of several, the one with the lower loss) is scored, as in the paper. Stories are never divided between training and validation. What is done is
written down, task by task; an interrupted command goes on. Several processes may share the work by --only; a record holds the columns
that were asked for.

    python experiments/memory_networks.py --data data/babi --out nbs/results/memory_networks.json
"""
import argparse, json, time
from pathlib import Path
from statistics import mean
import torch
from annotated_transformer.background.memory_network import (
    MemoryNetwork, _train_memory_network, _evaluate_memory_network, read_babi, _encode_stories, _build_vocab)
from recording import ResultCache, provenance

COLUMNS = {   # hops, places, linear start, noise, tying; the joint ones learn all tasks together
    'bag of words': (3, False, False, False, 'adjacent'), 'places': (3, True, False, False, 'adjacent'),
    'places, linear start': (3, True, True, False, 'adjacent'), 'places, linear start, noise': (3, True, True, True, 'adjacent'),
    'joint, 1 hop': (1, True, True, False, 'adjacent'), 'joint, 2 hops': (2, True, True, False, 'adjacent'), 'joint, 3 hops': (3, True, True, False, 'adjacent'),
    'joint, 3 hops, noise': (3, True, True, True, 'adjacent'), 'joint, 3 hops, layers': (3, True, True, False, 'layers')}
# Table 1 of the paper, in per cent, task → error
PAPER_ERRORS = dict(zip(COLUMNS, (dict(enumerate(map(float, column.split()), 1)) for column in (
    '.6 17.6 71 32 18.3 8.7 23.5 11.4 21.1 22.8 4.1 .3 10.5 1.3 24.3 52 45.4 48.1 89.7 .1', '.1 21.6 64.2 3.8 14.1 7.9 21.6 12.6 23.3 17.4 4.3 .3 9.9 1.8 0 52.1 50.1 13.6 87.4 .1',
    '.2 12.8 58.8 11.6 15.7 8.7 20.3 12.7 17 18.6 0 .1 .3 2 0 1.6 49 10.1 85.6 0', '0 8.3 40.3 2.8 13.1 7.6 17.3 10 13.2 15.1 .9 .2 .4 1.7 0 1.3 51 11.1 82.8 0',
    '.8 62 76.9 22.8 11 7.2 15.9 13.2 5.1 10.6 8.4 .4 6.3 36.9 46.4 47.4 44.4 9.6 90.7 0', '0 15.6 31.6 2.2 13.4 2.3 25.4 11.7 2 5 1.2 0 .2 8.1 .5 51.3 41.2 10.3 89.9 .1',
    '.1 14 33.1 5.7 14.8 3.3 17.9 10.1 3.1 6.6 .9 .3 1.4 8.2 0 3.5 44.5 9.2 90.2 0', '0 11.4 21.9 13.4 14.4 2.8 18.3 9.3 1.9 6.5 .3 .1 .2 6.9 0 2.7 40.4 9.4 88 0',
    '.1 18.8 31.7 17.5 12.9 2 10.1 6.1 1.5 2.6 3.3 0 .5 2 1.8 51 42.6 9.2 90.6 .2'))))

p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
p.add_argument('--data', type=Path, required=True, help='folder of the task files, qa1_…_train.txt and so on, or .gz')
p.add_argument('--only', nargs='+', default=list(COLUMNS), choices=COLUMNS, metavar='COLUMN', help=f'columns to work at: {"; ".join(COLUMNS)}')
p.add_argument('--tasks', type=int, nargs='+', default=[*range(1, 21)])
p.add_argument('--restarts', type=int, default=10, help='networks of which the best in training is taken, each task alone')
p.add_argument('--joint_restarts', type=int, default=3, help='the same for all tasks together, which takes long')
p.add_argument('--epochs', type=float, default=1., help='share of the paper\'s epochs, for a trial')
p.add_argument('--runs', type=Path, default=Path('runs/memory_networks'), help='folder of what is done')
p.add_argument('--out', type=Path, help='the record, a JSON file')

def load_task(folder, task, split):
    found = sorted(folder.glob(f'qa{task}_*_{split}.txt*'))
    return read_babi(found[0]) if found else None

def split_train_valid(questions):
    "Cut between two stories, so that none is in both parts."
    cut = len(questions) * 9 // 10
    while cut < len(questions) and questions[cut].facts[:len(questions[cut - 1].facts)] == questions[cut - 1].facts: cut += 1
    return questions[:cut], questions[cut:]

def train_and_evaluate(learn, tests, column, restarts, joint, share):
    "Errors of the network that fits best; those of all, too."
    hops, places, linear, noise, tying = COLUMNS[column]
    everything = [*learn, *(q for test in tests.values() for q in test)]
    words, M = _build_vocab(everything), min(50, max(len(q.facts) for q in everything))
    J = max(len(s) for q in everything for s in (*q.facts, q.question))
    start, data = time.time(), _encode_stories(learn, words, M, J)
    torch.manual_seed(0)
    model = MemoryNetwork(len(words), M, J, restarts, 50 if joint else 20, hops, places, tying)
    epochs = lambda n: max(1, round(n * share))
    if linear: _train_memory_network(model, data, epochs(30 if joint else 20), .005, anneal=False, noise=noise, linear=True)
    _train_memory_network(model, data, epochs(60 if joint else 100), .005 if linear else .01, noise=noise, seed=1)
    loss, wrong = _evaluate_memory_network(model, data)
    best = min(range(restarts), key=lambda i: (wrong[i].item(), loss[i].item()))
    errors = {task: [100 * w for w in _evaluate_memory_network(model, _encode_stories(test, words, M, J))[1].tolist()] for task, test in tests.items()}
    return dict(best=best, losses=loss.tolist(), training_errors=[100 * w for w in wrong.tolist()], error={task: e[best] for task, e in errors.items()}, errors=errors,
                sizes=dict(words=len(words), sentences=M, longest=J, questions=len(learn)), minutes=(time.time() - start) / 60)

def main(a):
    torch.set_num_threads(1)
    once = ResultCache(a.runs / 'parts', f'{a.tasks} {a.restarts} {a.joint_restarts} {a.epochs}').get_or_compute
    place = lambda *words: '_'.join(map(str, words)).replace(', ', '_').replace(' ', '-')
    tests = {task: test for task in a.tasks if (test := load_task(a.data, task, 'test'))}
    learn = {task: split_train_valid(questions)[0] for task in a.tasks if (questions := load_task(a.data, task, 'train'))}
    if not tests or not learn: raise SystemExit(f'error: {a.data} holds no file such as qa1_…_train.txt')
    found = {}
    for column in a.only:
        if 'joint' in column:
            part = once(place(column), lambda: train_and_evaluate(sum(learn.values(), []), tests, column, a.joint_restarts, True, a.epochs))
            found[column] = part
            continue
        parts = {task: once(place(column, task), lambda: train_and_evaluate(learn[task], {task: tests[task]}, column, a.restarts, False, a.epochs)) for task in tests if task in learn}
        found[column] = dict(error={str(task): part['error'][str(task)] for task, part in parts.items()}, tasks=parts)
    for column, part in found.items():
        ours, theirs = mean(part['error'].values()), mean(PAPER_ERRORS[column][int(task)] for task in part['error'])
        print(f'{column:<30} {ours:5.1f} here, {theirs:5.1f} in the paper, mean of {len(part["error"])} tasks')
    if a.out: a.out.write_text(json.dumps(provenance('torch') | dict(columns=found, paper=PAPER_ERRORS), indent=1, ensure_ascii=False) + '\n')

if __name__ == '__main__': main(p.parse_args())
