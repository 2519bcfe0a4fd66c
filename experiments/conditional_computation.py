"""Section 2i: experts and thinner matrices in a language model of captions, word by word, on the English side of Multi30k.

Two LSTMs, between them 0, 2, 4, 16 or 64 experts of which two are asked, with and without the load-balancing loss; and two LSTMs with
factors or in groups, for the same number of updates and, in thin_time, for as long as the plain one takes. Perplexity is that of the
validation captions. Each run is written down when it is done; an interrupted command goes on. Several processes may share the work by --only.

    python experiments/conditional_computation.py --data data/multi30k --out nbs/results/conditional_computation.json
"""
import argparse, json, math, re, time
from collections import Counter
from pathlib import Path
import torch
from torch import nn
from torch.nn import functional as F
from torch.nn.utils.rnn import pad_sequence
from annotated_transformer.background.conditional_computation import (
    MixtureOfExperts, FactorizedLSTM, _cv_squared)
from annotated_transformer.data.number_names import EOS, PAD, train_toy, shift_right
from annotated_transformer.data.text_files import read_lines
from recording import ResultCache, provenance

EXPERTS = {'no experts': (0, 0.), '2 experts, both asked': (2, 0.), '4 experts': (4, .1), '16 experts': (16, .1), '16 experts, no balancing': (16, 0.), '64 experts': (64, .1)}
FACTORIZED = {'LSTM': {}, 'factors, rank 64': dict(rank=64), 'factors, rank 32': dict(rank=32), '2 groups': dict(groups=2), '4 groups': dict(groups=4)}
GROUPS = ('experts', 'thin', 'thin_time')

p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
p.add_argument('--data', type=Path, required=True, help='folder of Multi30k')
p.add_argument('--only', nargs='+', default=list(GROUPS), choices=GROUPS, metavar='GROUP', help=f'groups of runs to work at: {", ".join(GROUPS)}')
p.add_argument('--seeds', type=int, default=3, help='of the experts; of the thinner matrices two at most')
p.add_argument('--updates', type=int, default=1000)
p.add_argument('--runs', type=Path, default=Path('runs/conditional_computation'), help='folder of what is done')
p.add_argument('--out', type=Path, help='the record, a JSON file')

class WordLanguageModel(nn.Module):
    "Embedding, LSTM, what stands between, LSTM, scores of all words; as in the paper's models, with dropout."
    def __init__(self, V, d, lstm, experts=None):
        super().__init__()
        self.read, self.write, self.dropout = nn.Embedding(V, d), nn.Linear(d, V), nn.Dropout(.3)
        self.before, self.experts, self.after = lstm(), experts, lstm()

    def forward(self, ids):
        states = lambda found: found[0] if isinstance(found, tuple) else found
        h, there = states(self.before(self.dropout(self.read(ids)))), (ids != PAD) & (ids != EOS)
        if self.experts is not None:
            found = torch.zeros_like(h)
            found[there] = self.experts(h[there])
            h = h + self.dropout(found.sigmoid())
        return self.write(self.dropout(states(self.after(self.dropout(h)))))

def load_captions(folder):
    "Ids of the captions; words seen once are one word."
    split = lambda line: re.findall(r"\w+|[^\w\s]", line.lower())
    train, valid = ([split(line) for line in read_lines(folder / f'{name}.en.gz')] for name in ('train', 'val'))
    words = [w for w, n in Counter(w for line in train for w in line).most_common() if n > 1]
    at = {w: i for i, w in enumerate(words, 4)}
    ids = lambda lines: pad_sequence([torch.tensor([*(at.get(w, 3) for w in line), EOS]) for line in lines], True, PAD)
    return ids(train), ids(valid), len(words) + 4

@torch.no_grad()
def perplexity(model, ids):
    model.eval()
    total = sum(F.cross_entropy(model(shift_right(part)).mT, part, ignore_index=PAD, reduction='sum').item() for part in ids.split(100))
    return math.exp(total / (ids != PAD).sum().item())

def train_and_evaluate(group, arm, seed, a, updates):
    train, valid, V = load_captions(a.data)
    torch.manual_seed(seed)
    weight = 0.
    if group == 'experts':
        n, weight = EXPERTS[arm]
        model = WordLanguageModel(V, 128, lambda: nn.LSTM(128, 128, batch_first=True), MixtureOfExperts(128, n, 2, 256) if n else None)
    else: model = WordLanguageModel(V, 256, lambda: FactorizedLSTM(256, **FACTORIZED[arm]))
    def draw():
        ids = train[torch.randint(len(train), (32,))]
        return (ids[:, :(ids != PAD).sum(1).max()],)
    def loss(model, ids):
        guess = F.cross_entropy(model(shift_right(ids)).mT, ids, ignore_index=PAD)
        return guess + weight * (_cv_squared(model.experts.importance) + _cv_squared(model.experts.load)) if weight else guess
    start = time.process_time()
    losses = train_toy(model, draw, updates, 5e-3, loss)
    minutes = (time.process_time() - start) / 60
    found = dict(perplexity=perplexity(model, valid), updates=updates, minutes=minutes, parameters=sum(w.numel() for w in model.parameters()), last_loss=sum(losses[-50:]) / 50)
    if group == 'experts' and n:
        counts = torch.zeros(n)
        with torch.no_grad():
            for part in valid.split(100):
                model(shift_right(part))
                counts += model.experts.selected.sum(0)
        found |= dict(asked=counts.tolist(), busiest=(counts.max() / counts.mean()).item())
    return found

def main(a):
    torch.set_num_threads(1)
    once = ResultCache(a.runs / 'parts', f'{a.updates}').get_or_compute
    place = lambda *words: '_'.join(map(str, words)).replace(', ', '_').replace(' ', '-')
    run = lambda group, arm, seed, updates: once(place(group, arm, seed), lambda: train_and_evaluate(group, arm, seed, a, updates))
    record = {}
    for group in a.only:
        arms = EXPERTS if group == 'experts' else FACTORIZED
        record[group] = {arm: [] for arm in arms}
        for seed in range(a.seeds if group == 'experts' else min(2, a.seeds)):
            for arm in arms:
                updates = a.updates
                if group == 'thin_time':        # as many as the plain one's minutes allow
                    whole, own = (run('thin', name, seed, a.updates) for name in ('LSTM', arm))
                    updates = round(a.updates * whole['minutes'] / own['minutes'])
                record[group][arm].append(run(group, arm, seed, updates))
    if a.out: a.out.write_text(json.dumps(provenance('torch') | record, indent=1, ensure_ascii=False) + '\n')
    for group, arms in record.items():
        for arm, runs in arms.items(): print(f'{group} {arm:<40}', ' '.join(f"{r['perplexity']:.2f}" for r in runs))

if __name__ == '__main__': main(p.parse_args())
