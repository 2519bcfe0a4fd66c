"""The paper's own run as one command: download and tokenise WMT14, train, average checkpoints, score newstest2014 (sections 5 and 6.1).

    python experiments/wmt14.py --pair en-de --model base --launch '--config_file configs/8gpu.yaml'

1. Data: WMT14 comes from the Hugging Face hub, or from a local copy in its schema (--data_dir). It is tokenised once, in runs/.data,
   for base and big alike: a shared vocabulary of 37,000 tokens (en-de) or 32,000 (en-fr).
2. Training: transformer_train with the recipe base (100,000 steps) or big (300,000; P_drop 0.1 for en-fr), by `accelerate launch` if its
   options are given as --launch. The paper's interval of ten minutes between checkpoints is counted in steps at its own speed, 1,500 (base) or
   600 (big): the average then does not depend on the hardware, or on where the run was interrupted.
3. Scores: the mean of the last 5 (base) or 20 (big) checkpoints translates newstest2014 with beam 4 and α 0.6.
4. Record: scores beside the paper's, commands, commits, machine, versions, and what fell short, in record.json; the model for Hugging
   Face's transformers with its model card in marian/.

Give the same command as often as needed: each call resumes where the last one ended, and a finished run is only printed. --max_minutes,
Ctrl-C and SIGTERM end the training with a checkpoint; only an interrupted tokenisation or scoring starts again.
For several machines train with configs/slurm.sh and the options that stage 2 prints (but --resume, which it adds), then give this command.

--dry_run takes the same path in about a minute on one CPU thread, with a tiny model and few steps, on the files train.en and train.de
(valid.*, test.* if you have them) of --data_dir. Its record, card and output say that it is a dry run and show no score of the paper.
Every field of the recipe is an option, such as --gradient_accumulation_steps 4 for less memory; the record names what differs from the paper.
"""
import argparse, json, os, shlex, signal, subprocess, sys, time
from contextlib import suppress
import psutil
import torch
from datasets import load_from_disk
from annotated_transformer.cli.arguments import _exit_with_usage_error
from annotated_transformer.cli.main import _exit_on_user_error
from annotated_transformer.data.preprocessing import _dataset_hash, preprocess_corpus
from annotated_transformer.export.transformers import to_transformers
from annotated_transformer.inference.evaluation import evaluate, load_test_split
from annotated_transformer.inference.translator import Translator
from annotated_transformer.model.config import count_parameters
from annotated_transformer.model.pretrained import _format_differences
from annotated_transformer.recipe import flatten_recipe, get_recipe, recipe_to_dict
from annotated_transformer.run_directory import RunDirectory
from annotated_transformer.training.run_setup import _diff_config
from annotated_transformer.utils.io import _sha256_file, atomic_write_text
from annotated_transformer.utils.validation import UserError
from recording import provenance, read_arguments

p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, usage='%(prog)s [OPTIONS]')
p.error = _exit_with_usage_error
p.add_argument('--pair', required=True, choices=['en-de', 'en-fr'], help='source and target language')
p.add_argument('--model', required=True, choices=['base', 'big'], help='recipe')
p.add_argument('--data_dir', help="WMT14 in the hub's schema, if not from the hub; with --dry_run the folder of the sample")
p.add_argument('--output_dir', help='run directory; default: runs/wmt14_PAIR_MODEL, or runs/dry_run_PAIR_MODEL')
p.add_argument('--launch', default='', help="options of accelerate launch, as one string (--launch='--num_processes 8'); without them one process trains")
p.add_argument('--max_minutes', type=float, help='end this call after so many minutes of training, with a checkpoint')
p.add_argument('--dry_run', action='store_true', help='try the command out on a small local sample')

PAPER_BLEU = {('en-de', 'base'): 27.3, ('en-de', 'big'): 28.4, ('en-fr', 'base'): 38.1, ('en-fr', 'big'): 41.8}     # Table 2
PAPER_PAIRS = {'en-de': 4.5e6, 'en-fr': 36e6}                                                                      # section 5.1
BLEU, N_TEST, DRY_RUN_TEST = 'tokenised compound-split BLEU', 3003, 100
FREE = 'seed', 'gradient_accumulation_steps', 'gradient_checkpointing', 'loss_chunk_size', 'cpu_matmul_backend'    # same model, or one as good
DRY_RUN = dict(vocab_size=2000, N=2, d_model=64, d_ff=128, h=4, max_len=100, max_tokens=1024, max_steps=200, warmup_steps=50, peak_lr=5e-3)
NOTICE = ('**Dry run, not a result.** A tiny model saw a small sample for a few steps, to try the command out. '
          'Its scores say nothing about WMT14 or the paper.')

def paper_settings(pair, model):
    "Changes to the recipe that the paper asks for."
    changes = dict(save_every=dict(base='1500 steps', big='600 steps')[model])
    if pair == 'en-fr': changes |= dict(vocab_size=32000) | (dict(P_drop=.1) if model == 'big' else {})
    return changes

def steps_done(run): return max((int(c.name[-8:]) for c in run.checkpoints('*')), default=0)

def is_finished(run, max_steps):
    "Whether the last step is done and its average written after it."
    average = run.average_file
    return steps_done(run) == max_steps and average.is_file() and average.stat().st_mtime >= run.checkpoints('*')[-1].stat().st_mtime

def prepare(run, recipe, corpus, data_dir, show):
    "Download and tokenise, in this process, before any GPU waits; the training finds it in the cache."
    config = recipe.preprocessing_config
    folder = run.path.resolve().parent / '.data' / _dataset_hash(config, corpus, data_dir)
    if not folder.exists():
        show(f'1 of 4, data: {corpus[0]} from {data_dir or "the Hugging Face hub"} is read and tokenised, {config.vocab_size:,} tokens; next: training')
        preprocess_corpus(config, corpus, data_dir, folder)
    show(f'1 of 4, data: {len(load_from_disk(folder / "train")):,} pairs to train on, in {os.path.relpath(folder)}')

def stop(child, launched):
    "SIGTERM to the training processes alone, which save a checkpoint; a launcher that gets it kills them after 30 seconds."
    with suppress(psutil.Error, OSError):
        for process in psutil.Process(child.pid).children() if launched else [child]: process.terminate()

def train_piece(run, arguments, a, show):
    "Train until the end, --max_minutes or a signal, and append a line to pieces.jsonl. Raises KeyboardInterrupt after a signal."
    launcher = ['accelerate.commands.launch', *shlex.split(a.launch), '-m'] if a.launch else []
    start, before, interrupted, stopped = time.time(), steps_done(run), False, False
    child = subprocess.Popen([sys.executable, '-m', *launcher, 'annotated_transformer.training', *arguments], start_new_session=True)
    try:
        try: status = child.wait(a.max_minutes and 60 * a.max_minutes)
        except (subprocess.TimeoutExpired, KeyboardInterrupt) as e:
            interrupted, stopped = isinstance(e, KeyboardInterrupt), True
            print()                                                            # after the progress bar
            show('the time is up' * (not interrupted) + 'interrupted' * interrupted + ': waiting for the checkpoint')
            stop(child, a.launch)
            status = child.wait()
    finally:
        if child.poll() is None: os.killpg(child.pid, signal.SIGKILL)          # a second Ctrl-C
    after = steps_done(run)
    if run.path.is_dir():
        with open(run.path / 'pieces.jsonl', 'a') as f: f.write(json.dumps(provenance('torch', 'accelerate', 'datasets', 'sentencepiece') | dict(
            from_step=before, to_step=after, minutes=(time.time() - start) / 60, gpus=torch.cuda.device_count())) + '\n')
    if interrupted: raise KeyboardInterrupt(f'interrupted at step {after:,}; next: the same command continues')
    if status and not stopped: sys.exit(status)                                # the training has printed its error

def shortfalls(run, pair, model, scores, n_test, dry_run):
    "What differs from the paper's run, or is below it: one sentence each."
    recipe, paper, n_pairs = run.recipe, PAPER_BLEU[pair, model], len(load_from_disk(run.data / 'train'))
    averaged = len(run.checkpoints()[-recipe.checkpoints.average_checkpoints:])
    wanted = flatten_recipe(get_recipe(model, **paper_settings(pair, model)))
    settings = [f'{k} {v} ({wanted[k]})' for k, v in flatten_recipe(recipe).items() if k not in FREE and v != wanted[k]]
    lines = [f"settings, and in brackets the paper's: {', '.join(settings)}"] if settings else []
    if averaged < recipe.checkpoints.average_checkpoints: lines.append(f'the mean is of {averaged} checkpoints')
    if n_test != N_TEST: lines.append(f'{n_test:,} test sentences, newstest2014 has {N_TEST:,}')
    if abs(n_pairs / PAPER_PAIRS[pair] - 1) > .05: lines.append(f'{n_pairs:,} training pairs, the paper has about {PAPER_PAIRS[pair] / 1e6:g} million')
    if BLEU not in scores: lines.append(f'no {BLEU}: the references are too short')
    elif not dry_run and scores[BLEU] < paper: lines.append(f'{BLEU} is {paper - scores[BLEU]:.2f} below the paper')
    lines.append('the vocabulary is made by SentencePiece from raw text, not by the BPE tools of the paper')
    if pair == 'en-fr': lines.append('the paper does not say how French was tokenised for BLEU')
    if (pair, model) == ('en-fr', 'big'): lines.append("41.8 is Table 2's of the arXiv version; its section 6.1 and the NIPS version have 41.0")
    return lines

def score(run, a, show):
    "Translate and score the test split with the averaged weights, and write the translations and the record."
    (sources, references), (_, target) = load_test_split(run), a.pair.split('-')
    if a.dry_run: sources, references = sources[:DRY_RUN_TEST], references[:DRY_RUN_TEST]
    name = 'newstest2014' if not a.dry_run and len(sources) == N_TEST else f'test split of {a.data_dir or "wmt14"}'
    show(f'3 of 4, scores: {len(sources):,} sentences of {name} are translated with beam 4 and α 0.6; next: record and model card')
    scores, hypotheses = evaluate(Translator.from_pretrained(run), sources, references, beam=4, alpha=.6)
    atomic_write_text(run.path / f'translations.{target}', ''.join(h + '\n' for h in hypotheses))
    pieces = [json.loads(line) for line in (run.path / 'pieces.jsonl').read_text().splitlines()] if (run.path / 'pieces.jsonl').exists() else []
    n = run.recipe.checkpoints.average_checkpoints
    record = (dict(dry_run=NOTICE.replace('*', '')) if a.dry_run else {}) | dict(
        pair=a.pair, model=a.model, test=name, test_sentences=len(sources), scores=scores, paper=None if a.dry_run else {BLEU: PAPER_BLEU[a.pair, a.model]},
        fell_short=shortfalls(run, a.pair, a.model, scores, len(sources), a.dry_run), averaged=[c.name for c in run.checkpoints()[-n:]], beam=4, alpha=.6,
        seed=run.recipe.seed, steps=steps_done(run), training_hours=sum(piece['minutes'] for piece in pieces) / 60, pieces=pieces,
        recipe=recipe_to_dict(run.recipe), parameters=count_parameters(run.recipe.model), training_pairs=len(load_from_disk(run.data / 'train')),
        validation=[m for m in run.metrics() if 'valid_loss' in m], weights_sha256=_sha256_file(run.average_file),
        scored_on=[torch.cuda.get_device_name(i) for i in range(torch.cuda.device_count())] or ['CPU'], samples=[*zip(sources, references, hypotheses)][:5],
        **provenance('torch', 'accelerate', 'datasets', 'sentencepiece', 'sacrebleu', 'sacremoses'))
    atomic_write_text(record_file(run, a), json.dumps(record, indent=1, ensure_ascii=False) + '\n')
    return record

def record_file(run, a): return run.path / ('dry_run.json' if a.dry_run else 'record.json')

def table(record):
    "Lines of Markdown: a table of the scores, ours and the paper's, and what describes them."
    paper, scores = record['paper'] or {}, record['scores']
    rows = [f"| {k} | {v:.2f} | {paper.get(k, '')} |" for k, v in scores.items() if not isinstance(v, str) and k != 'sentences/s']
    return ['| score | here | paper |', '|---|---|---|', *rows, '', f"sacreBLEU: {scores['95 % interval']} (95 % interval), signature `{scores['signature']}`"]

def write_card(run, record, a):
    "The model for transformers; its model card with the scores, and with what fell short."
    to_transformers(run, run.path / 'marian')
    path = run.path / 'marian/README.md'
    head, body = path.read_text(encoding='utf-8').split('\n---\n', 1)
    notice = f'\n# DRY RUN\n\n{NOTICE}\n' if a.dry_run else ''
    scores = [f"## Scores{' of a dry run' * a.dry_run}", '', f"{record['test']}, {record['test_sentences']:,} sentences, beam 4, α 0.6, mean of "
              f"{len(record['averaged'])} checkpoints, {record['steps']:,} steps, seed {record['seed']}:", '', *table(record)]
    atomic_write_text(path, '\n'.join([head, '---', notice + body, *scores, '', "What differs from the paper's run:", '', *(f'- {line}' for line in record['fell_short']), '']))
    return path

def main(a):
    def show(text): print(('dry run | ' if a.dry_run else '') + text, flush=True)
    if a.dry_run and not a.data_dir: raise UserError('--dry_run needs --data_dir, a folder with ' + ' and '.join(f'train.{lang}' for lang in a.pair.split('-')))
    changes, again = paper_settings(a.pair, a.model), shlex.join(['python', *sys.argv])
    if a.dry_run: changes |= DRY_RUN | dict(save_every=dict(base='20 steps', big='10 steps')[a.model])
    changes |= a.changes
    recipe, corpus = get_recipe(a.model, **changes), ('text' if a.dry_run else 'wmt14', *a.pair.split('-'))
    run = RunDirectory(a.output_dir or f"runs/{'dry_run' if a.dry_run else 'wmt14'}_{a.pair}_{a.model}")
    if run.config_file.is_file() and (differences := _diff_config(run, recipe, corpus)):
        raise UserError(f'{run} was started with a different {_format_differences(differences)}: choose another --output_dir')
    max_steps, n = recipe.schedule.max_steps, recipe.checkpoints.average_checkpoints
    if not is_finished(run, max_steps):
        prepare(run, recipe, corpus, a.data_dir, show)
        arguments = ['--recipe', a.model, '--dataset', corpus[0], '--source_lang', corpus[1], '--target_lang', corpus[2], '--output_dir', str(run), '--resume',
                     *(['--data_dir', a.data_dir] if a.data_dir else []), *(w for k, v in changes.items() for w in (f'--{k}', 'null' if v is None else str(v)))]
        show(f'2 of 4, training: from step {steps_done(run):,} to {max_steps:,}; the last {n} checkpoints are kept, each of '
             f'{12 * count_parameters(recipe.model) / 1e6:,.0f} MB; next: scores\n  transformer_train {shlex.join(arguments)}')
        train_piece(run, arguments, a, show)
        if not is_finished(run, max_steps): return show(f'step {steps_done(run):,} of {max_steps:,}, nothing is scored yet. Next: {again}')
    show(f'2 of 4, training: {max_steps:,} steps are done; {run.average_file} is the mean of {", ".join(c.name for c in run.checkpoints()[-n:])}')
    file = record_file(run, a)
    record = json.loads(file.read_text()) if file.is_file() else {}
    if record.get('weights_sha256') != _sha256_file(run.average_file): record = score(run, a, show)
    card = run.path / 'marian/README.md'
    if not card.is_file() or card.stat().st_mtime < file.stat().st_mtime: write_card(run, record, a)
    show('\n'.join([f"4 of 4, record: {record['test']}, {record['test_sentences']:,} sentences", *table(record), 'What differs from the paper\'s run:',
                    *(f'- {line}' for line in record['fell_short']), f'{file} is the record, {card} the model card. Nothing is left to do.']))

if __name__ == '__main__':
    for signum in (signal.SIGTERM, signal.SIGHUP): signal.signal(signum, signal.default_int_handler)
    with _exit_on_user_error(): main(read_arguments(p, 'base'))
