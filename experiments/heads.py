"""Which heads of cross-attention does a translator need: those that align the words best, or the others of the same layer?

Takes run directories of number names (recipe `demo`) and of captions (recipe `multi30k_tiny`), one for each seed. A head's alignment is
the mean weight that it lays on the counterparts of the token being written, over 500 training pairs. The counterparts of number names
follow from the numbers; those of captions are estimated from the training text by IBM Model 1 with the prior of fast_align, the
intersection of both directions. Heads are removed from every layer alike, the best aligned first, the worst first, and in random order.
Alignment is not defined for self-attention: its heads are removed in random order only, for comparison. Cost: nats per token of the
validation pairs, and the score of greedy search (BLEU of captions; exact matches of number names, each of which is one German word).
What is measured of a run is kept in --runs, and not measured again.

    python experiments/heads.py runs/demo runs/demo_1 runs/multi30k_en_de_seed0 --out nbs/results/heads.json
"""
import argparse, json, random
from contextlib import ExitStack
from pathlib import Path
import numpy as np
import torch
from accelerate import Accelerator
from datasets import load_from_disk
from annotated_transformer.analysis.alignment import gold_alignment
from annotated_transformer.analysis.heads import mask_head
from annotated_transformer.data.number_names import number_names, sample_numbers
from annotated_transformer.data.preprocessing import load_batches
from annotated_transformer.inference.forced_decoding import _attention_weights
from annotated_transformer.inference.metrics import tokenized_bleu
from annotated_transformer.inference.translator import Translator
from annotated_transformer.run_directory import RunDirectory
from annotated_transformer.training.train_step import ModelWithLoss, validate
from recording import ResultCache, provenance

p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
p.add_argument('trained', nargs='+', help='run directories of number names or Multi30k')
p.add_argument('--pairs', type=int, default=500, help='training pairs over which alignment is measured')
p.add_argument('--draws', type=int, default=3, help='random orders')
p.add_argument('--runs', default='runs/heads', help='folder of the parts of the record')
p.add_argument('--note', default='', help='what else is to be said of the runs, e.g. of the machine')
p.add_argument('--out', type=Path, help='the record, a JSON file')

def number_links(number, source, target):
    "True where a token of the German name and one of the English name stand for the same part (T_q, T_k). A token belongs to the part of its last letter."
    letters = np.pad(gold_alignment(number, char_level=True).numpy(), (0, 1))              # no counterpart for a token that is only the mark of a word
    last_target, last_source = (np.cumsum([*map(len, tokens)]) - 2 for tokens in (target, source))    # the mark of the first word is no letter
    return letters[last_target][:, last_source]

def best_counterparts(pairs, iterations=5, tension=4.):
    """For each pair (given, written) of lists of ids the position in `given` that each position of `written` most probably translates:
    IBM Model 1 (Brown et al. 1993) with the prior of fast_align (Dyer et al. 2013), which prefers the diagonal. No null word."""
    shapes = [(len(written), len(given)) for given, written in pairs]
    g, w = (np.concatenate([np.asarray(repeat(ids, n)) for ids, n in cells]) for repeat, cells in (
        (np.tile, [(given, len(written)) for given, written in pairs]), (np.repeat, [(written, len(given)) for given, written in pairs])))
    position = np.repeat(np.arange(sum(n for n, _ in shapes)), np.repeat([m for _, m in shapes], [n for n, _ in shapes]))
    prior = np.concatenate([np.exp(-tension * np.abs((np.arange(n)[:, None] + .5) / n - (np.arange(m) + .5) / m)).ravel() for n, m in shapes])
    words, entry = np.unique(g.astype(np.int64) << 32 | w, return_inverse=True)            # entries of the table t(written | given)
    _, row = np.unique(words >> 32, return_inverse=True)
    t = np.ones(len(words))
    for _ in range(iterations):
        posterior = t[entry] * prior
        posterior /= np.bincount(position, posterior)[position]
        count = np.bincount(entry, posterior)
        t = count / np.bincount(row, count)[row]
    scores = np.split(t[entry] * prior, np.cumsum([n * m for n, m in shapes])[:-1])
    return [s.reshape(shape).argmax(1) for s, shape in zip(scores, shapes)]

def estimated_links(pairs, n):
    "The links of the first n pairs (source, target) of ids, estimated from all: each of the two tokens is the best counterpart of the other. True at (T_q, T_k)."
    forward, backward = best_counterparts(pairs), best_counterparts([pair[::-1] for pair in pairs])
    return [(f[:, None] == np.arange(len(b))) & (b == np.arange(len(f))[:, None]) for f, b in zip(forward[:n], backward[:n])]

def head_alignment(model, rows, links):
    "The mean weight of each head of cross-attention on the counterparts of the token being written (N, h), over the tokens that have any; the same of a uniform head."
    weights, chance = [], []
    for row, link in zip(rows, links):
        has, link = link.any(1), torch.from_numpy(link)
        W = _attention_weights(model, torch.tensor([row['src']]), torch.tensor([row['tgt'][:-1]]))['memory'][:, :, :-1, :-1]    # without the row and the column of </s>
        weights.append((W * link).sum(-1)[:, :, has])
        chance += (link.sum(1)[has] / len(row['src'])).tolist()
    return torch.cat(weights, -1).mean(-1), sum(chance) / len(chance)

def orders(alignment, draws):
    "Name → the heads of each layer in the order in which they are removed."
    best = alignment.argsort(dim=-1, descending=True).tolist()
    shuffled = lambda seed: [random.Random(f'{seed} {layer}').sample(heads, len(heads)) for layer, heads in enumerate(map(sorted, best))]
    return dict(best=best, worst=[heads[::-1] for heads in best]) | {f'random {seed}': shuffled(seed) for seed in range(draws)}

def remove_heads(stack, translator, kind, heads):
    "Remove heads, given layer by layer, until the stack of contexts is closed."
    for layer, some in enumerate(heads):
        for head in some: stack.enter_context(mask_head(translator, kind, layer, head))

class Evaluation:
    "The validation pairs of a run: nats per token, and the score of greedy search."
    def __init__(self, run, translator):
        self.translator, valid = translator, RunDirectory(run).data / 'valid'
        self.batches, self.rows = load_batches(valid, 8192, translator.tokenizer.pad_id, 0), load_from_disk(valid)

    def __call__(self, kind='memory', heads=()):
        "The scores without some heads, given layer by layer."
        t = self.translator
        with ExitStack() as stack:
            remove_heads(stack, t, kind, heads)
            loss, _ = validate(ModelWithLoss(t.models[0]), self.batches, Accelerator(cpu=True))
            t.models[0].eval()                                                             # validate leaves it in training mode
            found = t.map_in_batches([torch.tensor(ids) for ids in self.rows['src']], lambda ids: t.search(ids, 1, 0.), 8192)
        written, references = t.tokenizer.decode([best.ids for best, in found]), t.tokenizer.decode(self.rows['tgt'])
        if t.config['dataset'] == 'numbers': return dict(loss=loss, score=100 * sum(w == r for w, r in zip(written, references)) / len(written))
        return dict(loss=loss, score=tokenized_bleu(written, references))

def measure(run, a):
    "Alignment of the heads of a run, and the scores without 1 to h − 1 heads of each layer, and without all of them."
    translator = Translator.from_pretrained(run, device='cpu')
    config, t = translator.config, translator.tokenizer
    rows = load_from_disk(RunDirectory(run).data / 'train')
    sides = [ids[:-1] for ids in rows['src']], [ids[1:-1] for ids in rows['tgt']]          # without <s> and </s>
    links, found = estimated_links([*zip(*sides)], a.pairs), dict(run=Path(run).name, dataset=config['dataset'], seed=config['seed'])
    if config['dataset'] == 'numbers':
        numbers = sample_numbers(0)                                                        # the corpus is the same for every seed of training
        number = dict(zip((name for name, _ in number_names(numbers)), numbers))
        gold = [number_links(number[name], *(t.convert_ids_to_tokens(side[i]) for side in sides)) for i, name in enumerate(t.decode(rows['src'][:a.pairs]))]
        both = sum((e & g).sum() for e, g in zip(links, gold))
        found |= dict(estimate=dict(precision=both / sum(e.sum() for e in links), recall=both / sum(g.any(1).sum() for g in gold)))
        links = gold
    alignment, chance = head_alignment(translator.models[0], rows.select(range(a.pairs)), links)
    evaluate, h = Evaluation(run, translator), config['model']['h']
    everything = [[*range(h)]] * config['model']['N']
    curve = lambda kind, order: [evaluate(kind, [heads[:k] for heads in order]) for k in range(1, h)]
    return found | dict(alignment=alignment.tolist(), chance=chance, whole=evaluate(), without_all={kind: evaluate(kind, everything) for kind in ('memory', 'encoder', 'decoder')},
                        cross_attention={name: curve('memory', order) for name, order in orders(alignment, a.draws).items()},
                        self_attention={kind: {name: curve(kind, order) for name, order in orders(alignment, a.draws).items() if name.startswith('random')} for kind in ('encoder', 'decoder')})

def main(a):
    torch.set_num_threads(1)
    once = ResultCache(a.runs, dict(pairs=a.pairs, draws=a.draws)).get_or_compute
    runs = [once(run.strip('/').replace('/', '_'), lambda run=run: measure(run, a)) for run in a.trained]
    record = provenance('torch', 'sentencepiece', 'sacrebleu', 'numpy') | dict(note=a.note, pairs=a.pairs, draws=a.draws, runs=runs)
    if a.out: a.out.write_text(json.dumps(record, indent=1) + '\n')
    for r in runs:
        half = len(r['alignment'][0]) // 2 - 1
        print(f"{r['run']}: {r['whole']['loss']:.3f} nats per token; without the better aligned half of each layer's heads "
              f"{r['cross_attention']['best'][half]['loss']:.3f}, without the other half {r['cross_attention']['worst'][half]['loss']:.3f}")

if __name__ == '__main__': main(p.parse_args())
