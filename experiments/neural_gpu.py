"""Section 2e: which networks find a rule for adding that holds for longer numbers, and which way of writing keeps to one language.

columns: sums of up to 8 bits, the numbers one below the other, by dropout. sums: a + b in a row, up to 15 bits, beside a recurrent
network with attention and the Transformer, all with the same sums and updates. products: the same, times, up to 12 bits. names: a number
below 1000 in digits, its name in English or German by the toss of a coin, written in three ways; 100 numbers are kept for the test.
Each run is written down when it is done; an interrupted command goes on. Several processes may share the work by --only; a last command without it writes all into the record.

    python experiments/neural_gpu.py --out nbs/results/neural_gpu.json
"""
import argparse, json, random, time
from pathlib import Path
import torch
from torch.nn import functional as F
from annotated_transformer.background.neural_gpu import (
    ExtendedNeuralGPU, NeuralGPU, make_addition)
from annotated_transformer.background.recurrent import (
    RecurrentConfig, RecurrentTranslator)
from annotated_transformer.model.config import TransformerConfig
from annotated_transformer.data.number_names import (
    EOS, PAD, train_toy, number_speller, shift_right, seeded_shuffle, teacher_forcing_loss)
from annotated_transformer.model.transformer import Transformer
from recording import ResultCache, provenance

DROPOUT_RATES, FAMILIES, OUTPUT_MODES = (0., .1, .2, .3, .4), ('Neural GPU', 'Neural GPU, no shifts', 'LSTM, attention', 'Transformer'), ('at once', 'markov', 'tape')
GROUPS = ('columns', 'sums', 'names', 'products')
COLUMN_LENGTHS, SUM_LENGTHS = (8, 16, 32, 64, 128, 256), (4, 8, 12, 15, 20, 30, 50, 100, 200)
LENGTH_BINS = (8, 12, 16, 20, 25, 31)        # places; each sum is padded to the next of them

p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
p.add_argument('--only', nargs='+', default=list(GROUPS), choices=GROUPS, metavar='GROUP', help=f'groups of runs to work at: {", ".join(GROUPS)}')
p.add_argument('--seeds', type=int, default=5, help='of the Neural GPU; of columns six at most, of names three, of its rivals and of products two')
p.add_argument('--updates', type=float, default=1., help='share of the updates, for a trial')
p.add_argument('--runs', type=Path, default=Path('runs/neural_gpu'), help='folder of what is done')
p.add_argument('--out', type=Path, help='the record, a JSON file')

def to_bits(number, k): return torch.tensor([[number >> i & 1 for i in range(k)]])
def sample_bits(n, k): return torch.randint(2, (2, n, k))

def encode_products(a, b, joined=True):
    "a × b, written as `make_addition` writes a + b, with 2k bits."
    n, k = a.shape
    columns = torch.zeros(n, 2 * k + 1, dtype=torch.long)
    for i in range(k): columns[:, i:i + k] += a[:, i:i + 1] * b
    carry, found = torch.zeros(n, dtype=torch.long), []
    for column in columns[:, :-1].unbind(1):
        found.append((column + carry) % 2)
        carry = (column + carry) // 2
    return make_addition(a, b, True)[0], F.pad(torch.stack(found, 1) + 1, (0, 1))

@torch.no_grad()
def sequence_accuracy(net, x, y): return (net(x).argmax(-1) == y).all(1).float().mean().item()

def mean_loss(net, *batches): return sum(F.cross_entropy(net(x).mT, y) for x, y in batches) / len(batches)

def train_on_columns(P_drop, seed, share):
    "One below the other, 3 and 8 bits: how many are right by length, the longest carry up to which all are right in numbers of 256 bits, and all sums of 1 and 2 bits."
    torch.manual_seed(seed)
    net = NeuralGPU(5, 3, 36, P_drop)
    train_toy(net, lambda: [make_addition(*sample_bits(16, k)) for k in (3, 8)], max(20, round(250 * share)), .02, mean_loss)
    exact = [sequence_accuracy(net, *make_addition(*sample_bits(100, k))) for k in COLUMN_LENGTHS]
    def carries(c, L=256):      # 1 + 11…1 in numbers of 256 bits, from every 64th column
        rows = [(to_bits(1 << i, L), to_bits((2 ** c - 1) << i, L)) for i in range(0, L - c + 1, 64)]
        return sequence_accuracy(net, *make_addition(*(torch.cat(side) for side in zip(*rows)))) == 1
    lengths = [*range(1, 13), 14, 16, 20, 24, 32, 48, 64, 96, 128, 192, 256]
    wrong = next((i for i, c in enumerate(lengths) if not carries(c)), len(lengths))
    short = [sequence_accuracy(net, *make_addition(*(torch.tensor([[i >> j & 1 for j in range(k)] for i in side]) for side in zip(*((i, j) for i in range(2 ** k) for j in range(2 ** k)))))) for k in (1, 2)]
    return dict(exact=exact, carried=lengths[wrong - 1] if wrong else 0, short=short)

def sample_binned_batches(task, bins):
    "A batch for each bin: numbers of a length that fits, now and then of a shorter one, and empty places up to the bin."
    batches = []
    for low, L in zip((2, *bins), bins):
        fitting = range(max(1, low // 2), (L - 1) // 2 + 1)
        k = random.choice(fitting) if random.random() > .05 else random.randint(1, fitting[-1])
        x, y = task(*sample_bits(16, k), True)
        batches.append((F.pad(x, (0, L - x.size(1))), F.pad(y, (0, L - y.size(1)))))
    return batches

def to_seq2seq_batch(batches):
    "Symbols two higher, for BOS and EOS; one batch of all."
    L = max(x.size(1) for x, _ in batches)
    src = torch.cat([F.pad(torch.where(x > 0, x + 2, PAD), (0, L - x.size(1))) for x, _ in batches])
    tgt = []
    for _, y in batches:
        y = torch.where(y > 0, y + 2, PAD)
        last = (y > 0).sum(1, keepdim=True)
        tgt.append(F.pad(F.pad(y, (0, 1)).scatter(1, last, EOS), (0, L - y.size(1))))
    return src, torch.cat(tgt)

@torch.no_grad()
def exact_match_rate(net, x, y):
    "Greedy writing is right just when each token is the likeliest after the right ones."
    if isinstance(net, NeuralGPU): return sequence_accuracy(net, x, y)
    src, tgt = to_seq2seq_batch([(x, y)])
    return ((net(src, shift_right(tgt)).argmax(-1) == tgt) | (tgt == PAD)).all(1).float().mean().item()

def build_model(family, m):
    if family.startswith('Neural GPU'): return NeuralGPU(5, 3, m, .1, 'no shifts' not in family), .48 / m
    if family == 'Transformer': return Transformer(TransformerConfig(vocab_size=8, d_model=128, N=3, h=4, d_ff=512, P_drop=.1)), 1e-3
    return RecurrentTranslator(RecurrentConfig(8, 128, cell='lstm', score='general', P_drop=.1)), 3e-3

def train_and_evaluate(family, seed, share, task=make_addition, m=48, bins=LENGTH_BINS, updates=2000):
    "In a row: how many are right by length, and with carries of every length in numbers of 15 bits."
    torch.manual_seed(seed); random.seed(seed)
    start = time.time()
    net, lr = build_model(family, m)
    own = isinstance(net, NeuralGPU)
    batches = (lambda: sample_binned_batches(task, bins)) if own else lambda: to_seq2seq_batch(sample_binned_batches(task, bins))
    losses = train_toy(net, batches, max(20, round(updates * share)), lr, mean_loss if own else teacher_forcing_loss)
    longest = (bins[-1] - 1) // 2
    exact = {k: exact_match_rate(net, *task(*sample_bits(200 if k <= 30 else 50, k), True)) for k in SUM_LENGTHS}
    chains = {}
    if task is make_addition:
        for c in range(1, longest + 1):    # 1 + 11…1, shifted to every place where it fits
            rows = [(to_bits(1 << i, longest), to_bits((2 ** c - 1) << i, longest)) for i in range(longest - c + 1)]
            chains[c] = exact_match_rate(net, *task(*(torch.cat(side) for side in zip(*rows)), True))
    return dict(exact=exact, chains=chains, loss=sum(losses[-50:]) / len(losses[-50:]), curve=[sum(losses[i:i + 50]) / 50 for i in range(0, len(losses), 50)],
                longest=longest, parameters=sum(w.numel() for w in net.parameters()), lr=lr, minutes=(time.time() - start) / 60)

def train_on_number_names(way, seed, share):
    english, german = number_speller('en'), number_speller('de')
    letters = ['', *sorted({c for n in range(1000) for c in f'{n}{english(n)}{german(n)}'})]
    n = max(len(name(i)) for i in range(1000) for name in (english, german)) + 1
    ids = lambda texts: torch.tensor([[*map(letters.index, t), *[0] * (n - len(t))] for t in texts])
    digits, both = ids(map(str, range(1000))), torch.stack([ids(map(english, range(1000))), ids(map(german, range(1000)))])
    order = torch.tensor(seeded_shuffle(range(1000), 0))
    known, new = order[:900], order[900:]
    torch.manual_seed(seed)
    start, net = time.time(), ExtendedNeuralGPU(len(letters), 48, way)
    def coin():
        rows = known[torch.randint(900, (32,))]
        return digits[rows], both[torch.randint(2, (32,)), rows]
    losses = train_toy(net, coin, max(20, round(2500 * share)), .01, lambda net, x, y: F.cross_entropy(net(x, y).mT, y))
    with torch.no_grad(): written = torch.cat([net(digits[rows]).argmax(-1) for rows in (known[:100], new)])
    good = (written == both[:, torch.cat([known[:100], new])]).all(-1).any(0).float()
    text = [''.join(letters[i] for i in row) for row in written[100:110].tolist()]
    return dict(known=good[:100].mean().item(), new=good[100:].mean().item(), examples=dict(zip(map(str, new[:10].tolist()), text)),
                loss=sum(losses[-50:]) / len(losses[-50:]), minutes=(time.time() - start) / 60)

def main(a):
    torch.set_num_threads(1)
    once = ResultCache(a.runs / 'parts', f'{a.updates}').get_or_compute
    place = lambda *words: '_'.join(map(str, words)).replace(', ', '_').replace(' ', '-')
    jobs = dict(columns=(DROPOUT_RATES, min(6, 2 * a.seeds), train_on_columns), sums=(FAMILIES, a.seeds, train_and_evaluate), names=(OUTPUT_MODES, min(3, a.seeds), train_on_number_names),
                products=(('Neural GPU',), min(2, a.seeds), lambda *args: train_and_evaluate(*args, encode_products, 96, LENGTH_BINS[:-1])))
    record = {}
    for group in a.only:
        arms, seeds, work = jobs[group]
        count = {arm: min(2, seeds) if group == 'sums' and arm != 'Neural GPU' else seeds for arm in arms}
        keys = sorted(((arm, seed) for arm in arms for seed in range(count[arm])), key=lambda key: (key[0] == 'Transformer', key[1]))
        found = {key: once(place(group, *key), lambda: work(*key, a.updates)) for key in keys}
        record[group] = {str(arm): [found[arm, seed] for seed in range(count[arm])] for arm in arms}
    if a.out: a.out.write_text(json.dumps(provenance('torch') | dict(lengths=dict(columns=COLUMN_LENGTHS, sums=SUM_LENGTHS)) | record, indent=1, ensure_ascii=False) + '\n')

if __name__ == '__main__': main(p.parse_args())
