"""The speedrun of the original Transformer: train one seed of an entry until three evaluations in a row have a mean BLEU of 39.0 or more.

An entry is a recipe, entries/NAME.yaml, with at most one module beside it, entries/NAME.py, which is imported first. The library trains
it; every two epochs all validation captions are translated greedily and scored, off the clock. The log is NAME_seedN.json in --runs.
Give the same command again after an interruption or a crash: it resumes from the last checkpoint, and so does the clock.
README.md has the rules. Any field of the recipe is an option, for a trial, which is never a record.

    OMP_NUM_THREADS=2 CUDA_VISIBLE_DEVICES= python experiments/speedrun/speedrun.py published --seed 0 --data data/multi30k
"""
import argparse, hashlib, json, os, subprocess, sys
from pathlib import Path
from statistics import median
import torch
sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
from annotated_transformer.cli.arguments import _exit_with_usage_error, _import_user_module
from annotated_transformer.cli.main import _exit_on_user_error
from annotated_transformer.data.corpora import load_corpus
from annotated_transformer.data.moses import moses_lc
from annotated_transformer.data.preprocessing import load_batches
from annotated_transformer.inference.metrics import tokenized_bleu
from annotated_transformer.inference.translator import Translator
from annotated_transformer.model.pretrained import load_weights
from annotated_transformer.recipe import get_recipe, recipe_to_dict
from annotated_transformer.run_directory import RunDirectory
from annotated_transformer.training.run_setup import _init_model
from annotated_transformer.training.trainer import train
from annotated_transformer.utils.io import _sha256_file, atomic_write_text
from annotated_transformer.utils.validation import UserError
from recording import add_corpus, provenance, read_arguments

HERE = Path(__file__).resolve().parent
TARGET, CORPUS = 39., ('multi30k', 'en', 'de')
# of every entry, whatever its file has: how often it is scored, from which weights, and nothing ends it but the target and max_steps
RULES = dict(save_every='2 epochs', average_checkpoints=1, early_stopping_patience=None)
NOMINAL_SPEED = 4096           # reference target tokens a second of a standard hour: a unit, of the order of two idle cores

p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, usage='%(prog)s ENTRY [OPTIONS]')
p.error = _exit_with_usage_error
p.add_argument('entry', metavar='ENTRY', help='name of a file of entries/, or the path of a .yaml file')
add_corpus(p)
p.add_argument('--data', help='folder of the corpus')
p.add_argument('--target', type=float, default=TARGET, help='mean BLEU of three evaluations at which the clock stops')
p.add_argument('--runs', type=Path, default=Path('runs/speedrun'), help='folder of the runs and their logs')

class TargetReached(Exception):
    "Ends the training from its callback."

def entry_files(name):
    "The recipe of an entry and the module beside it, if there is one."
    path = Path(name) if Path(name).suffix == '.yaml' else HERE / f'entries/{name}.yaml'
    return [f for f in (path, path.with_suffix('.py')) if f.is_file() or f == path]

def load_entry(name, **changes):
    "The recipe of an entry under the rules of the race."
    path, *modules = entry_files(name)
    for module in modules: _import_user_module(str(module))
    return get_recipe(path, **RULES | changes)

def reference_speed():
    """Target tokens a second of PyTorch's own Transformer: how fast this machine is at this moment. It has no code in common with the
    entries and, in a process of its own, no settings either: a new version of this package does not change it."""
    env = os.environ | dict(OMP_NUM_THREADS=str(torch.get_num_threads()))
    return float(subprocess.check_output([sys.executable, HERE / 'reference.py'], env=env, text=True))

def training_seconds(run, model, start, end):
    """(undisturbed, wall-clock) seconds of the steps start + 1 to end, each counted once however often the run was interrupted. A line
    of metrics.jsonl has the target tokens a second of its ten steps, without validation, saving and translation; their tokens are counted
    again. Undisturbed are all tokens at the median speed of the lines, so that a minute of other work on the machine does not count."""
    data = run.recipe.data
    batches = load_batches(run.data / 'train', data.max_tokens, model.pad_id, run.recipe.seed, data.num_batch_buckets)
    tokens, speeds, before = [], [], start
    for line in run.metrics(end):
        if 'loss' not in line or line['step'] <= start: continue
        tokens.append(sum((model.labels(batches[i][1]) != model.pad_id).sum().item() for i in range(before, line['step'])))
        speeds.append(line['tokens_per_s'])
        before = line['step']
    return sum(tokens) / median(speeds), sum(n / speed for n, speed in zip(tokens, speeds))

def validation_bleu(model, run, sources, references):
    "Lower-cased tokenised BLEU of greedy translations of raw text, on Moses tokens whatever the entry's own tokens are."
    texts = [best for (best, _), in Translator([model], run.tokenizer, run.config).n_best(sources, beam=1, alpha=0.)]
    lang = run.config['target_lang']
    return tokenized_bleu(texts if run.config['preprocessing'] == 'moses_lc' else moses_lc(texts, lang), moses_lc(references, lang))

def hours(log):
    """(standard hours, wall-clock hours) of the training. Undisturbed seconds between two evaluations count by the mean of the reference
    speeds at both: a standard hour is an hour on a machine with the nominal speed."""
    rows = log['evaluations']
    standard = sum((b['seconds'] - a['seconds']) * (a['reference'] + b['reference']) / 2 for a, b in zip(rows, rows[1:])) / NOMINAL_SPEED
    return standard / 3600, rows[-1]['wall_seconds'] / 3600

def recent_bleu(rows):
    "Mean BLEU of the last three evaluations; the first row is the start."
    return sum(row['bleu'] for row in rows[1:][-3:]) / 3

def describe(log):
    "One line: the result."
    rows, (standard, wall) = log['evaluations'], hours(log)
    best = max((recent_bleu(rows[:i]) for i in range(4, len(rows) + 1)), default=0.)
    result = f'BLEU {recent_bleu(rows):.2f}' if log['reached'] else f"{log['target']:g} not reached (best {best:.2f})"
    return f"{log['entry']}, seed {log['seed']}: {result} at step {rows[-1]['step']}, {standard:.3f} standard hours ({wall:.3f} by the wall clock)"

def session(step):
    "Where and with which code the run is trained from a step on."
    changed = subprocess.run(['git', 'status', '--porcelain', '--untracked-files=no'], cwd=HERE, capture_output=True, text=True).stdout
    return dict(from_step=step, changed_files=bool(changed.strip()), threads=torch.get_num_threads(),
                device='cuda' if torch.cuda.is_available() else 'cpu', **provenance('torch', 'accelerate', 'sentencepiece', 'sacrebleu', 'sacremoses'))

def open_log(path, settings):
    "The log of a run, continued or new."
    log = json.loads(path.read_text()) if path.is_file() else settings | dict(reached=None, sessions=[], evaluations=[])
    changed = [name for name in settings if log[name] != json.loads(json.dumps(settings[name]))]
    if changed: raise UserError(f'{path} was begun with a different {changed[0]}: give the same, or choose another --runs')
    return log

def main(a):
    files, recipe = entry_files(a.entry), load_entry(a.entry, **a.changes)
    run = RunDirectory(a.runs / f'{files[0].stem}_seed{recipe.seed}')
    sources, references = (list(load_corpus(a.corpus, a.data)['valid'][side]) for side in ('source', 'target'))
    path = run.path.with_suffix('.json')
    log = open_log(path, dict(
        entry=files[0].stem, seed=recipe.seed, target=a.target, corpus=list(a.corpus), valid_sha256=hashlib.sha256('\n'.join(sources + references).encode()).hexdigest(),
        n_valid=len(sources), files={f.name: _sha256_file(f) for f in files}, trial={k: v for k, v in a.changes.items() if k != 'seed'}, recipe=recipe_to_dict(recipe)))
    rows = log['evaluations']
    def save():
        path.parent.mkdir(parents=True, exist_ok=True)
        atomic_write_text(path, json.dumps(log, indent=1) + '\n')

    def score(model, _, step):
        "The callback of the training: scores, writes the log, and ends the training at the target."
        bleu = validation_bleu(model, run, sources, references)
        seconds, wall = training_seconds(run, model, rows[-1]['step'], step)
        rows.append(dict(step=step, bleu=bleu, seconds=rows[-1]['seconds'] + seconds, wall_seconds=rows[-1]['wall_seconds'] + wall, reference=reference_speed()))
        reached = recent_bleu(rows) >= a.target
        if reached or step == recipe.schedule.max_steps: log['reached'] = reached
        save()
        print(f"\nstep {step}: BLEU {bleu:.2f}, {hours(log)[0]:.3f} standard hours", file=sys.stderr, flush=True)
        if log['reached']: raise TargetReached
        return dict(valid_bleu=bleu)

    if log['reached'] is None:
        checkpoints = run.checkpoints('*')
        log['sessions'].append(session(int(checkpoints[-1].name[-8:]) if checkpoints else 0))
        if not rows: rows.append(dict(step=0, bleu=0., seconds=0., wall_seconds=0., reference=reference_speed()))
        save()
        try:
            saved = run.checkpoints()
            if saved and (step := int(saved[-1].name[-8:])) > rows[-1]['step']:       # killed after a checkpoint, before its score was written
                model = _init_model(recipe, run)
                model.load_state_dict(load_weights(saved[-1] / 'model.safetensors', model), strict=False)
                score(model.eval(), run.path, step)
            if log['reached'] is None: train(recipe, a.corpus, run.path, a.data, resume=True, callback=score)
        except TargetReached: pass
    print(describe(log))

if __name__ == '__main__':
    with _exit_on_user_error(): main(read_arguments(p, 'multi30k_tiny'))
