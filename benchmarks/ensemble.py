"""Is an ensemble better than its members? Trains a recipe with several seeds, scores each run, all of them together, and tests
the difference to the best member.

    python benchmarks/ensemble.py --steps 300 --out nbs/results/ensemble_numbers.json
    python benchmarks/ensemble.py --recipe multi30k_tiny --dataset multi30k --data_dir data/multi30k --runs runs/tiny
"""
import argparse, json, platform
from importlib.metadata import version
from pathlib import Path
import torch
from annotated_transformer.cli.recipe_flags import _add_recipe_arguments
from annotated_transformer.recipe import flatten_recipe, get_recipe
from annotated_transformer.inference.metrics import paired_bootstrap
from annotated_transformer.training.trainer import train
from annotated_transformer.inference.evaluation import evaluate, load_test_split
from annotated_transformer.inference.translator import Translator

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument('--recipe', default='demo', help='a named recipe (default: demo)')
parser.add_argument('--dataset', default='numbers', help='a data set, English to German (default: numbers)')
parser.add_argument('--data_dir', help='its folder, where it needs one')
parser.add_argument('--seeds', type=int, default=3, help='members of the ensemble (default: 3)')
parser.add_argument('--runs', default='runs/ensemble', help='run directories are RUNS-0, RUNS-1 …; finished ones are not trained again')
parser.add_argument('--out', help='write the scores here, as JSON')
recipe = get_recipe(parser.parse_known_args()[0].recipe)
_add_recipe_arguments(parser, recipe)
args = parser.parse_args()
changes = {k: v for k, v in vars(args).items() if k in flatten_recipe(recipe)}

runs = [Path(f'{args.runs}-{seed}') for seed in range(args.seeds)]
for seed, run in enumerate(runs):
    if not (run / 'model.safetensors').exists(): train(get_recipe(args.recipe, **changes | dict(seed=seed)), args.dataset, run, args.data_dir, resume=True)
sources, references = load_test_split(runs[0])
scores, written = {}, {}
for name, members in [*((f'seed {seed}', [run]) for seed, run in enumerate(runs)), ('ensemble', runs)]:
    scores[name], written[name] = evaluate(Translator.from_pretrained(members), sources, references)
    print(name, *(f'{k}: {v:.2f}' if isinstance(v, float) else f'{k}: {v}' for k, v in scores[name].items()), sep='\n  ')
best = max(list(scores)[:-1], key=lambda name: scores[name]['sacreBLEU'])
difference, p = paired_bootstrap(written['ensemble'], written[best], references, recipe.data.preprocessing == 'moses_lc')
print(f'ensemble beyond {best}: {difference:+.2f} sacreBLEU, p = {p:.3f}')
if args.out: Path(args.out).write_text(json.dumps(dict(
    command='python benchmarks/ensemble.py ' + ' '.join(f"--{k} '{v}'" if ' ' in str(v) or '=' in str(v) else f'--{k} {v}' for k, v in vars(args).items() if v != parser.get_default(k)),
    machine=f'{platform.machine()}, {torch.get_num_threads()} threads, no GPU' if not torch.cuda.is_available() else torch.cuda.get_device_name(),
    versions={p: version(p) for p in ('annotated_transformer', 'torch', 'sacrebleu')}, recipe=args.recipe, changes=changes, corpus=args.dataset,
    sentences=len(sources), scores=scores, best=best, difference=difference, p=p), indent=1) + '\n')
