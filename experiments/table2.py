"""Table 2 in miniature: recurrent networks, ByteNet, ConvS2S and the Transformer on the captions of Multi30k, trained alike.

All learn from the same tokens in the same batches by the same loop. Each trains until it has spent the arithmetic of the
Transformer's updates, is scored, and goes on until it has spent their time (or first their time, where that ends earlier): after the
warm-up the rate falls with 1/√update whatever the end, so one run is read at two points. Time is processor time of one thread,
measured for all in turns. Warm-up and the distance of checkpoints are shares of the updates that the arithmetic buys. The peak of the
learning rate is chosen for each family on the validation captions, from the same list: after three tenths of these updates, the second
and third first, then the neighbour of the better, until both neighbours of the best are worse; then the two best go to the end with the
first seed, and the one that is better there is taken. The mean of the last five checkpoints, about a fifth of the run, translates
test_2016_flickr with beam 4 and α 0.6. Interrupted, it goes on where it was. Several processes may share the work, each with its
own --only; the one that finds all done writes the record.

    python experiments/table2.py --data data/multi30k --out nbs/results/table2.json
"""
import argparse, gc, json, shutil, time
from pathlib import Path
from statistics import median
import torch
from torch import nn
from annotated_transformer.analysis.table_2 import (
    bleu_by_length, _MODEL_FAMILIES, _count_step_flops)
from annotated_transformer.utils.plotting import n_parameters
from annotated_transformer.inference.evaluation import evaluate, load_test_split
from annotated_transformer.run_directory import RunDirectory
from annotated_transformer.model.seq2seq import build_model
from annotated_transformer.training.optimizer import adam
from annotated_transformer.data.preprocessing import load_batches
from annotated_transformer.recipe import get_recipe
from annotated_transformer.model.loss import label_smoothed_loss
from annotated_transformer.data.moses import moses_lc
from annotated_transformer.training.trainer import train
from annotated_transformer.inference.translator import Translator
from recording import ResultCache, add_corpus, provenance, read_arguments

p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
p.add_argument('--data', required=True, help='folder of Multi30k')
add_corpus(p)
p.add_argument('--families', nargs='+', default=['rnn_tiny', 'rnn_attention_tiny', 'bytenet_tiny', 'convs2s_tiny', 'transformer_tiny'],
               choices=_MODEL_FAMILIES, help='recipes to compare; one of them is the yardstick')
p.add_argument('--only', nargs='+', choices=_MODEL_FAMILIES, help='families that this process works at')
p.add_argument('--yardstick', default='transformer_tiny', help='whose arithmetic and time the others get')
p.add_argument('--updates', type=int, default=1200, help='of the yardstick')
p.add_argument('--rates', type=float, nargs='+', default=[3e-4, 1e-3, 3e-3, 1e-2, 3e-2, 1e-1], help='peaks of the learning rate to choose from, ascending')
p.add_argument('--probe', type=float, default=.3, help='share of the updates after which a rate is chosen')
p.add_argument('--seeds', type=int, default=2)
p.add_argument('--rounds', type=int, default=5, help='of the measurement of time')
p.add_argument('--runs', type=Path, default=Path('runs/table2'), help='folder of the runs')
p.add_argument('--out', type=Path, help='the record, a JSON file')
LENGTH_BIN_EDGES = [0, 9, 11, 13, 16, 100]          # words of the source

def main(a):
    torch.set_num_threads(1)
    a.runs.mkdir(parents=True, exist_ok=True)
    corpus = '_'.join(a.corpus)
    once = ResultCache(a.runs / f'{corpus}_parts', {k: list(v) if k == 'corpus' else v for k, v in vars(a).items() if k not in ('out', 'runs', 'only', 'seeds')}).get_or_compute
    mine = a.only or a.families
    def recipe(name, **changes): return get_recipe(name, **a.changes | changes)
    def learn(run, name, steps, rate, seed=0, until=None):
        "Train `until` an update; warm-up and checkpoints are shares of `steps`."
        every = max(1, steps // 25)
        train(recipe(name, max_steps=until or steps, warmup_steps=max(1, 3 * steps // 20), save_every=f'{every} steps', average_checkpoints=5, peak_lr=rate, seed=seed),
              a.corpus, run, a.data, resume=True)
        gc.collect()

    def costs():
        "Arithmetic and time of an update of every family, on the same batches, in turns."
        run, found = a.runs / f'prepared_{corpus}', {}
        learn(run, a.yardstick, 1, 1e-3)
        data = load_batches(run / 'data/train', recipe(a.yardstick).data.max_tokens, 0, 0)
        batches = [data[i] for i in range(a.rounds + 1)]
        torch.manual_seed(0)
        models = {name: build_model(recipe(name).architecture, recipe(name).model).train() for name in a.families}
        optimizers = {name: adam(model) for name, model in models.items()}
        for name, model in models.items(): found[name] = dict(
            parameters=n_parameters(model), embeddings=sum(p.numel() for p in {id(m.weight): m.weight for m in model.modules() if isinstance(m, nn.Embedding)}.values()),
            flops=sum(_count_step_flops(model, *b) for b in batches) / len(batches), seconds_of_rounds=[])
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
    cost = once('cost', costs)
    of = lambda name, what: cost[a.yardstick][what] / cost[name][what]
    budget = {name: {what: max(1, round(a.updates * of(name, what))) for what in ('flops', 'seconds')} for name in a.families}

    def probe(name, rate):
        run, steps = a.runs / f'probe_{corpus}_{name}_{rate:g}', budget[name]['flops']
        learn(run, name, steps, rate, until=max(1, round(a.probe * steps)))
        found = dict(valid_loss=[m['valid_loss'] for m in RunDirectory(run).metrics() if 'valid_loss' in m][-1])
        shutil.rmtree(run)
        return found
    def peak(name):
        "Rates with their validation losses, tried from the middle of the list outwards until the best has two worse neighbours."
        tried, todo = {}, a.rates[1:3] or a.rates
        while todo:
            for rate in todo: tried[rate] = once(f'probe-{name}-{rate:g}', lambda: probe(name, rate))['valid_loss']
            best = a.rates.index(min(tried, key=tried.get))
            todo = [rate for rate in a.rates[max(0, best - 1):best + 2] if rate not in tried]
        return tried

    def score(run, steps):
        sources, references = load_test_split(run)
        translator = Translator.from_pretrained(run)
        scores, written = evaluate(translator, sources, references)
        tokens = moses_lc(written, translator.config['target_lang']), moses_lc(references, translator.config['target_lang'])
        lines = [m for m in RunDirectory(run).metrics() if 'valid_loss' in m]
        return {k: v for k, v in scores.items() if k != 'sentences/s'} | dict(
            updates=steps, by_length=bleu_by_length(sources, *tokens, LENGTH_BIN_EDGES), valid_loss=lines[-1]['valid_loss'],
            curve=[(m['step'], m['valid_loss']) for m in lines], samples=[*zip(sources, references, written)][:3])
    def scored(name, rate, seed, until):
        run = a.runs / f'{corpus}_{name}_{rate:g}_{seed}'
        learn(run, name, budget[name]['flops'], rate, seed, until)
        return score(run, until)
    read = lambda name, rate, seed, until: once(f'run-{name}-{rate:g}-{seed}-{until}', lambda: scored(name, rate, seed, until))
    def chosen(name):
        "The better at the end of the two rates that are best at first."
        two, until = sorted(probes[name], key=probes[name].get)[:2], min(budget[name].values())
        ends[name] = {f'{rate:g}': read(name, rate, 0, until)['valid_loss'] for rate in two}
        return min(two, key=lambda rate: ends[name][f'{rate:g}'])
    ends, probes = {}, {name: peak(name) for name in mine}
    rates = {name: chosen(name) for name in mine}
    for seed in range(a.seeds):
        for name in mine:
            for until in sorted({*budget[name].values()}): read(name, rates[name], seed, until)
    if {*mine} < {*a.families}: print('done: ' + ', '.join(mine) + '; without --only, the record is written when all are there'); return
    runs = {name: {what: [read(name, rates[name], seed, until) for seed in range(a.seeds)] for what, until in budget[name].items()} for name in a.families}
    done = provenance('torch', 'accelerate', 'sentencepiece', 'sacrebleu', 'sacremoses') | dict(
                corpus=corpus, updates=a.updates, yardstick=a.yardstick, edges=LENGTH_BIN_EDGES, budget=budget, cost=cost,
                rates=rates, probe={name: {f'{rate:g}': loss for rate, loss in tried.items()} for name, tried in probes.items()}, ends=ends, runs=runs)
    if a.out: a.out.write_text(json.dumps(done, indent=1, ensure_ascii=False) + '\n')
    for name in a.families:
        for what in ('flops', 'seconds'):
            print(f'{name:<19} same {what:<8} {budget[name][what]:>6} updates  BLEU',
                  ', '.join(f"{r['lower-cased tokenised BLEU']:.2f}" for r in runs[name][what]))

if __name__ == '__main__': main(read_arguments(p, 'transformer_tiny'))
