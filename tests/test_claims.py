"""Can the checks of the claims fail? Each fault of nbs/broken.csv is put into its cell, the chapter is run up to the last cell that
checks the claim, and one of these cells must notice. The first run of each chapter, without a fault, must pass."""
import csv, json, os, re, sys, traceback
from pathlib import Path
import matplotlib
import pytest

matplotlib.use('Agg')
NBS = Path(__file__).resolve().parents[1] / 'nbs'
FAULTS = list(csv.DictReader((NBS / 'broken.csv').open(encoding='utf-8')))

def cells_until(chapter, claim):
    "(id, source, whether it checks the claim) of the cells that run, up to the last that checks it."
    cells = []
    for c in json.loads((NBS / f'{chapter}.ipynb').read_text(encoding='utf-8'))['cells']:
        source = ''.join(c['source'])
        if c['cell_type'] != 'code' or c['id'] == 'colab' or re.search(r'^#\| *(slow|gpu|eval: *false)', source, re.MULTILINE): continue
        marked = re.search(r'^#\| *claim:(.*)$', source, re.MULTILINE)
        cells.append((c['id'], source, bool(marked) and claim in marked[1].split()))
    return cells[:1 + max(i for i, (*_, checks) in enumerate(cells) if checks)]

def noticed(cells):
    "The cells that fail, and of those that check the claim the ones that do, not for want of a name that an earlier one failed to give."
    space, failed, checked = {'__name__': '__main__'}, [], []
    for key, source, checks in cells:
        try: exec(compile(source, key, 'exec'), space)
        except Exception as e:
            traceback.print_exc()
            failed.append(key)
            if checks and not isinstance(e, NameError): checked.append(key)
    return failed, checked

def in_a_copy(f):
    "What f says, in a copy of this process, so that the modules that a chapter patches stay as they are here."
    read, write = os.pipe()
    if not (child := os.fork()):
        os.chdir(NBS); sys.path.insert(0, str(NBS.parent))
        os.write(write, json.dumps(f()).encode()); os._exit(0)
    os.close(write); os.waitpid(child, 0)
    with os.fdopen(read) as said: return json.loads(said.read())

@pytest.fixture(scope='session', autouse=True)
def loaded():
    "Slow to load, so once for all copies."
    import accelerate, datasets, matplotlib.pyplot, seaborn, torch     # noqa: F401
    torch.set_num_threads(1)

@pytest.mark.parametrize('fault', FAULTS, ids=lambda f: f'{f["claim"]}: {f["what"]}')
def test_a_fault_is_noticed(fault):
    cells = cells_until(fault['chapter'], fault['claim'])
    broken = [(key, source.replace(fault['old'], fault['new']) if key == fault['cell'] else source, checks) for key, source, checks in cells]
    assert broken != cells, f'{fault["old"]!r} is not in {fault["chapter"]}, {fault["cell"]}'
    failed, checked = in_a_copy(lambda: noticed(broken))
    assert checked, f'no cell that checks {fault["claim"]} fails; others that do: {failed}'

@pytest.mark.parametrize('chapter', sorted({f['chapter'] for f in FAULTS}))
def test_without_a_fault_nothing_is_noticed(chapter):
    claims = [f['claim'] for f in FAULTS if f['chapter'] == chapter]
    assert in_a_copy(lambda: noticed(max((cells_until(chapter, c) for c in claims), key=len))) == [[], []]
