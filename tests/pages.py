"""Run a notebook in a process of its own and compare what it prints with what was saved. The process is forked from one that has
loaded the slow libraries, once for each of pytest's workers; where there is no fork it is spawned."""
import multiprocessing
import os
import re
import sys
import tempfile
import traceback
from itertools import zip_longest
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
CELL_TIME_LIMIT, MACHINE_SLOWDOWN = 10, 2                       # of processor time for a cell; a machine may be twice as slow as the author's
SKIP_FLAGS = {'slow', 'gpu'}                     # flags of `tst_flags` in settings.ini
HAS_FORKSERVER = 'forkserver' in multiprocessing.get_all_start_methods()
mp_context = multiprocessing.get_context('forkserver' if HAS_FORKSERVER else 'spawn')
PRELOAD = ['accelerate', 'datasets', 'matplotlib.pyplot', 'sacrebleu', 'sacremoses', 'seaborn', 'torch', 'execnb.shell',
           'torch._dynamo', 'torch.distributed.checkpoint.state_dict']      # the last two by the first optimizer and the first checkpoint
if HAS_FORKSERVER: mp_context.set_forkserver_preload(PRELOAD)

def send_result(send, function, args):
    try: send.send((True, function(*args)))
    except BaseException: send.send((False, traceback.format_exc()))

def in_fresh_process(function, *args):
    "What a function of a module gives. Raises RuntimeError with its traceback if it fails, or dies."
    receive, send = mp_context.Pipe(duplex=False)
    process = mp_context.Process(target=send_result, args=(send, function, args))
    process.start()
    send.close()
    try: right, result = receive.recv()
    except EOFError: right, result = False, 'the process died'
    process.join()
    if not right: raise RuntimeError(f'{result} (exit status {process.exitcode})')
    return result

def notebooks(root=ROOT): return sorted(p for p in (root / 'nbs').rglob('*.ipynb') if '.ipynb_checkpoints' not in p.parts)

NUMBER_PATTERN = re.compile(r'[-+]?\d[\d,]*\.?\d*(?:e[-+]?\d+)?')

def text_output(outputs):
    "The text that a cell shows, without pictures, addresses of objects and the version in sacreBLEU's signature."
    text = []
    for o in outputs:
        if o['output_type'] == 'stream' and o['name'] == 'stdout': text.append(''.join(o['text']))
        data = o.get('data', {})
        if not any(kind.startswith('image/') for kind in data): text.append(''.join(data.get('text/markdown', data.get('text/plain', ''))))
    return '\n'.join(re.sub(r'0x[0-9a-f]{6,}|version:[\d.]+', '…', t).strip() for t in text if t.strip())

def outputs_match(a, b):
    "Whether two texts agree: the words exactly, the numbers to one per cent or one unit of their last digit, or both as small as rounding."
    if re.sub(r'\s+', ' ', NUMBER_PATTERN.sub('0', a)) != re.sub(r'\s+', ' ', NUMBER_PATTERN.sub('0', b)): return False
    for x, y in zip(NUMBER_PATTERN.findall(a), NUMBER_PATTERN.findall(b)):
        unit = 10.0 ** -len(x.partition('e')[0].partition('.')[2]) if 'e' not in x else 0
        x, y = float(x.replace(',', '')), float(y.replace(',', ''))
        if abs(x - y) > max(.01 * abs(x), 1.001 * unit if unit < 1 else 0, 1e-12): return False
    return True

def first_difference(saved, now):
    "The first line in which two texts disagree, as a fault; None if there is none."
    if outputs_match(saved, now): return None
    a, b = next((pair for pair in zip_longest(saved.splitlines(), now.splitlines(), fillvalue='') if not outputs_match(*pair)), (saved, now))
    return f'was saved with {a[-300:]!r} and now gives {b[-300:]!r}: save the notebook anew, or mark the cell `#| varies: true`'

def run_notebook(path, time_limit=CELL_TIME_LIMIT, slowdown=MACHINE_SLOWDOWN):
    "Run the cells that have no flag, in the notebook's folder: faults, and notes on what may be the machine."
    from execnb.nbio import read_nb
    from execnb.shell import CaptureShell
    os.environ |= dict(IN_TEST='1', COLUMNS='80')                  # nbdev exports nothing; help has one width
    sys.path.insert(0, str(next(p for p in path.parents if (p / 'settings.ini').exists())))
    os.chdir(path.parent)
    faults, notes, saved = [], [], {}

    def skipped(cell):
        if cell.cell_type != 'code' or 'nbdev_export(' in cell.source: return True
        flags = dict(re.findall(r'^#\| *([\w-]+):? *(.*)$', cell.source, re.MULTILINE))
        if SKIP_FLAGS & set(flags) or flags.get('eval', '').strip() == 'false': return True
        saved.update(text=text_output(cell.outputs), varies='varies' in flags, begin=sum(os.times()[:4]))
        cell.outputs = []

    def ran(cell):
        taken = sum(os.times()[:4]) - saved['begin']               # with that of child processes: the same on a busy machine
        if taken > time_limit:
            (faults if taken > slowdown * time_limit else notes).append(f'cell {cell.id} takes {taken:.0f} s: make it shorter or flag it `#| slow`')
        if not shell.exc and not saved['varies'] and (fault := first_difference(saved['text'], text_output(cell.outputs))): faults.append(f'cell {cell.id} {fault}')

    with tempfile.TemporaryFile('w+', errors='replace') as said:   # what child processes print
        for fd in 1, 2: os.dup2(said.fileno(), fd)
        shell = CaptureShell(path)
        try: shell.run_all(read_nb(path), exc_stop=True, preproc=skipped, postproc=ran)
        except Exception: faults.append(shell.prettytb(fname=path.name))
        said.seek(0)
        if faults: faults += said.read().splitlines()[-20:]
    return faults, notes

def failing_cells(cells, folder):
    "Of (id, source, whether it checks the claim): those that fail; of these the checks that do, not for want of a name that an earlier one failed to give."
    import matplotlib
    matplotlib.use('Agg')
    os.chdir(folder)
    space, failed, checked = {'__name__': '__main__'}, [], []
    for key, source, checks in cells:
        try: exec(compile(source, key, 'exec'), space)
        except Exception as e:
            traceback.print_exc()
            failed.append(key)
            if checks and not isinstance(e, NameError): checked.append(key)
    return failed, checked
