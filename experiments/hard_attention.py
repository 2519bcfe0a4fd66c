"""Section 2b in numbers: soft attention, exact sums over all places, and REINFORCE with its helpers, without each, and without all.

Trained on 800 number names below 1000 by `numbers.fit`, letter by letter; every 50 updates 200 other names are written, by
looking at the mean of all places (soft) or at the likeliest one. What is finished is kept in --out.

    python experiments/hard_attention.py --out nbs/results/hard_attention.json
"""
import argparse, json, platform, subprocess, sys, time
from importlib.metadata import version
from pathlib import Path
import torch
from annotated_transformer.background.hard_attention import (
    lower_bound_loss, marginal_loss, reinforce_loss)
from annotated_transformer.background.recurrent import (
    RecurrentConfig, RecurrentTranslator)
from annotated_transformer.data.number_names import (
    exact_match, train_toy, number_names, random_batches, seeded_shuffle, SYMBOLS, teacher_forcing_loss)

class HardAttentionTranslator(RecurrentTranslator):
    "Looks at the likeliest place where it is asked to."
    choose = False
    def attend(self, query, state, t):
        seen = super().attend(query, state, t)
        return state['memory'].take_along_dim(self.attn_weights.argmax(-1)[..., None], 1) if self.choose else seen

TRAINING_METHODS = {'soft': lambda: teacher_forcing_loss, 'marginal, exact': lambda: marginal_loss, 'bound, enumerated': lambda: lower_bound_loss,
        'REINFORCE, all helpers': reinforce_loss, 'without soft batches': lambda: reinforce_loss(soft_prob=0.),
        'without entropy': lambda: reinforce_loss(entropy_weight=0.), 'without baseline': lambda: reinforce_loss(baseline=False),
        'one reward for all steps': lambda: reinforce_loss(per_token_reward=False),
        'without all four': lambda: reinforce_loss(soft_prob=0., entropy_weight=0., baseline=False, per_token_reward=False)}

def run(way, seed, steps, every):
    numbers = seeded_shuffle(range(1000), seed=0)
    train, test = number_names(numbers[:800]), number_names(numbers[800:])
    torch.manual_seed(seed)
    model = HardAttentionTranslator(RecurrentConfig(len(SYMBOLS), 48, score='general', P_drop=0., max_len=80))
    points, loss = [], TRAINING_METHODS[way]()
    def watched(model, *batch):
        if watched.step % every == 0:
            kept = torch.get_rng_state()
            model.eval(); model.choose = way != 'soft'
            points.append(dict(step=watched.step, exact=sum(exact_match(model, test)) / len(test)))
            model.train(); model.choose = False
            torch.set_rng_state(kept)
        watched.step += 1
        return loss(model, *batch)
    watched.step = 0
    losses = train_toy(model, random_batches(train, 32), steps, 1e-2, watched)
    model.choose = way != 'soft'
    points.append(dict(step=steps, exact=sum(exact_match(model, test)) / len(test)))
    return dict(seed=seed, points=points, last_loss=sum(losses[-20:]) / 20)

def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument('--out', type=Path, default=Path('nbs/results/hard_attention.json'), help='the record; what it holds already is not run again')
    p.add_argument('--seeds', type=int, default=3)
    p.add_argument('--steps', type=int, default=300)
    p.add_argument('--every', type=int, default=50, help='updates between two looks at the held-out names')
    args = p.parse_args()
    torch.set_num_threads(1)
    commit = subprocess.run(['git', 'rev-parse', '--short', 'HEAD'], capture_output=True, text=True).stdout.strip()
    record = json.loads(args.out.read_text()) if args.out.exists() else dict(
        command='python ' + ' '.join(sys.argv), commit=commit, machine=f'{platform.machine()}, one thread',
        versions={name: version(name) for name in ('torch', 'num2words')}, race={})
    for seed in range(args.seeds):
        for way in TRAINING_METHODS:
            runs = record['race'].setdefault(way, [])
            if any(r['seed'] == seed for r in runs): continue
            start = time.time()
            runs.append(run(way, seed, args.steps, args.every))
            print(f'{way}, seed {seed}: {runs[-1]["points"][-1]["exact"]:.1%} right, {(time.time() - start) / 60:.1f} minutes', flush=True)
            args.out.write_text(json.dumps(record, indent=1, ensure_ascii=False) + '\n')

if __name__ == '__main__': main()
