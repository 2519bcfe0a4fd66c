"""Section 2a in numbers: what a recurrent translator forgets, from which end it reads, and which score it needs.

Every run is trained by `numbers.fit` on the names of numbers, letter by letter; what is finished is kept in --out, so that the
command may be interrupted and given again.

    python experiments/recurrent.py --out nbs/results/recurrent.json
"""
import argparse, json, platform, subprocess, sys, time
from importlib.metadata import version
from pathlib import Path
import torch
from torch.nn import functional as F
from annotated_transformer.model.attention import MultiHeadAttention
from annotated_transformer.background.recurrent import (
    RecurrentConfig, RecurrentTranslator)
from annotated_transformer.model.config import TransformerConfig
from annotated_transformer.analysis.alignment import gold_alignment
from annotated_transformer.data.number_names import (
    PAD, sample_numbers, exact_match, train_toy, number_names, random_batches, shift_right, seeded_shuffle,
    SYMBOLS, encode_characters)
from annotated_transformer.model.transformer import Transformer

LENGTH_BIN_EDGES = [3, 20, 28, 36, 44, 52, 68]      # letters of the German name
SCORE_CONFIGS = [dict(score='additive')] + [dict(score=s, input_feeding=f) for s in ('dot', 'general', 'concat', 'location') for f in (False, True)] + [
    dict(score='general', window=w, D=5, input_feeding=f) for w in ('local-m', 'local-p') for f in (False, True)]

SIZES = {'48 wide, 600 updates': (48, 600, 1e-2), '96 wide, 1,200 updates': (96, 1200, 5e-3)}      # width, updates, learning rate

def build_translator(d, **kind): return RecurrentTranslator(RecurrentConfig(len(SYMBOLS), d, P_drop=0., max_len=80, **kind))

@torch.no_grad()
def accuracy_by_position(model, pairs, places=60):
    "The loss, and how often the letter at each place is right, given those before it."
    src, tgt = (encode_characters(side) for side in zip(*pairs))
    logits = model(src, shift_right(tgt))
    real, right = tgt != PAD, logits.argmax(-1) == tgt
    loss = F.cross_entropy(logits.mT, tgt, ignore_index=PAD).item()
    return loss, [(right[:, i] & real[:, i]).sum().item() / real[:, i].sum().item() for i in range(places)]

def train_long_names(kind, seed, d, steps, lr):
    "Train on the mixture of numbers below a million, test on 500 others."
    drawn = sample_numbers(0)
    train, test = number_names(drawn[:20000]), number_names(drawn[20500:])
    torch.manual_seed(seed)
    model = build_translator(d, **kind)
    losses = train_toy(model, random_batches(train), steps, lr)
    right, bins = exact_match(model, test), [[] for _ in LENGTH_BIN_EDGES[1:]]
    for (_, german), hit in zip(test, right): bins[sum(len(german) >= e for e in LENGTH_BIN_EDGES[1:-1])].append(hit)
    loss, places = accuracy_by_position(model, test)
    return dict(seed=seed, train_loss=sum(losses[-50:]) / 50, loss=loss, exact=sum(right) / len(right), right_by_place=places,
                exact_by_length=[sum(b) / len(b) for b in bins], names_by_length=[len(b) for b in bins])

def attention_weights(model, n):
    "The weights with which the German name of n is written: one matrix for a recurrent model, one for each head of a Transformer."
    (english, german), = number_names([n])
    heads = [m for m in model.modules() if isinstance(m, MultiHeadAttention)]
    for m in heads: m.need_weights = True
    with torch.no_grad(): model(encode_characters([english]), shift_right(encode_characters([german])))
    weights = torch.cat([l.cross_attn.attn_weights[0] for l in model.decoder.layers]) if heads else model.attn_weights
    return weights[:, :len(german), :len(english)]

def alignment_mass(model, numbers):
    "The mean weight on the letters that mean the same, of each matrix, where a German part begins; and what chance gives."
    found, chance = [], []
    for n in numbers:
        truth = gold_alignment(n, char_level=True)
        rows = truth.any(1) & (truth != torch.cat([~truth[:1], truth[:-1]])).any(1)
        found.append((attention_weights(model, n) * truth).sum(-1)[:, rows].mean(1))
        chance.append(truth[rows].float().mean().item())
    return torch.stack(found).mean(0), sum(chance) / len(chance)

def train_short_names(model, steps, lr):
    "Train on 800 numbers below 1000; which of the other 200 are right, and where it looks."
    numbers = [n for n in seeded_shuffle(range(1000), seed=0) if n != 21]
    losses = train_toy(model, random_batches(number_names(numbers[:800])), steps, lr)
    right = exact_match(model, number_names([21, *numbers[800:]]))
    best = alignment_mass(model, numbers[:50])[0].argmax()          # chosen on names that were learned
    each, chance = alignment_mass(model, [21, *numbers[800:]])
    return dict(exact=sum(right) / len(right), on_target=each[best].item(), chance=chance, losses=[round(x, 4) for x in losses[::10]],
                weights=[[round(w, 4) for w in row] for row in attention_weights(model, 21)[best].tolist()])

def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument('--out', type=Path, default=Path('nbs/results/recurrent.json'), help='the record; what it holds already is not run again')
    p.add_argument('--seeds', type=int, default=3)
    args = p.parse_args()
    torch.set_num_threads(1)
    commit = subprocess.run(['git', 'rev-parse', '--short', 'HEAD'], capture_output=True, text=True).stdout.strip()
    record = json.loads(args.out.read_text()) if args.out.exists() else dict(
        command='python ' + ' '.join(sys.argv), commit=commit, machine=f'{platform.machine()}, one thread', edges=LENGTH_BIN_EDGES,
        versions={name: version(name) for name in ('torch', 'num2words')}, runs={})
    def once(key, f):
        if key in record['runs']: return record['runs'][key]
        start = time.time()
        record['runs'][key] = f() | dict(minutes=round((time.time() - start) / 60, 1))
        args.out.write_text(json.dumps(record, indent=1) + '\n')
        shown = {k: v for k, v in record['runs'][key].items() if not isinstance(v, list)}
        print(key, shown, flush=True)
        return record['runs'][key]
    seeds = range(args.seeds)
    def small(make, steps, lr): return lambda: (torch.manual_seed(seed), train_short_names(make(), steps, lr))[1]
    each = lambda name, kind, size: [once(f'{name}, {size}, seed {s}', lambda s=s: train_long_names(kind, s, *SIZES[size])) for s in seeds]
    little, enough = SIZES
    one_way = dict(score='none', bidirectional=False)
    record['bottleneck'] = {little: {score: each(score, dict(score=score), little) for score in ('general', 'none')}}
    record['direction'] = {name: each(name, one_way | dict(reverse=r), little) for name, r in (('forward', False), ('reversed', True))}
    record['scores'] = []
    for kind in SCORE_CONFIGS:
        full = dict(window='global', input_feeding=False) | kind
        runs = []
        for seed in seeds: runs.append(once(f'small {full} {seed}', small(lambda: build_translator(64, **kind), 150, 1e-2)))
        record['scores'].append(full | dict(exact=[r['exact'] for r in runs], on_target=[r['on_target'] for r in runs]))
    record['heads'] = {}
    for name, make in (('additive attention', lambda: build_translator(64, score='additive')),
                       ('a Transformer', lambda: Transformer(TransformerConfig(len(SYMBOLS), 2, 64, 128, 4, P_drop=0., norm='pre'), PAD))):
        record['heads'][name] = []
        for seed in seeds: record['heads'][name].append(once(f'head {name} {seed}', small(make, 400, 1e-2 if 'add' in name else 3e-3)))
    record['bottleneck'][enough] = {score: each(score, dict(score=score), enough) for score in ('general', 'none')}
    args.out.write_text(json.dumps(record, indent=1) + '\n')

if __name__ == '__main__': main()
