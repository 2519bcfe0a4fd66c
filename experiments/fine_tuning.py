"""Does a translator of captions learn everyday sentences sooner than a new one, and the reverse?

Two models of the recipe `multi30k_tiny`, one trained on captions (Multi30k), one on everyday sentences (Tatoeba), each go on
with the other's text. Beside each a new model learns the same text from nothing. Validation every ten updates, from before the first.
Vocabularies differ, so losses are in nats per character. Interrupted, it goes on where it was.

    python experiments/fine_tuning.py --captions data/multi30k --sentences data/eng-deu.tsv.gz --out nbs/results/fine_tuning.json
"""
import argparse, json, os, platform, subprocess, sys
from importlib.metadata import version
from pathlib import Path
from accelerate import Accelerator
from datasets import load_from_disk
from annotated_transformer.run_directory import RunDirectory, load_model
from annotated_transformer.data.preprocessing import load_batches
from annotated_transformer.recipe import get_recipe, with_overrides
from annotated_transformer.data.tokenizer import Tokenizer
from annotated_transformer.training.trainer import train
from annotated_transformer.training.train_step import ModelWithLoss, validate

p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
p.add_argument('--captions', required=True, help='folder of Multi30k')
p.add_argument('--sentences', required=True, help='file of tab-separated pairs, English and German')
p.add_argument('--runs', default='runs/fine_tuning', help='folder for the runs')
p.add_argument('--out', help='write the results to this JSON file, too')

# changes to the recipe of the models that fine-tuning begins with, of which the best by validation is taken; and of what is compared
PRETRAINING = [dict(max_steps=800, max_tokens=4096, peak_lr=1e-3, warmup_steps=200), dict(max_steps=300, max_tokens=4096, peak_lr=3e-3, warmup_steps=100)]
FINE_TUNING = dict(max_steps=120, max_tokens=4096, peak_lr=1e-3, warmup_steps=20, lr_scheduler_type='constant_with_warmup', save_every='10 steps', average_checkpoints=1, seed=1)

def format_overrides(changes): return ' '.join(f'{k}={v}' for k, v in changes.items())

def tokens_per_character(run, tokens):
    "Characters of the validation targets (their prepared text), so that losses of different vocabularies can be compared."
    t = Tokenizer.load(run)
    return tokens / sum(len(text) + 1 for text in t.decode(load_from_disk(run / 'data/valid')['tgt']))

def validation_curve(run, begins_with=None):
    "Validation loss in nats per character by update; that of update 0 is of the model that it begins with."
    config = RunDirectory(run).config
    valid = load_batches(run / 'data/valid', 4096, config['pad_id'], 0)
    tokens = sum((tgt[:, 1:] != config['pad_id']).sum().item() for _, tgt in (valid[i] for i in range(len(valid))))
    share = tokens_per_character(run, tokens)
    points = [(m['step'], m['valid_loss'] * share) for m in RunDirectory(run).metrics() if 'valid_loss' in m]
    if begins_with:
        model = load_model(begins_with)
        points = [(0, validate(ModelWithLoss(model), valid, Accelerator(cpu=True))[0] * share)] + points
    return dict(updates=[s for s, _ in points], nats_per_character=[x for _, x in points], characters_per_token=1 / share)

def last_loss(run):
    "Validation loss in nats per character, so that runs of one text can be compared."
    return validation_curve(run)['nats_per_character'][-1]

def pretrain(name, text, i, a):
    "A first model of a text, trained with the i-th settings."
    run = Path(a.runs) / f'first_{name}_{i}'
    if not (run / 'model.safetensors').exists(): train(get_recipe('multi30k_tiny', **PRETRAINING[i]), text[0], run, text[1], resume=True)
    return run

def main(a):
    texts = dict(captions=(('multi30k', 'en', 'de'), a.captions), sentences=(('text', 'en', 'de'), a.sentences))
    folder = Path(a.runs)
    first = {name: min((pretrain(name, text, i, a) for i in range(len(PRETRAINING))), key=last_loss) for name, text in texts.items()}
    curves = {}
    for name, other in (('sentences', 'captions'), ('captions', 'sentences')):      # learns `name`, comes from `other`
        tuned, fresh = folder / f'tuned_{name}_{first[other].name}', folder / f'fresh_{name}'
        if not (tuned / 'model.safetensors').exists(): train(with_overrides(RunDirectory(first[other]).recipe, **FINE_TUNING), texts[name][0], tuned, texts[name][1], resume=True, finetune_from=first[other])
        if not (fresh / 'model.safetensors').exists(): train(get_recipe('multi30k_tiny', **FINE_TUNING), texts[name][0], fresh, texts[name][1], resume=True)
        curves[name] = dict(tuned=validation_curve(tuned, first[other]), fresh=validation_curve(fresh))
    commit = subprocess.run(['git', 'rev-parse', '--short', 'HEAD'], capture_output=True, text=True).stdout.strip()
    results = dict(command=' '.join([Path(sys.argv[0]).name, *sys.argv[1:]]), commit=commit, machine=f'{platform.machine()}, {os.cpu_count()} processors',
                   versions={m: version(m) for m in ('torch', 'accelerate', 'sentencepiece')}, seeds=[1], before=[*map(format_overrides, PRETRAINING)], tuned=format_overrides(FINE_TUNING),
                   taken={name: format_overrides(PRETRAINING[int(run.name[-1])]) for name, run in first.items()}, first_losses={name: [last_loss(Path(a.runs) / f'first_{name}_{i}') for i in range(len(PRETRAINING))] for name in texts}, curves=curves)
    text = json.dumps(results, indent=1)
    if a.out: Path(a.out).write_text(text + '\n')
    for name, c in curves.items():
        before, *_, after = c['tuned']['nats_per_character']
        print(f"{name}: {before:.3f} nats per character before, {after:.3f} after {c['tuned']['updates'][-1]} updates; "
              f"from nothing {c['fresh']['nats_per_character'][-1]:.3f}")

if __name__ == '__main__': main(p.parse_args())
