"""Table 3 again: every row against base, many seeds, at a size for two processors or at the paper's.

A run is written down when it is scored, in a file of its own, so that an interruption costs at most what the run at hand has not
saved, and the same command goes on. Several processes may share the work; each writes the record of what is finished when it ends, and
says how many runs are missing. Runs of one seed share the order of their sentences. At the paper's size each run is started by
`accelerate launch`. The first table, untuned, was made at commit 16ba877 (two seeds a row, seven of base, two more for undecided rows).

With --tune the place of the normalisation, the peak of the learning rate and the warm-up are chosen first, for all rows, by the
validation loss of base with a seed of its own (equation 3's rate is 0.0051 here).

Planned around the tuned base, all else as in the first runs: five seeds of every row, paired with base's, and verdicts by the rule of
`analysis.statistics`. A run takes some 10 minutes of a thread, so rows are cut, never seeds, in the order of their worth:
E_learned, A_h1, B_dk16, A_h32, C_N2, C_N4, D_drop0, D_ls0; then C_N8, C_d256, C_d1024, B_dk32 and the others (95 runs, 16 hours).
Cut later, before any run of theirs: A_h4, A_h16, D_drop0.2 and D_ls0.2, of which the paper's text says nothing (20 runs, 4 hours).
Predicted before these runs, with the first table and two seeds of pre-norm's depth known: the best base has pre-norm and equation 3's
rate or twice it. By their loss, worse than base are h = 1, h = 32, d_k = 3, d_k = 6, N = 1, N = 2, half the d_model, half the d_ff,
P_drop = 0.2 and eps_ls = 0.2; better are twice the d_model, P_drop = 0 (six epochs give it nothing to prevent) and eps_ls = 0. Learned
positions differ by less than 0.03 nats; so do h = 4 and N = 4, too close for a verdict. h = 16 is worse by some 0.05. The rank
correlation with the paper's effects is at least 0.5.

Added when three seeds of twice the width were known to be far worse than base, at the rate tuned for base: that row alone at two lower
rates, with the seed of tuning: `transformer_train --recipe table3_mini --dataset multi30k --data_dir data/multi30k --norm pre --d_model 192
--warmup_steps 400 --peak_lr 0.005 --seed 100`, and 0.0025. Predicted: at one of them it ends below base's best loss in tuning, 2.084.

Added when readers asked for the control of the first table, whose third and fourth layers hurt at equation 3's rate of 0.0051: its rows of
depth, post-norm, at half of that rate and at a quarter. Predicted, before these runs, with base at half the rate known from tuning
(2.41): at 0.0025 four layers end at most 0.2 above three (0.76 at 0.0051) and three within 0.05 of two; at 0.00125 two, three and four
layers end within 0.05 of each other, all above their losses at 0.0025. So the rate explains most of what four layers lost, and pre-norm's
losses are not reached.

Added when four layers had ended 0.54 above three at 0.0025 and 0.34 at 0.00125 (one seed each): three and four layers at 0.0025 with a
warm-up of 800 steps in place of 400. Predicted, before these runs: four layers end at most 0.3 above three, since 5.3 finds that a deep
post-norm model needs its warm-up; three end within 0.1 of their 2.41, later in their schedule.

Added when that had come out (2.63 for four layers, 2.41 for three, last step, one seed): a second seed of it, and a warm-up of 1,600 steps,
to the last one. Predicted: with the second seed four layers end 0.1 to 0.35 above three; with 1,600 steps at most 0.1 above three, and
three above 2.41, since their rate is lower most of the way.

Added when readers asked how sure the one seed of the wider model at 0.005 is, on which the reading of the row depends: five seeds of it,
paired with the five of base at 0.01, each width at the best rate that was tried for it. Predicted: twice the width is ahead in all five
pairs, at the last step by 0.12 to 0.25 nats on average, averaged by 0.08 to 0.2.

Added when that had come out (ahead by 0.194, averaged): base itself at 0.005, five seeds, so that both widths have the same rate.
Predicted: averaged, base at 0.005 is within 0.03 nats of base at 0.01, and twice the width is ahead of it in all five pairs, by 0.16 to 0.22.

Added when a reader named the missing control of depth, post-norm at the paper's own peak rate: `--seeds 1 --norm post --warmup_steps 400
--peak_lr 0.0007`, three layers and four. Predicted: both end above 3 nats (last step), since the rate is low for 1,600 steps, and four
layers 0.1 to 0.4 above three.

    python experiments/table3.py --tune --data data/multi30k --out nbs/results/table3_tuned.json
    python experiments/table3.py --rows C_N2,C_N4,C_N8 --seeds 2 --norm post --warmup_steps 400 --peak_lr 0.0025 --data data/multi30k
    python experiments/table3.py --rows C_d1024 --norm pre --warmup_steps 400 --peak_lr 0.005 --data data/multi30k
    python experiments/table3.py --rows base --norm pre --warmup_steps 400 --peak_lr 0.005 --data data/multi30k
    python experiments/table3.py --scale paper --dry_run
    python experiments/table3.py --scale paper --dataset wmt14 --data data/wmt14 --rows A,B --seeds 1
"""
import argparse, json, os, subprocess, sys, time
from itertools import takewhile
from pathlib import Path
from statistics import mean
import torch
from accelerate import Accelerator
from datasets import load_from_disk
from annotated_transformer.model.config import count_parameters
from annotated_transformer.inference.evaluation import evaluate, load_test_split
from annotated_transformer.model.flops import PEAK_FLOPS, train_flops, training_memory
from annotated_transformer.run_directory import RunDirectory, load_model, RunLockedError
from annotated_transformer.data.preprocessing import load_batches
from annotated_transformer.training.trainer import train
from annotated_transformer.inference.translator import Translator
from annotated_transformer.training.train_step import ModelWithLoss, validate
from annotated_transformer.utils.validation import NonFiniteError
from annotated_transformer.analysis.table_3 import TABLE_3, table3_recipe
from recording import add_corpus, provenance, read_arguments

p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
p.add_argument('--scale', choices=('mini', 'paper'), default='mini', help='size of the models, batches and runs')
add_corpus(p)
p.add_argument('--data', help='folder of the corpus')
p.add_argument('--rows', default='A,B,C,D,E', help="groups or rows to work at and to record, e.g. 'A,D_ls0'; base is always among them")
p.add_argument('--seeds', type=int, default=5, help='of every row, and of base')
p.add_argument('--tune', action='store_true', help='choose norm, rate and warm-up of all rows by base')
p.add_argument('--runs', type=Path, default=Path('runs/table3'), help='folder of the runs')
p.add_argument('--out', type=Path, help='the record, a JSON file')
p.add_argument('--dry_run', action='store_true', help='check and estimate only; needs no data')

GRID = [dict(norm=norm, peak_lr=rate, warmup_steps=400) for norm, rate in (('post', .0025), ('pre', .0025), ('pre', None), ('pre', .01))]
LONG_WARMUP, TUNING_SEED = 800, 100      # no peak_lr: equation 3's

def select_rows(rows):
    "The rows that --rows names, base first."
    found = [row for row in TABLE_3 if any(row == word or row.startswith(f'{word}_') for word in rows.split(','))]
    if bad := [word for word in rows.split(',') if not any(row == word or row.startswith(f'{word}_') for row in TABLE_3)]:
        sys.exit(f'error: --rows: no row or group {bad[0]!r}; known: A, B, C, D, E, {", ".join(TABLE_3)}')
    return ['base', *(row for row in found if row != 'base')]

def estimate(rows, a, length=30, gpus=8, card='A100', share=.4):
    "Print what each run would need; its configuration is checked by making it."
    print(f'sentences of {length} tokens; {gpus} {card} at {share:.0%} of their peak in bfloat16\n'
          f'{"row":<10} {"parameters":>10} {"updates":>8} {"a GPU holds":>12} {"FLOPs":>8} {"hours":>8}')
    for row in rows:
        r = table3_recipe(row, a.scale, **a.changes)
        tokens, steps = r.data.max_tokens, r.schedule.max_steps
        if tokens // gpus < r.model.max_len and a.scale == 'paper':
            print(f'{row}: a sentence of max_len={r.model.max_len} tokens has a batch of {tokens // gpus} to itself on each of {gpus} GPUs')
        flops = train_flops(r.model, tokens / length, length, length) * steps
        memory = training_memory(r.model, max(1, tokens // gpus // length), length, length)['peak']
        print(f'{row:<10} {count_parameters(r.model):>10,} {steps:>8,} {memory / 2**30:>8.2f} GiB {flops:>8.1e} '
              f'{flops / (gpus * PEAK_FLOPS[card] * share) / 3600:>8.3f}')

def effective_rank(weights):
    """How many directions the scores behind attention weights use (…, T_q, T_k), nothing masked: exp of the entropy of the normalised squared
    singular values, at most d_k. (Roy and Vetterli, 2007, do not square them; squares weigh the large ones more.)"""
    scores = weights.clamp_min(1e-20).log()
    scores = scores - scores.mean(-1, keepdim=True)       # the softmax ignores the mean
    share = torch.linalg.svdvals(scores).square()
    share = share / share.sum(-1, keepdim=True)
    return (-share * share.clamp_min(1e-20).log()).sum(-1).exp()

@torch.no_grad()
def attention_statistics(model, run, n=20, least=16):
    "Of the encoder's heads over n validation sentences: how many singular values their scores use, and their largest weight."
    rank, largest = [], []
    for m in (heads := [layer.self_attn for layer in model.encoder.layers]): m.need_weights = True
    for ids in [ids for ids in load_from_disk(run / 'data/valid')['src'] if len(ids) >= least][:n]:
        model.encode(torch.tensor([ids]))
        weights = torch.cat([m.attn_weights[0] for m in heads])            # (N h, T, T)
        rank.append(effective_rank(weights).mean().item()); largest.append(weights.amax(-1).mean().item())
    return dict(score_rank=mean(rank), largest_weight=mean(largest))

def train_row(run, row, seed, a):
    "Train; one process here, as many as accelerate is configured for at the paper's size."
    changes = a.changes | dict(seed=seed)
    if a.scale == 'mini': return train(table3_recipe(row, **changes), a.corpus, run, a.data, resume=True)
    subprocess.run([sys.executable, '-m', 'accelerate.commands.launch', '-m', 'annotated_transformer.training', '--recipe', row, '--dataset', a.dataset, '--source_lang', a.source_lang, '--target_lang', a.target_lang,
                    *(['--data_dir', a.data] if a.data else []), '--output_dir', str(run), *(word for k, v in changes.items() for word in (f'--{k}', str(v))), '--resume'], check=True)

def score(run, recipe):
    "Loss of the averaged model on the validation split, BLEU on the test split, and what its heads look like."
    accelerator = Accelerator()
    model, lines = load_model(run).to(accelerator.device), RunDirectory(run).metrics()
    with torch.no_grad(): loss, accuracy = validate(ModelWithLoss(model), load_batches(run / 'data/valid', max(recipe.data.max_tokens, recipe.model.max_len), 0, 0), accelerator)
    scores, _ = evaluate(Translator.from_pretrained(run), *load_test_split(run))
    device = torch.cuda.get_device_name() if accelerator.device.type == 'cuda' else 'cpu'
    return dict(loss=loss, accuracy=accuracy, parameters=count_parameters(recipe.model), device=device, torch=torch.__version__) | attention_statistics(model.cpu().eval(), run) | {
        k: v for k, v in scores.items() if k != 'sentences/s'} | dict(
        curve=[(m['step'], m['valid_loss']) for m in lines if 'valid_loss' in m], last_train_loss=[m['loss'] for m in lines if 'loss' in m][-1])

def tune(store, runs, a):
    "The best settings of base: norm and rate from the grid, then a longer warm-up. Processes share the runs."
    def best_of(trials):
        for trial in trials:
            name = '-'.join(map(str, trial.values()))
            if (part := store / f'tune-{name}.json').exists(): continue
            try: train(table3_recipe('base', **a.changes | trial | dict(seed=TUNING_SEED)), a.corpus, run := runs / f'tune_{name}', a.data, resume=True)
            except RunLockedError: continue
            except NonFiniteError: loss = 1e9
            else: loss = RunDirectory(run).metrics()[-1]['valid_loss']
            write(part, trial | dict(loss=loss))
            print(f'{name}: {loss:.4f}', flush=True)
        parts = [store / f"tune-{'-'.join(map(str, trial.values()))}.json" for trial in trials]
        while not all(part.exists() for part in parts): time.sleep(1)
        return min((json.loads(part.read_text()) for part in parts), key=lambda t: t['loss'])
    best = {k: v for k, v in best_of(GRID).items() if k != 'loss'}
    return {k: v for k, v in best_of([best, best | dict(warmup_steps=LONG_WARMUP)]).items() if k != 'loss'}

def write(path, value):
    "A file is there whole or not at all."
    new = path.with_suffix(f'.{os.getpid()}'); new.write_text(json.dumps(value)); new.replace(path)

def main(a):
    rows = select_rows(a.rows)
    if a.dry_run: return estimate(rows, a)
    if a.scale == 'mini': torch.set_num_threads(1)
    name = '_'.join(a.corpus)
    store = a.runs / f'{name}_{a.scale}_parts'
    store.mkdir(parents=True, exist_ok=True)
    said, settings = dict(scale=a.scale, corpus=name, changes=a.changes), store / 'settings.json'
    if not settings.exists(): write(settings, said)
    if (was := json.loads(settings.read_text())) != said: sys.exit(f'error: {store} was begun with {was}: choose another --runs')
    if a.tune: a.changes |= tune(store, a.runs, a)
    part = lambda row, seed: store / f'{row}-{seed}.json'
    todo = [(row, seed) for seed in range(a.seeds) for row in rows]
    missing = lambda: [key for key in todo if not part(*key).exists()]
    for row, seed in todo:
        if part(row, seed).exists(): continue
        run, start = a.runs / f'{name}_{a.scale}_{row}_{seed}', time.time()
        try: train_row(run, row, seed, a)
        except RunLockedError:
            print(f'{row}, seed {seed}: another process is at it', flush=True); continue
        found = score(run, table3_recipe(row, a.scale, **a.changes | dict(seed=seed))) | dict(seed=seed, minutes=round((time.time() - start) / 60, 1))
        write(part(row, seed), found)
        left = len(missing())
        print(f"{row}, seed {seed}: loss {found['loss']:.4f}, {found['minutes']} minutes; {left} runs left, about {left * found['minutes'] / 60:.1f} h", flush=True)
    runs = {row: [json.loads(part(row, seed).read_text()) for seed in takewhile(lambda seed: part(row, seed).exists(), range(a.seeds))] for row in rows}
    record = provenance('torch', 'accelerate', 'sentencepiece', 'sacrebleu', 'scipy') | dict(scale=a.scale, corpus=name, changes=a.changes,
                  tuning=[json.loads(path.read_text()) for path in sorted(store.glob('tune-*.json'))], runs=runs)
    if a.out: a.out.write_text(json.dumps(record, indent=1, ensure_ascii=False) + '\n')
    if left := missing(): print(f'{len(left)} runs are missing, first {left[0]}')
    for row, found in runs.items(): print(f'{row:<10}', ' '.join(f"{r['loss']:.4f}" for r in found))

if __name__ == '__main__': main(read_arguments(p, 'table3_mini'))
