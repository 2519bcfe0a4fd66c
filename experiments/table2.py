"""Table 2 in miniature: recurrent networks, ByteNet, ConvS2S and the Transformer on the captions of Multi30k, trained alike.

All learn from the same tokens in the same batches by the same loop. Each trains until it has spent the arithmetic of the
Transformer's updates, and once more for their time; time is processor time of one thread, measured for all in turns. Warm-up and
checkpoints are shares of a run's own updates. The peak of the learning rate is chosen for each family on the validation captions,
from the same list, after three tenths of its updates. The mean of the last five checkpoints, a fifth of the run, translates
test_2016_flickr with beam 4 and α 0.6. Interrupted, it goes on where it was.

    python experiments/table2.py --data data/multi30k --out nbs/results/table2.json
"""
import argparse, gc, json, os, platform, shutil, subprocess, sys, time
from importlib.metadata import version
from pathlib import Path
from statistics import median
import torch
from torch import nn
from annotated_transformer.comparison import bleu_by_length, families, update_flops
from annotated_transformer.core import n_parameters
from annotated_transformer.evaluation import evaluate, test_split
from annotated_transformer.log import read_metrics
from annotated_transformer.models import build
from annotated_transformer.optimizer import adam
from annotated_transformer.preparation import batches_of
from annotated_transformer.recipes import get_recipe
from annotated_transformer.regularization import label_smoothed_loss
from annotated_transformer.tokenizer import moses_lc
from annotated_transformer.training import train
from annotated_transformer.translation import Translator

p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
p.add_argument('--data', required=True, help='folder of Multi30k')
p.add_argument('--corpus', default='multi30k_en_de', help='or multi30k_de_en')
p.add_argument('--families', nargs='+', default=list(families), help='recipes to compare; one of them is the yardstick')
p.add_argument('--yardstick', default='transformer_tiny', help='whose arithmetic and time the others get')
p.add_argument('--updates', type=int, default=1000, help='of the yardstick')
p.add_argument('--rates', type=float, nargs='+', default=[3e-4, 1e-3, 3e-3, 1e-2], help='peaks of the learning rate to choose from')
p.add_argument('--probe', type=float, default=.3, help='share of the updates after which a rate is chosen')
p.add_argument('--seeds', type=int, default=2)
p.add_argument('--rounds', type=int, default=5, help='of the measurement of time')
p.add_argument('--set', default='', help="changes to every recipe, e.g. 'tokens=1024' for a trial")
p.add_argument('--runs', type=Path, default=Path('runs/table2'), help='folder of the runs')
p.add_argument('--out', type=Path, help='the record, a JSON file')
EDGES = [0, 9, 11, 13, 16, 100]          # words of the source

def main(a):
    torch.set_num_threads(1)
    a.runs.mkdir(parents=True, exist_ok=True)
    store = a.runs / f'{a.corpus}.json'
    record, said = json.loads(store.read_text()) if store.exists() else {}, {k: v for k, v in vars(a).items() if k not in ('out', 'runs')}
    if record.setdefault('settings', said) != said: sys.exit(f'error: {store} was begun with other settings, {record["settings"]}: choose another --runs')
    def once(*keys, make):
        "A part of the record: as it was found before, or made and written down."
        place = record
        for key in keys[:-1]: place = place.setdefault(key, {})
        if keys[-1] not in place:
            place[keys[-1]] = make()
            new = store.with_suffix('.new'); new.write_text(json.dumps(record)); new.replace(store)
            print(*keys, {k: v for k, v in place[keys[-1]].items() if not isinstance(v, (list, dict))}, flush=True)
        return place[keys[-1]]
    def recipe(name, changes=''): return get_recipe(name, ' '.join([a.set, changes]))
    def learn(run, name, steps, rate, seed=0, until=None):
        "Train `until` an update of a run of so many steps; all else are shares of these."
        every = max(1, steps // 25)
        train(recipe(name, f"steps={until or steps} warmup_steps={max(1, 3 * steps // 20)} save_every='{every} steps' average=5 peak_lr={rate} seed={seed}"),
              a.corpus, run, a.data, resume=True)
        gc.collect()

    def costs():
        "Arithmetic and time of an update of every family, on the same batches, in turns."
        run, found = a.runs / f'prepared_{a.corpus}', {}
        learn(run, a.yardstick, 1, 1e-3)
        data = batches_of(run / 'data/train', recipe(a.yardstick).tokens, 0, 0)
        batches = [data[i] for i in range(a.rounds + 1)]
        torch.manual_seed(0)
        models = {name: build(recipe(name).model).train() for name in a.families}
        optimizers = {name: adam(model) for name, model in models.items()}
        for name, model in models.items(): found[name] = dict(
            parameters=n_parameters(model), embeddings=sum(p.numel() for p in {id(m.weight): m.weight for m in model.modules() if isinstance(m, nn.Embedding)}.values()),
            flops=sum(update_flops(model, *b) for b in batches) / len(batches), seconds_of_rounds=[])
        for i, (src, tgt) in enumerate(batches):
            for name, model in models.items():
                start = time.process_time()
                loss, n = label_smoothed_loss(model(src, tgt[:, :-1]), tgt[:, 1:], .1)
                (loss / n).backward()
                nn.utils.clip_grad_norm_(model.parameters(), 1.)
                optimizers[name].step(); optimizers[name].zero_grad()
                if i: found[name]['seconds_of_rounds'].append(time.process_time() - start)      # the first warms up
        for name in found: found[name]['seconds'] = median(found[name]['seconds_of_rounds'])
        return found
    cost = once('cost', make=costs)
    of = lambda name, what: cost[a.yardstick][what] / cost[name][what]
    budget = {name: {what: max(1, round(a.updates * of(name, what))) for what in ('flops', 'seconds')} for name in a.families}

    def probe(name, rate):
        run, steps = a.runs / f'probe_{a.corpus}_{name}_{rate:g}', budget[name]['flops']
        learn(run, name, steps, rate, until=max(1, round(a.probe * steps)))
        found = dict(valid_loss=[m['valid_loss'] for m in read_metrics(run) if 'valid_loss' in m][-1])
        shutil.rmtree(run)
        return found
    for name in a.families:
        for rate in a.rates: once('probe', name, f'{rate:g}', make=lambda: probe(name, rate))
    rates = {name: min(a.rates, key=lambda rate: record['probe'][name][f'{rate:g}']['valid_loss']) for name in a.families}

    def score(run, steps):
        sources, references = test_split(run)
        translator = Translator.from_pretrained(run)
        scores, written = evaluate(translator, sources, references)
        tokens = moses_lc(written, translator.config['target']), moses_lc(references, translator.config['target'])
        lines = [m for m in read_metrics(run) if 'valid_loss' in m]
        return {k: v for k, v in scores.items() if k != 'sentences/s'} | dict(
            updates=steps, by_length=bleu_by_length(sources, *tokens, EDGES), valid_loss=lines[-1]['valid_loss'],
            curve=[(m['step'], m['valid_loss']) for m in lines], samples=[*zip(sources, references, written)][:3])
    for seed in range(a.seeds):
        for name in a.families:
            for what, steps in budget[name].items():
                if name == a.yardstick and what == 'seconds':           # the same run
                    record['runs'][name][f'{seed} seconds'] = record['runs'][name][f'{seed} flops']; continue
                run = a.runs / f'{a.corpus}_{name}_{what}_{seed}'
                def scored():
                    learn(run, name, steps, rates[name], seed)
                    return score(run, steps)
                once('runs', name, f'{seed} {what}', make=scored)
    commit = subprocess.run(['git', 'rev-parse', '--short', 'HEAD'], capture_output=True, text=True).stdout.strip()
    done = dict(command=' '.join(['python', *sys.argv]), commit=commit, machine=f'{platform.machine()}, one thread of {os.cpu_count()} processors',
                versions={m: version(m) for m in ('torch', 'accelerate', 'sentencepiece', 'sacrebleu', 'sacremoses')}, corpus=a.corpus, updates=a.updates,
                yardstick=a.yardstick, edges=EDGES, rates=rates, budget=budget) | record
    if a.out: a.out.write_text(json.dumps(done, indent=1, ensure_ascii=False) + '\n')
    for name in a.families:
        for what in ('flops', 'seconds'):
            runs = [record['runs'][name][f'{s} {what}'] for s in range(a.seeds)]
            print(f'{name:<19} same {what:<8} {runs[0]["updates"]:>6} updates  BLEU', ', '.join(f"{r['lower-cased tokenised BLEU']:.2f}" for r in runs))

if __name__ == '__main__': main(p.parse_args())
