"""BLEU of all validation captions by the kept checkpoints of finished runs of the published recipe, translated as in the speedrun: is its target in reach?

    python experiments/speedrun/finished.py runs/multi30k_en_de_seed0 runs/multi30k_en_de_seed1 --data data/multi30k
"""
import argparse, json, sys
from pathlib import Path
sys.path.insert(0, str(Path(__file__).resolve().parent))
from annotated_transformer.cli.main import _exit_on_user_error
from annotated_transformer.data.corpora import load_corpus
from annotated_transformer.run_directory import RunDirectory, load_model
from speedrun import CORPUS, HERE, validation_bleu
from recording import provenance

p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
p.add_argument('runs', nargs='+', type=Path, help='finished runs of multi30k_tiny')
p.add_argument('--data', required=True, help='folder of Multi30k')

def score_checkpoints(run, sources, references):
    "The steps of the kept checkpoints of a run and their BLEU."
    run = RunDirectory(run)
    bleu = {int(c.name[-8:]): validation_bleu(load_model(run.path, c / 'model.safetensors'), run, sources, references) for c in run.checkpoints()}
    return dict(seed=run.recipe.seed, n_valid=len(sources), steps=[*bleu], bleu=[*bleu.values()])

def main(a):
    sources, references = (list(load_corpus(CORPUS, a.data)['valid'][side]) for side in ('source', 'target'))
    record = provenance('torch', 'sentencepiece', 'sacrebleu', 'sacremoses')
    runs = [score_checkpoints(run, sources, references) | record for run in a.runs]
    (HERE / 'finished.json').write_text(json.dumps(runs, indent=1) + '\n')
    for run in runs: print(f"seed {run['seed']}:", ' '.join(f'{bleu:.2f}' for bleu in run['bleu']))

if __name__ == '__main__':
    with _exit_on_user_error(): main(p.parse_args())
