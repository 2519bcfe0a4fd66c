"""Variants of the Transformer that only runs can judge: small models on captions, two seeds each, and two length penalties on one model.

Each run is written down when it is scored, in a file of its own; an interrupted command goes on where it was. Several processes
may share the work by --only; a last command without it writes the record.

    python experiments/variants.py --data data/multi30k --model runs/multi30k_seed0 --out nbs/results/variants.json
"""
import argparse, json, math
from collections import Counter
from pathlib import Path
from unittest.mock import patch
import torch
from accelerate import Accelerator
from datasets import load_from_disk
from annotated_transformer.inference.evaluation import evaluate
from annotated_transformer.run_directory import RunDirectory
from annotated_transformer.model.pretrained import load_weights
from annotated_transformer.data.preprocessing import load_batches
from annotated_transformer.utils.validation import NonFiniteError
from annotated_transformer.inference.metrics import paired_bootstrap
from annotated_transformer.data.text_files import read_parallel
from annotated_transformer.training.trainer import train
from annotated_transformer.inference.translator import Translator
from annotated_transformer.training.train_step import ModelWithLoss, validate
from annotated_transformer.analysis.variants import build_variant, _VARIANTS
from recording import ResultCache, provenance, read_arguments

p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
p.add_argument('--data', required=True, help='folder of Multi30k')
p.add_argument('--model', help='a trained run, to compare length penalties on the validation captions')
p.add_argument('--only', nargs='+', default=list(_VARIANTS), choices=_VARIANTS, metavar='NAME', help=f'variants to work at: {", ".join(_VARIANTS)}')
p.add_argument('--seeds', type=int, default=2)
p.add_argument('--base_seeds', type=int, default=7, help='of base, with which the others are compared')
p.add_argument('--runs', type=Path, default=Path('runs/variants'), help='folder of the runs')
p.add_argument('--out', type=Path, help='the record, a JSON file')
LENGTH_PENALTIES = {'((5 + length)/6)^α': lambda length, alpha=.6: ((5 + length) / 6) ** alpha, 'length^α': lambda length, alpha=.6: length ** alpha}

def train_variant(run, name, seed, a):
    "Train a variant; its loss on the validation captions with the mean of the last checkpoints. A run that diverges has none."
    recipe, model = build_variant(name, **a.changes | dict(seed=seed))
    lost = lambda why: dict(loss=None, diverged=why, curve=curve())
    curve = lambda: [(m['step'], m['valid_loss']) for m in RunDirectory(run).metrics() if 'valid_loss' in m]
    try:
        train(recipe, ('multi30k', 'en', 'de'), run, a.data, resume=True, model=model)
        _, model = build_variant(name, **a.changes | dict(seed=seed))
        model.load_state_dict(load_weights(RunDirectory(run).weights_file(), model), strict=False)
        model.eval()
    except NonFiniteError as e: return lost(str(e))
    with torch.no_grad(): loss, accuracy = validate(ModelWithLoss(model), load_batches(run / 'data/valid', max(recipe.data.max_tokens, recipe.model.max_len), 0, 0), Accelerator(cpu=True))
    if not math.isfinite(loss): return lost('loss of the averaged model')
    return dict(loss=loss, accuracy=accuracy, curve=curve(), largest_gradient=max(m['grad_norm'] for m in RunDirectory(run).metrics() if 'grad_norm' in m))

def unigram_loss(run, vocab_size):
    "Loss on the validation captions of whoever knows how frequent each token is, and nothing else (every count one more): what learning has to beat."
    tokens = lambda split: [i for ids in load_from_disk(run / 'data' / split)['tgt'] for i in ids[1:]]
    train, valid = tokens('train'), tokens('valid')
    counts = Counter(train)
    return sum(math.log((len(train) + vocab_size) / (counts[i] + 1)) for i in valid) / len(valid)

def compare_length_penalties(a):
    "BLEU and length of the validation captions by beam, α and penalty, all by one model."
    sources, references = map(list, zip(*read_parallel(*(Path(a.data) / f'val.{lang}.gz' for lang in ('en', 'de')))))
    translator, rows, texts = Translator.from_pretrained(a.model), [], {}
    for name, penalty in LENGTH_PENALTIES.items():
        for alpha in (0., .3, .6, 1.):
            for beam in (1, 2, 4, 8, 16):
                if beam == 1 and alpha or not alpha and name == 'length^α': continue        # greedy has no penalty; α = 0 is the same in both
                with patch('annotated_transformer.inference.beam_search.length_penalty', penalty): scores, written = evaluate(translator, sources, references, beam, alpha)
                other = texts.setdefault((alpha, beam), written)                                # of the first form; the difference is paired
                rows.append(dict(penalty=name, alpha=alpha, beam=beam, bleu=scores['lower-cased tokenised BLEU'], ahead_and_p=paired_bootstrap(written, other, references, lowercase=True),
                                 length=sum(len(w.split()) for w in written) / sum(len(r.split()) for r in references)))
                print(rows[-1], flush=True)
    return rows

def main(a):
    torch.set_num_threads(1)
    parts = a.runs / 'parts'
    once = ResultCache(parts, a.changes).get_or_compute
    place = lambda name, seed: f"{name.replace(', ', '_').replace(' ', '-').replace('√', '')}_{seed}"
    read = lambda name, seed: once(place(name, seed), lambda: train_variant(a.runs / place(name, seed), name, seed, a))
    seeds = lambda name: range(a.base_seeds if name == 'base' else a.seeds)
    for name, seed in sorted(((row, seed) for row in a.only for seed in seeds(row)), key=lambda key: key[1]): read(name, seed)
    searched = once('search', lambda: dict(rows=compare_length_penalties(a)))['rows'] if a.model or (parts / 'search.json').exists() else None
    if {*a.only} < {*_VARIANTS}: return
    record = provenance('torch', 'accelerate', 'sentencepiece', 'sacrebleu') | dict(
                  guess=unigram_loss(a.runs / place('base', 0), build_variant('base')[0].model.vocab_size),
                  runs={name: [read(name, seed) for seed in seeds(name)] for name in _VARIANTS}, search=searched)
    if a.out: a.out.write_text(json.dumps(record, indent=1, ensure_ascii=False) + '\n')
    for name, found in record['runs'].items(): print(f'{name:<32}', ' '.join(f"{r['loss'] or math.nan:.4f}" for r in found))

if __name__ == '__main__': main(read_arguments(p, 'table3_mini'))
