"""Section 2, one task for eleven systems: the target is the source, n random letters; the LSTMN also with sinusoids added to its
tokens. And its second form: at each position of a line, predict what stood some places before. See nbs/library/analysis/echo.ipynb.

Adam with one cycle of the learning rate up to 0.01, at most 400 updates of 32 lines; a system that has predicted 20 batches
in a row without an error is finished. Nothing is tuned for any system. Updates depend on no clock. Interrupted, the same command
continues; several with other --seeds may share the work.

Which lags a stack learns: those that few of its layers must look back for, or those divisible by four? Predicted before lags 18 and 28:
18 (two layers, not divisible by four) is learned, 28 (three layers, divisible by four) is not. And with 2,000 updates 28 and 22 are.

Is it only the rate? The dilated stack also at lower peak rates, for lags of one, two and three layers (--rates); and at the lowest for
2,000 updates, for lags of three and four layers. Predicted before these: 22 (three layers, four ways) is learned by two seeds of three or
more, 28 (three layers) leaves chance with one or more, 23 (four layers) with none.

Does the LSTMN without positions learn to copy, given more time and other rates (--lstmn: three rates, at most 2,000 updates)? Predicted
before these runs: 8 letters are learned (95 % right) at its best rate by two seeds of three or more, 16 by none.

    python experiments/echo.py --out nbs/results/echo.json      # some minutes on one thread
    python experiments/echo.py --rates --out nbs/results/echo_rates.json        # likewise
    python experiments/echo.py --lstmn --out nbs/results/echo_lstmn.json        # likewise
"""
import argparse, json
from pathlib import Path
import torch
from annotated_transformer.analysis.echo import draw_echo, echo_accuracy, _echo_logits, _lagged_loss, _lagged_model, _D, _SequenceEcho, _V
from annotated_transformer.analysis.echo_systems import ECHO_SYSTEMS, _count_connections
from annotated_transformer.background.self_attention import LSTMN
from annotated_transformer.model.positional_encoding import positional_encoding
from recording import ResultCache, provenance

LENGTHS, SEEDS, UPDATES, PEAK = [8, 16], [0, 1, 2], 400, .01
STACKS = {'convolutions': [1, 1, 1, 1], 'dilated convolutions': [1, 2, 4, 8], 'one layer of attention': []}
LAGS = {'convolutions': [2, 4, 6, 8], 'dilated convolutions': [8, 16, 18, 20, 24, 28, 22, 23], 'one layer of attention': [2, 8, 16, 20, 22, 23]}
LONGER, LONGER_LAGS = 2000, {'dilated convolutions': [28, 22]}     # more updates, for lags of three layers
RATES, RATE_LAGS = [.003, .001], [16, 24, 28, 22]     # lower rates, for some of the lags
SLOW_LAGS = [22, 28, 23]                              # more updates at the lowest of these rates

LSTMN_RATES = [.01, .003, .001]

class PlacedLSTMN(LSTMN):
    "With sinusoids added to its tokens."
    def forward(self, x): return super().forward(x + positional_encoding(*x.shape[1:]))

MODELS = {name: system.model for name, system in ECHO_SYSTEMS.items()} | {'LSTMN with sinusoids': lambda n: _SequenceEcho(PlacedLSTMN(_D, _D))}

def optimizer_of(model, updates=UPDATES, peak=PEAK):
    optimizer = torch.optim.Adam(model.parameters(), peak)
    return optimizer, torch.optim.lr_scheduler.OneCycleLR(optimizer, peak, max(updates, UPDATES), pct_start=.1, cycle_momentum=False)

def step(model, optimizer, schedule, loss):
    optimizer.zero_grad(); loss.backward()
    torch.nn.utils.clip_grad_norm_(model.parameters(), 1.)
    optimizer.step(); schedule.step()

def learn(name, n, seed, updates, peak=PEAK):
    "Updates made, and the share of letters that are right in 1,000 new lines."
    torch.manual_seed(seed)
    model = MODELS[name](n).train()
    optimizer, schedule = optimizer_of(model, updates, peak)
    faultless = done = 0
    while done < updates and faultless < 20:
        x = draw_echo(n)
        logits = _echo_logits(model, x)
        faultless = faultless + 1 if (logits.argmax(-1) == x).all() else 0
        step(model, optimizer, schedule, torch.nn.functional.cross_entropy(logits.mT, x))
        done += 1
    return dict(updates_made=done, accuracy=echo_accuracy(model, draw_echo(n, 1000)))

def learn_lag(stack, lag, seed, updates, peak=PEAK):
    "Mean loss of the last ten updates, at each position of lines of 40, of the letter that stood `lag` places before."
    torch.manual_seed(seed)
    model, losses = _lagged_model(STACKS[stack]).train(), []
    optimizer, schedule = optimizer_of(model, updates, peak)
    for _ in range(updates):
        loss = _lagged_loss(model, torch.randint(5, (16, 40)), lag)
        losses.append(loss.item())
        step(model, optimizer, schedule, loss)
    return dict(loss=sum(losses[-10:]) / len(losses[-10:]))

def counted(name):
    torch.manual_seed(0)
    return {n: _count_connections(ECHO_SYSTEMS[name], n) for n in LENGTHS}

def learn_rates(a):
    "Losses of the dilated stack by peak rate and lag."
    stack, cache = 'dilated convolutions', ResultCache(a.runs or Path('runs/echo_rates' + '_tiny' * a.tiny), dict(updates=5 if a.tiny else UPDATES))
    def losses(lag, peak, updates=UPDATES):
        key = f'lag {lag}, rate {peak}' + f', {updates} updates' * (updates != UPDATES)
        return [cache.get_or_compute(f'{key}, seed {seed}', lambda: learn_lag(stack, lag, seed, 5 if a.tiny else updates, peak))['loss']      # noqa: B023
                for seed in a.seeds]
    loss = {peak: {lag: losses(lag, peak) for lag in RATE_LAGS} for peak in RATES}
    longer = dict(peak_lr=min(RATES), updates=LONGER, loss={lag: losses(lag, min(RATES), LONGER) for lag in SLOW_LAGS})
    return provenance('torch') | dict(stack=stack, updates=UPDATES, seeds=a.seeds, loss=loss, longer=longer)

def learn_longer(a):
    "Accuracies of the LSTMN without positions by peak rate and number of letters, with more updates."
    updates = 5 if a.tiny else LONGER
    cache = ResultCache(a.runs or Path('runs/echo_lstmn' + '_tiny' * a.tiny), dict(updates=updates))
    runs = {peak: {n: [cache.get_or_compute(f'rate {peak}, n = {n}, seed {seed}', lambda: learn('LSTMN', n, seed, updates, peak))      # noqa: B023
                       for seed in a.seeds] for n in LENGTHS} for peak in LSTMN_RATES}
    return provenance('torch') | dict(system='LSTMN', updates=updates, seeds=a.seeds) | {
        key: {peak: {n: [run[key] for run in found] for n, found in by_length.items()} for peak, by_length in runs.items()} for key in ('accuracy', 'updates_made')}

def main(a):
    torch.set_num_threads(1)
    if a.rates or a.lstmn:
        record = learn_longer(a) if a.lstmn else learn_rates(a)
        if a.out: a.out.write_text(json.dumps(record, indent=1, ensure_ascii=False) + '\n')
        return
    settings = dict(lengths=LENGTHS, updates=5 if a.tiny else UPDATES, batch_size=32, letters=_V - 3, peak_lr=PEAK)
    cache = ResultCache(a.runs or Path('runs/echo' + '_tiny' * a.tiny), settings)
    runs = {name: {n: [cache.get_or_compute(f'{name}, n = {n}, seed {seed}', lambda: learn(name, n, seed, settings['updates']))      # noqa: B023
                       for seed in a.seeds] for n in LENGTHS} for name in a.systems}
    lagged = {stack: {lag: [cache.get_or_compute(f'{stack}, lag {lag}, seed {seed}', lambda: learn_lag(stack, lag, seed, settings['updates']))['loss']      # noqa: B023
                            for seed in a.seeds] for lag in lags} for stack, lags in LAGS.items()} if a.lags else {}
    longer = {stack: {lag: [cache.get_or_compute(f'{stack}, lag {lag}, {LONGER} updates, seed {seed}', lambda: learn_lag(stack, lag, seed, 5 if a.tiny else LONGER))['loss']      # noqa: B023
                            for seed in a.seeds] for lag in lags} for stack, lags in LONGER_LAGS.items()} if a.lags else {}
    if not a.out: return
    record = provenance('torch') | settings | dict(seeds=a.seeds) | {
        key: {name: {n: [run[key] for run in found] for n, found in by_length.items()} for name, by_length in runs.items()}
        for key in ('accuracy', 'updates_made')} | dict(
        counts={name: counted(name) for name in runs if name in ECHO_SYSTEMS}, lagged=lagged, lagged_longer=dict(updates=LONGER, loss=longer))
    a.out.write_text(json.dumps(record, indent=1, ensure_ascii=False) + '\n')

p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
p.add_argument('--systems', nargs='+', default=[*MODELS], choices=[*MODELS], metavar='NAME', help='default: all')
p.add_argument('--seeds', type=int, nargs='+', default=SEEDS)
p.add_argument('--no_lags', dest='lags', action='store_false', help='without the second form of the task')
p.add_argument('--rates', action='store_true', help='the second form only, at lower rates')
p.add_argument('--lstmn', action='store_true', help='the first form only, of the LSTMN, at other rates and with more updates')
p.add_argument('--runs', type=Path, help='folder for what is finished; default runs/echo')
p.add_argument('--out', type=Path, help='the record, a JSON file')
p.add_argument('--tiny', action='store_true', help='a trial of seconds: five updates, nothing to keep')
if __name__ == '__main__': main(p.parse_args())
