"""The records of the speedrun: check and add the logs of an entry, and write the tables of README.md.

    python experiments/speedrun/records.py --add runs/speedrun/published_seed*.json
    python experiments/speedrun/records.py --cost runs/speedrun_cost/*.json      # logs of short trials
    python experiments/speedrun/records.py --clock runs/speedrun_noise/published_seed0.json
    python experiments/speedrun/records.py                                       # only the tables
"""
import argparse, json, re, shutil, sys
from pathlib import Path
from statistics import mean, stdev
sys.path.insert(0, str(Path(__file__).resolve().parent))
from annotated_transformer.analysis.statistics import Comparison, decide
from annotated_transformer.cli.arguments import _exit_with_usage_error
from annotated_transformer.cli.main import _exit_on_user_error
from annotated_transformer.recipe import flatten_recipe
from annotated_transformer.utils.io import _sha256_file
from annotated_transformer.utils.validation import UserError
from speedrun import CORPUS, HERE, TARGET, entry_files, hours, load_entry, recent_bleu

p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
p.error = _exit_with_usage_error
p.add_argument('--add', nargs='+', type=Path, default=[], metavar='LOG', help='logs of one entry; five seeds make a record')
p.add_argument('--cost', nargs='+', type=Path, default=[], metavar='LOG', help='logs of trials, one an entry, with the speed of its steps')
p.add_argument('--clock', type=Path, metavar='LOG', help='log of a trial with many evaluations on a busy machine')

SEEDS, THREADS, N_VALID, MARGIN = [0, 1, 2, 3, 4], 2, 1014, .05           # the margin in standard hours
# hours of an entry beside those of the published recipe: the claim, written before its runs
PREDICTIONS = dict(pre_norm='less', higher_rate='less', short_warmup='less', small_batch='less', small_vocabulary='less', bfloat16='less', consistency='greater')
RECORDS, COST, FINISHED, CLOCK = (HERE / f'{name}.json' for name in ('records', 'cost', 'finished', 'clock'))
RESULTS = HERE.parents[1] / 'nbs/results'

def read(path): return json.loads(path.read_text()) if path.is_file() else []
def write(path, value): path.write_text(json.dumps(value, indent=1, ensure_ascii=False) + '\n')

def read_log(path):
    "The log of a run."
    try:
        log = json.loads(path.read_text())
        for name in ('entry', 'seed', 'target', 'corpus', 'n_valid', 'trial', 'reached', 'files', 'sessions', 'evaluations'): log[name]
        return log
    except (ValueError, LookupError, TypeError) as e: raise UserError(f'{path} is not a log of speedrun.py ({e})') from e

def check_log(path, log):
    "Raises UserError naming the rule that a log does not keep."
    def rule(kept, text):
        if not kept: raise UserError(f'{path}: {text}')
    rule(not log['trial'], f"a trial with {log['trial']} is never a record: run the entry as it is")
    rule((log['target'], tuple(log['corpus']), log['n_valid']) == (TARGET, CORPUS, N_VALID), f'the target is {TARGET:g} on all {N_VALID:,} captions of Multi30k, en-de')
    rule(log['reached'] and recent_bleu(log['evaluations']) >= TARGET, f'{TARGET:g} was not reached: a record needs every seed')
    rule(log['entry'] in ('published', *PREDICTIONS), f"{log['entry']} has no line in PREDICTIONS of records.py: write it before the run")
    rule(log['files'] == {f.name: _sha256_file(f) for f in entry_files(log['entry'])}, f"its entry is not that of entries/: run {log['entry']} again")
    for s in log['sessions']: rule(s['threads'] == THREADS and s['device'] == 'cpu', f"{s['threads']} threads, {s['device']}: run with OMP_NUM_THREADS={THREADS} CUDA_VISIBLE_DEVICES=")
    rule(not any(s['changed_files'] for s in log['sessions']) and len({s['commit'] for s in log['sessions']}) == 1, 'train with one commit, without changed files')

def make_record(paths):
    "The record of an entry from the logs of its seeds. Raises UserError."
    logs = sorted(((read_log(path), path) for path in paths), key=lambda pair: pair[0]['seed'])
    for log, path in logs: check_log(path, log)
    entries, seeds = {log['entry'] for log, _ in logs}, [log['seed'] for log, _ in logs]
    if len(entries) > 1 or seeds != sorted({*seeds} & {*SEEDS}): raise UserError(f"--add: {', '.join(sorted(entries))} with seeds {seeds}: give the logs of one entry, seeds of {SEEDS}, each once")
    entry, sessions = *entries, [s for log, _ in logs for s in log['sessions']]
    last = [log['evaluations'][-1] for log, _ in logs]
    return dict(
        entry=entry, seeds=seeds, hours=[hours(log)[0] for log, _ in logs], wall_hours=[hours(log)[1] for log, _ in logs], steps=[row['step'] for row in last],
        bleu=[recent_bleu(log['evaluations']) for log, _ in logs], processors=sorted({s['processor'] for s in sessions}), commits=sorted({s['commit'] for s in sessions}),
        logs=[f'logs/{path.name}' for _, path in logs])

def mean_and_sd(values, digits=2): return f'{mean(values):.{digits}f}' + (f' ± {stdev(values):.{digits}f}' if len(values) > 1 else '')

def markdown(*rows): return '\n'.join(f"| {' | '.join(map(str, row))} |" for row in (rows[0], ['---'] * len(rows[0]), *rows[1:]))

def entry_names(): return sorted((f.stem for f in (HERE / 'entries').glob('*.yaml')), key=lambda name: [*('published', *PREDICTIONS), name].index(name))

def changes(name):
    "What an entry changes of the published recipe, from the two recipes."
    published, other = (flatten_recipe(load_entry(entry)) for entry in ('published', name))
    return ', '.join(f'`{k}` {v}' for k, v in other.items() if published.get(k) != v) or 'nothing'

def entries_table(): return markdown(('entry', 'changes', 'prediction: hours beside the published recipe'),
                                     *((f'[{name}](entries/{name}.yaml)', changes(name), PREDICTIONS.get(name, '')) for name in entry_names()))

def records_table(records):
    "The records, the fastest first, and the verdicts; below them entries of which seeds are missing."
    if not records: return 'No entry has been run yet.'
    found = {r['entry']: r for r in records if r['seeds'] == SEEDS}
    others = [r for entry, r in found.items() if entry != 'published'] if 'published' in found else []
    decisions = {r['entry']: d for r, d in zip(others, decide([
        Comparison(f"{r['entry']} beside published, standard hours", MARGIN, PREDICTIONS[r['entry']], a=r['hours'], b=found['published']['hours']) for r in others]))}
    rows = [(f"[{r['entry']}](entries/{r['entry']}.yaml)", len(r['seeds']) if r['entry'] in found else f"{len(r['seeds'])} of {len(SEEDS)}: no record yet", mean_and_sd(r['hours']), mean_and_sd(r['wall_hours']), mean_and_sd(r['steps'], 0), mean_and_sd(r['bleu']),
             f'{d.comparison.estimate()[0]:+.2f}, {d.verdict}' if (d := decisions.get(r['entry'])) else '', ', '.join(r['processors']), ', '.join(r['commits']),
             ' '.join(f'[{seed}]({log})' for seed, log in zip(r['seeds'], r['logs']))) for r in sorted(records, key=lambda r: (r['entry'] not in found, mean(r['hours'])))]
    head = 'entry', 'seeds', 'standard hours', 'wall-clock hours', 'steps', 'BLEU at the stop', 'hours beside published', 'processor', 'commit', 'logs'
    return '\n'.join([markdown(head, *rows), '', *(f'- {d}' for d in decisions.values())]).strip()

def cost_table(costs):
    "What five seeds cost if none reaches the target before max_steps."
    if not costs: return 'Not measured yet.'
    rows = [(c['entry'], f"{c['max_steps']:,}", f"{c['step_seconds']:.2f}", f"{c['hours']:.1f}", f"{len(SEEDS) * c['hours']:.0f}") for c in costs]
    total = len(SEEDS) * sum(c['hours'] for c in costs)
    same = [c['step_seconds'] for c in costs if c['entry'] in ('published', 'higher_rate', 'short_warmup')]
    return '\n'.join([markdown(('entry', 'steps at most', 'standard seconds a step', 'standard hours a seed, at most', 'five seeds'), *rows), '',
                      f"{len(costs)} entries, five seeds each: {total:.0f} standard hours at most. An estimate, not a result: {costs[0]['steps']} steps of each, "
                      f"{costs[0]['threads']} thread{'s' * (costs[0]['threads'] > 1)} of a {costs[0]['processor']}, {min(c['reference'] for c in costs):,.0f} to "
                      f"{max(c['reference'] for c in costs):,.0f} reference tokens a second." + (" A step of published, higher_rate and short_warmup is the same work: "
                      f"its {min(same):.2f} to {max(same):.2f} seconds show the error." if same else '')])

def measure_cost(path):
    "Cost of an entry from the log of a trial of a few steps."
    log = read_log(path)
    rows, recipe = log['evaluations'], load_entry(log['entry'])
    step_seconds = 3600 * hours(log)[0] / rows[-1]['step']
    return dict(entry=log['entry'], steps=rows[-1]['step'], step_seconds=step_seconds, max_steps=recipe.schedule.max_steps, hours=step_seconds * recipe.schedule.max_steps / 3600,
                wall_step_seconds=rows[-1]['wall_seconds'] / rows[-1]['step'], reference=mean(r['reference'] for r in rows), **{k: log['sessions'][0][k] for k in ('processor', 'threads', 'commit', 'versions')})

def variation(values): return stdev(values) / mean(values)

def clock_text(log):
    "How much the time of equal work varies by either clock."
    if not log: return 'Not measured yet.'
    rows = log['evaluations']
    wall = [(b['wall_seconds'] - a['wall_seconds']) / (b['step'] - a['step']) for a, b in zip(rows, rows[1:])]
    standard = [3600 * hours(dict(evaluations=pair))[0] / (pair[1]['step'] - pair[0]['step']) for pair in zip(rows, rows[1:])]
    return (f"Measured with other work on the machine from time to time, {rows[-1]['step']:,} steps of {log['entry']}, {len(wall)} evaluations: a step took {min(wall):.1f} to {max(wall):.1f} wall-clock seconds, "
            f"coefficient of variation {100 * variation(wall):.0f} %; in standard seconds it was {100 * variation(standard):.0f} %. Batches differ in size, which is part of both.")

def finished_text(runs):
    "What two finished runs of the published recipe show, and what they do not."
    if not runs: return 'Not scored yet.'
    record = read(RESULTS / 'multi30k_en_de_seeds.json')
    trained = {run['seed']: (run, hours) for run, hours in zip(record['runs'], record['hours'])}
    lines, wall = [], [trained[r['seed']][1] for r in runs]
    for r in runs:
        run, wall_hours = trained[r['seed']]
        first = next((m['step'] for m in run['metrics'] if m.get('valid_bleu', 0) >= TARGET), None)
        apart, threes = ([g(window) for window in zip(*(r['bleu'][i:] for i in range(n)))] for n, g in ((2, lambda pair: abs(pair[0] - pair[1])), (3, mean)))
        lines.append(f"- Seed {r['seed']}: {wall_hours:.1f} wall-clock hours for {run['updates']:,} steps. BLEU of 100 captions was first {TARGET:g} or more at step {first:,}. BLEU of all "
                     f"{r['n_valid']:,} by the {len(r['steps'])} checkpoints of steps {r['steps'][0]:,} to {r['steps'][-1]:,}: {mean_and_sd(r['bleu'])}, from {min(r['bleu']):.2f} to {max(r['bleu']):.2f}; "
                     f'neighbours differ by {mean(apart):.2f} in the mean and {max(apart):.2f} at most; means of three in a row: {min(threes):.2f} to {max(threes):.2f}.')
    return '\n'.join([*lines, '', f'Equal work took {min(wall):.1f} and {max(wall):.1f} hours by the wall clock: {100 * (max(wall) / min(wall) - 1):.0f} % more on one machine, with other work beside it.'])

def readme(text):
    "README.md with its generated parts made again."
    parts = dict(entries=entries_table(), records=records_table(read(RECORDS)), cost=cost_table(read(COST)), clock=clock_text(read(CLOCK)), finished=finished_text(read(FINISHED)))
    for name, part in parts.items():
        pattern = rf'(<!-- {name} -->\n).*?(<!-- end -->)'
        if not re.search(pattern, text, re.DOTALL): raise UserError(f'README.md has no part <!-- {name} --> … <!-- end -->')
        text = re.sub(pattern, lambda m: f'{m[1]}{part}\n{m[2]}', text, flags=re.DOTALL)
    return text

def main(a):
    if a.add:
        record = make_record(a.add)
        (HERE / 'logs').mkdir(exist_ok=True)
        for path in a.add:
            if path.parent.resolve() != HERE / 'logs': shutil.copy(path, HERE / 'logs')
        write(RECORDS, [r for r in read(RECORDS) if r['entry'] != record['entry']] + [record])
    if a.cost: write(COST, sorted(map(measure_cost, a.cost), key=lambda c: entry_names().index(c['entry'])))
    if a.clock: write(CLOCK, read_log(a.clock))
    path = HERE / 'README.md'
    path.write_text(readme(path.read_text(encoding='utf-8')), encoding='utf-8')
    print(records_table(read(RECORDS)))

if __name__ == '__main__':
    with _exit_on_user_error(): main(p.parse_args())
