"""The published score of Multi30k, English to German: are runs of the recipe `multi30k_tiny` as good, and what does each step of evaluation add?
The runs may have other languages of the corpus, with which nothing published is compared.

Reported is one setting, fixed beforehand: the mean of the last ten checkpoints, beam 5, α 0.6, on test_2016_flickr. What other
settings would give is measured on the *validation* captions, which nobody reports, so that nothing is chosen by the test. (A run whose
checkpoints are gone has no mean of fewer.)
With several runs their ensemble is scored, too.

    python experiments/published.py runs/multi30k_seed0 --data data/multi30k --out nbs/results/multi30k_published.json
"""
import argparse, json, os, platform, subprocess, sys
from importlib.metadata import version
from pathlib import Path
from statistics import mean, stdev
import safetensors.torch
import torch
from datasets import load_from_disk
from annotated_transformer.run_directory import RunDirectory, load_model
from annotated_transformer.inference.evaluation import evaluate
from annotated_transformer.data.preprocessing import load_batches
from annotated_transformer.recipe import get_recipe
from annotated_transformer.data.text_files import read_parallel
from annotated_transformer.inference.translator import Translator

p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
p.add_argument('runs', nargs='+', help='finished runs')
p.add_argument('--data', required=True, help='folder of Multi30k')
p.add_argument('--commits', help='with which each run was trained')
p.add_argument('--note', default='', help='what else is to be said of the runs, e.g. of the machine')
p.add_argument('--out', help='write the results to this JSON file, too')
PUBLISHED = {'source': 'Wu et al. 2021, Transformer-Tiny', 'updates': 8000, 'tokens': 8192, 'lower-cased tokenised BLEU': 41.02}

def load_pairs(data, stem, langs): return map(list, zip(*read_parallel(*(Path(data) / f'{stem}.{lang}.gz' for lang in langs))))

def training_hours(run):
    "What the updates took, by the speeds in the log: a run that was interrupted has no other clock."
    data = load_batches(Path(run) / 'data/train', RunDirectory(run).recipe.data.max_tokens, 0, 0)
    tokens = sum(n - 1 for n in load_from_disk(Path(run) / 'data/train')['n_tgt']) / len(data)
    lines = [m for m in RunDirectory(run).metrics() if 'loss' in m]
    return sum(tokens * (m['step'] - before) / m['tokens_per_s'] for m, before in zip(lines, [0, *(m['step'] for m in lines)])) / 3600

def average_last(run, n):
    "The mean of the last n checkpoints, without writing it."
    model, parts = load_model(run), [safetensors.torch.load_file(c / 'model.safetensors') for c in RunDirectory(run).checkpoints()[-n:]]
    model.load_state_dict({k: sum(part[k].double() for part in parts).div(len(parts)).float() for k in parts[0]}, strict=False)
    config, tokenizer = RunDirectory(run).config, RunDirectory(run).tokenizer
    return Translator([model.eval()], tokenizer, config)

def main(a):
    config = RunDirectory(a.runs[0]).config
    langs, key = [config[side] for side in ('source_lang', 'target_lang')], 'lower-cased tokenised BLEU'
    test, valid = ([*load_pairs(a.data, stem, langs)] for stem in ('test_2016_flickr', 'val'))
    of = lambda translator, data, beam=5, alpha=.6: evaluate(translator, *data, beam, alpha)
    rows, translations = [], []
    for run in a.runs:
        scores, written = of(Translator.from_pretrained(run), test)
        rows.append(dict(seed=RunDirectory(run).recipe.seed, updates=RunDirectory(run).recipe.schedule.max_steps, scores={k: v for k, v in scores.items() if k != 'sentences/s'},
                         unchanged=RunDirectory(run).recipe.model == get_recipe('multi30k_tiny').model, metrics=RunDirectory(run).metrics()))
        translations.append(written)
        print(f'{run}: {scores[key]:.2f} on test_2016_flickr', flush=True)
    first, mean_of_10, steps = a.runs[0], Translator.from_pretrained(a.runs[0]), {}
    others = (('mean of 5', average_last(first, 5), {}), ('last checkpoint alone', average_last(first, 1), {}),
              ('best checkpoint alone', Translator.from_pretrained(first, weights='best'), {})) if RunDirectory(first).checkpoints() else ()
    for name, translator, settings in (
            ('as reported: mean of 10, beam 5, α 0.6', mean_of_10, {}), *others, ('greedy', mean_of_10, dict(beam=1)), ('beam 10', mean_of_10, dict(beam=10)),
            ('α 0', mean_of_10, dict(alpha=0.)), ('α 1', mean_of_10, dict(alpha=1.)), ('α 1.5', mean_of_10, dict(alpha=1.5))):
        steps[name] = of(translator, valid, **settings)[0][key]
        print(f'validation, {name}: {steps[name]:.2f}', flush=True)
    commit = subprocess.run(['git', 'rev-parse', '--short', 'HEAD'], capture_output=True, text=True).stdout.strip()
    results = dict(command=' '.join([Path(sys.argv[0]).name, *sys.argv[1:]]), commit=commit, trained_with=a.commits and a.commits.split(','),
                   train=f'transformer_train --recipe multi30k_tiny --dataset multi30k --source_lang {langs[0]} --target_lang {langs[1]} --data_dir data/multi30k --output_dir {a.runs[0]} --seed {rows[0]["seed"]}',
                   machine=f'{platform.machine()}, {os.cpu_count()} processors' + (f', {torch.cuda.get_device_name()}' if torch.cuda.is_available() else ''), note=a.note, hours=[training_hours(run) for run in a.runs],
                   versions={m: version(m) for m in ('torch', 'accelerate', 'sentencepiece', 'sacrebleu', 'sacremoses')}, published=PUBLISHED if langs == ['en', 'de'] else None,
                   runs=rows, validation=steps, samples=[*map(list, zip(test[0], translations[0], test[1]))][:5])
    if len(a.runs) > 1:
        each = [row['scores'][key] for row in rows]
        results |= dict(mean=mean(each), deviation=stdev(each),
                        ensemble={k: v for k, v in of(Translator.from_pretrained(a.runs), test)[0].items() if k != 'sentences/s'})
        print(f"mean {mean(each):.2f}, deviation {stdev(each):.2f}, ensemble {results['ensemble'][key]:.2f}")
    if a.out: Path(a.out).write_text(json.dumps(results, indent=1) + '\n')

if __name__ == '__main__': main(p.parse_args())
