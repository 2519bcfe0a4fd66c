"""Table 3 again: every row against base, many seeds, at a size for two processors or at the paper's.

A run is written down when it is scored, in a file of its own, so that an interruption costs at most what the run at hand has not
saved, and the same command goes on. Several processes may work at different --rows; the one that finds all done writes the record.
Base gets more seeds than the rows, since every row is compared with it; --second gives two more seeds to the rows that the first
ones left undecided. Runs of one seed share the order of their sentences.

    python experiments/table3.py --corpus multi30k_en_de --data data/multi30k --out nbs/results/table3.json
    python experiments/table3.py --scale paper --dry_run
    accelerate launch experiments/table3.py --scale paper --corpus wmt14_en_de --data data/wmt14 --rows A,B --seeds 1
"""
import argparse, json, os, platform, subprocess, sys, time
from importlib.metadata import version
from pathlib import Path
from statistics import mean
import torch
from accelerate import Accelerator
from datasets import load_from_disk
from annotated_transformer.config import count_parameters
from annotated_transformer.evaluation import evaluate, test_split
from annotated_transformer.hardware import peaks, train_flops, training_memory
from annotated_transformer.log import read_metrics
from annotated_transformer.models import load_model
from annotated_transformer.preparation import batches_of
from annotated_transformer.training import train
from annotated_transformer.translation import Translator
from annotated_transformer.update import validate
from annotated_transformer.variations import score_rank, table3, variation, verdicts

p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
p.add_argument('--scale', choices=('mini', 'paper'), default='mini', help='size of the models, batches and runs')
p.add_argument('--corpus', default='multi30k_en_de', help="as for transformer_train; the paper's is wmt14_en_de")
p.add_argument('--data', help='folder of the corpus')
p.add_argument('--rows', default='A,B,C,D,E', help="groups or rows to work at, e.g. 'A,D_ls0'; base is always among them")
p.add_argument('--seeds', type=int, default=2, help='of every row')
p.add_argument('--base_seeds', type=int, default=7, help='of base')
p.add_argument('--second', action='store_true', help='two more seeds for the rows that are undecided')
p.add_argument('--set', default='', help="changes to every run, e.g. 'steps=20' for a trial")
p.add_argument('--runs', type=Path, default=Path('runs/table3'), help='folder of the runs')
p.add_argument('--out', type=Path, help='the record, a JSON file')
p.add_argument('--dry_run', action='store_true', help='check and estimate only; needs no data')

def chosen(rows):
    "The rows that --rows names, base first."
    found = [row for row in table3 if any(row == word or row.startswith(f'{word}_') for word in rows.split(','))]
    if bad := [word for word in rows.split(',') if not any(row == word or row.startswith(f'{word}_') for row in table3)]:
        sys.exit(f'error: --rows: no row or group {bad[0]!r}; known: A, B, C, D, E, {", ".join(table3)}')
    return ['base', *(row for row in found if row != 'base')]

def estimate(rows, a, length=30, gpus=8, card='A100', share=.4):
    "Print what each run would need; its configuration is checked by making it."
    print(f'sentences of {length} tokens; {gpus} {card} at {share:.0%} of their peak in bfloat16\n'
          f'{"row":<10} {"parameters":>10} {"updates":>8} {"a GPU holds":>12} {"FLOPs":>8} {"hours":>8}')
    for row in rows:
        r = variation(row, a.scale, a.set)
        if r.tokens // gpus < r.model.max_len and a.scale == 'paper':
            print(f'{row}: a sentence of max_len={r.model.max_len} tokens has a batch of {r.tokens // gpus} to itself on each of {gpus} GPUs')
        flops = train_flops(r.model, r.tokens / length, length, length) * r.steps
        memory = training_memory(r.model, max(1, r.tokens // gpus // length), length, length)['peak']
        print(f'{row:<10} {count_parameters(r.model):>10,} {r.steps:>8,} {memory / 2**30:>8.2f} GiB {flops:>8.1e} '
              f'{flops / (gpus * peaks[card] * share) / 3600:>8.3f}')

@torch.no_grad()
def looks(model, run, n=20, least=16):
    "Of the encoder's heads over n validation sentences: how many singular values their scores use, and their largest weight."
    rank, largest = [], []
    for m in (heads := [layer.self_attn for layer in model.encoder.layers]): m.keep_weights = True
    for ids in [ids for ids in load_from_disk(run / 'data/valid')['src'] if len(ids) >= least][:n]:
        model.encode(torch.tensor([ids]))
        weights = torch.cat([m.weights[0] for m in heads])            # (N h, T, T)
        rank.append(score_rank(weights).mean().item()); largest.append(weights.amax(-1).mean().item())
    return dict(score_rank=mean(rank), largest_weight=mean(largest))

def score(run, recipe, accelerator):
    "Loss of the averaged model on the validation split (all processes), BLEU on the test split (the first)."
    model = accelerator.prepare(load_model(run))
    valid = batches_of(run / 'data/valid', max(recipe.tokens // accelerator.num_processes, recipe.model.max_len), 0, 0)
    with torch.no_grad(): loss, accuracy = validate(model, valid, accelerator)
    found = dict(loss=loss, accuracy=accuracy, parameters=count_parameters(recipe.model))
    if accelerator.is_main_process:
        found |= looks(load_model(run), run)
        scores, _ = evaluate(Translator.from_pretrained(run), *test_split(run))
        lines = read_metrics(run)
        found |= {k: v for k, v in scores.items() if k != 'sentences/s'} | dict(
            curve=[(m['step'], m['valid_loss']) for m in lines if 'valid_loss' in m], last_train_loss=[m['loss'] for m in lines if 'loss' in m][-1])
    return found

def main(a):
    rows = chosen(a.rows)
    if a.dry_run: return estimate(rows, a)
    accelerator = Accelerator()
    store, main_process = a.runs / f'{a.corpus}_{a.scale}_parts', accelerator.is_main_process
    store.mkdir(parents=True, exist_ok=True)
    said = dict(scale=a.scale, corpus=a.corpus, set=a.set)
    if not (store / 'settings.json').exists() and main_process: (store / 'settings.json').write_text(json.dumps(said))
    accelerator.wait_for_everyone()
    if (was := json.loads((store / 'settings.json').read_text())) != said: sys.exit(f'error: {store} was begun with {was}: choose another --runs')
    part = lambda row, seed: store / f'{row}-{seed}.json'
    def work(todo):
        for i, (row, seed) in enumerate(todo):
            if part(row, seed).exists(): continue
            run, recipe, start = a.runs / f'{a.corpus}_{a.scale}_{row}_{seed}', variation(row, a.scale, f'{a.set} seed={seed}'), time.time()
            train(recipe, a.corpus, run, a.data, resume=True)
            found = score(run, recipe, accelerator) | dict(seed=seed, minutes=round((time.time() - start) / 60, 1))
            accelerator.wait_for_everyone()
            if not main_process: continue
            new = part(row, seed).with_suffix('.new'); new.write_text(json.dumps(found)); new.replace(part(row, seed))
            left = sum(not part(*other).exists() for other in todo)
            print(f"{row}, seed {seed}: loss {found['loss']:.4f}, {found['minutes']} minutes; {left} runs left, "
                  f"about {left * found['minutes'] / 60:.1f} h", flush=True)
    everything = lambda rows: [(row, seed) for seed in range(max(a.seeds, a.base_seeds)) for row in rows if seed < (a.base_seeds if row == 'base' else a.seeds)]
    work(everything(rows))
    runs = lambda rows: {row: [json.loads(part(row, seed).read_text()) for seed in range(99) if part(row, seed).exists()] for row in rows}
    if a.second and main_process:
        undecided = [row for row, word in verdicts({row: [r['loss'] for r in found] for row, found in runs(rows).items()}).items() if word == 'undecided']
        print('undecided:', *undecided, flush=True)
        (store / 'second.json').write_text(json.dumps(undecided))
    accelerator.wait_for_everyone()
    if a.second: work([(row, seed) for seed in (a.seeds, a.seeds + 1) for row in json.loads((store / 'second.json').read_text())])
    if not main_process: return
    if missing := [f'{row}, seed {seed}' for row, seed in everything(chosen('A,B,C,D,E')) if not part(row, seed).exists()]:
        print(f'done; {len(missing)} runs of other rows are missing for the record, first {missing[0]}'); return
    commit = subprocess.run(['git', 'rev-parse', '--short', 'HEAD'], capture_output=True, text=True).stdout.strip()
    record = dict(command=' '.join(['python', *sys.argv]), commit=commit, machine=f'{platform.machine()}, {torch.get_num_threads()} thread of {os.cpu_count()} processors',
                  versions={m: version(m) for m in ('torch', 'accelerate', 'sentencepiece', 'sacrebleu', 'scipy')}, scale=a.scale, corpus=a.corpus,
                  expected={row: v.expected for row, v in table3.items()}, runs=runs(table3))
    if a.out: a.out.write_text(json.dumps(record, indent=1, ensure_ascii=False) + '\n')
    for row, found in record['runs'].items(): print(f'{row:<10}', ' '.join(f"{r['loss']:.4f}" for r in found))

if __name__ == '__main__': main(p.parse_args())
