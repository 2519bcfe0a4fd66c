"The course: the reference solution is right, each planted mistake is named, and a student's code may do anything."
import multiprocessing.forkserver
import re
import shutil
import time
from pathlib import Path

import pytest
from course.mistakes import MISTAKES
from helpers import ROOT, assert_success, assert_user_error, run_in_process, run_python, snapshot_dir, write_files
from pages import in_fresh_process
from processes import run_code, run_forked

from annotated_transformer.course.project import _project_files, _write_project
from annotated_transformer.course.runner import _check_in_process, _check_task
from annotated_transformer.course.tasks import _TASKS, _get_task
from annotated_transformer.course.versions import _VERSIONS

SOLUTION = Path(__file__).with_name('solution')

@pytest.fixture(scope='module')
def project(tmp_path_factory):
    "A project with the reference solution."
    folder = tmp_path_factory.mktemp('course') / 'project'
    _write_project(folder)
    for path in SOLUTION.glob('*.py'): shutil.copy(path, folder / 'my_transformer')
    return folder.resolve()

@pytest.fixture
def edit(project):
    "A function that replaces text in a file of the project until the test ends."
    old = {}
    def replace(task, before, after):
        path = project / 'my_transformer' / f'{task}.py'
        text = old.setdefault(path, path.read_text())
        assert before in text, (task, before)
        path.write_text(text.replace(before, after))
    yield replace
    for path, text in old.items(): path.write_text(text)

@pytest.mark.parametrize('task', [task.name for task in _TASKS])
def test_solution(project, task):
    assert _check_task(project, _get_task(task)).status == 'right'

def test_number_of_mistakes():
    counts = {task.name: sum(m[0] == task.name for m in MISTAKES) for task in _TASKS}
    assert min(counts.values()) >= 6, counts

@pytest.mark.parametrize(('task', 'before', 'after', 'word'), MISTAKES, ids=[f'{m[0]}-{m[3]}' for m in MISTAKES])
def test_mistake(project, edit, task, before, after, word):
    edit(task, before, after)
    report = _check_task(project, _get_task(task))
    assert report.status == 'wrong' and word in report.message and '\n' not in report.message, report

def check(project, *args):
    "The lines of `transformer_course check`, by task, and its exit status; the last line is that of ''."
    result = run_forked('course', 'check', project, *args)
    *lines, last = result.stdout.strip().split('\n')
    assert 'Traceback' not in result.stderr and 'checking' in result.stderr, result.stderr
    return {line.split()[0]: line for line in lines} | {'': last}, result.returncode

def test_check_of_all_tasks(project):
    start, before = time.time(), snapshot_dir(project)
    lines, status = check(project)
    assert status == 0 and lines.pop('') == '16 of 16 right' and [*lines] == [task.name for task in _TASKS]
    assert all(line.split()[1:] == ['right'] for line in lines.values()), lines
    assert time.time() - start < 60 and snapshot_dir(project) == before

def test_a_server_that_ended_is_started_again(project, monkeypatch):
    read, calls = multiprocessing.forkserver.read_signed, []
    def read_late(fd):
        calls.append(fd)
        if len(calls) == 1: raise EOFError('unexpected EOF')
        return read(fd)
    monkeypatch.setattr(multiprocessing.forkserver, 'read_signed', read_late)
    assert _check_in_process(project, 'masks', 10.).status == 'right' and len(calls) >= 2

STRANGE = {
    'attention': ('def attention(Q, K, V, mask=None:\n    return Q\n', 'wrong: SyntaxError in my_transformer/attention.py:1: '),
    'masks': ('def subsequent_mask(T):\n    while True:\n        T += 1\ndef padding_mask(ids, pad_id):\n    while True: pass\n',
              'wrong: no result after 4 s: an endless loop? It is at my_transformer/masks.py:'),
    'multi_head': (None, 'waiting: it needs attention'),
    'positions': ('print("hello")\nprint("there")\n', 'right: it prints 2 lines'),
    'feed_forward': ('class Feedforward: pass\n', 'wrong: my_transformer.feed_forward has no FeedForward'),
    'add_norm': ('import torhc\n', "wrong: ModuleNotFoundError in my_transformer/add_norm.py:1: No module named 'torhc'"),
    'encoder': (None, 'waiting: it needs attention, multi_head, feed_forward, add_norm'),
    'loss': ('def label_smoothed_loss(logits, target, eps_ls=0.1, pad_id=0):\n    return None\n', 'wrong: the output of label_smoothed_loss has type NoneType, must be a tuple of 2'),
    'learning_rate': ('def learning_rate(step, d_model, warmup_steps):\n    return 1 / (step - step)\n', 'wrong: ZeroDivisionError in my_transformer/learning_rate.py:2: division by zero'),
    'batches': ('def make_batches(lengths, max_tokens):\n    exit()\n', 'wrong: SystemExit in my_transformer/batches.py:2: the code ends the program'),
    'train_step': ('import os\ndef train_step(*args): os._exit(3)\n', 'wrong: the process ended with status 3'),
    'greedy': ('def greedy(log_probs_fn, B):\n    return []\n', 'wrong: TypeError: greedy() takes 2 positional arguments but 5 were given (case: one sentence)'),
    'beam_search': ('raise NotImplementedError\n', 'open: my_transformer/beam_search.py has no code yet'),
    'bleu': ('bleu = 3\n', 'wrong: bleu has type int, must be a function or a class')}

def test_strange_code(project, tmp_path):
    shutil.copytree(project, tmp_path / 'project')
    for task, (code, _) in STRANGE.items():
        path = tmp_path / 'project/my_transformer' / f'{task}.py'
        if code is not None: path.write_text(code + (path.read_text() if task == 'positions' else ''))
    lines, status = check(tmp_path / 'project', '--time_limit', 4)
    assert status == 1 and lines[''].startswith('1 of 16 right; next: ') and lines[''].endswith('my_transformer/attention.py')
    for task, (_, message) in STRANGE.items(): assert lines[task].split(maxsplit=1)[1].startswith(message), lines[task]
    assert lines['learning_rate'].endswith('; read https://annotated-transformer.github.io/annotated_transformer/optimizer.html')

STUB = 'raise NotImplementedError'
HALF = {   # text of the solution, text in its stead, the message
    'attention': (None, None, 'attention has no code yet'),
    'masks': ('return (ids != pad_id)[:, None, None, :]', STUB, 'subsequent_mask is right, padding_mask has no code yet'),
    'multi_head': ('Q, K, V = ', f'{STUB}\n        Q, K, V = ', 'MultiHeadAttention.forward has no code yet'),
    'add_norm': ('self.norm = LayerNorm(d_model)', STUB, 'LayerNorm is right, AddNorm has no code yet'),
    'decoder': ('self.layers = ', f'{STUB}\n        self.layers = ', 'DecoderLayer is right, Decoder has no code yet')}

def test_the_first_stub_of_a_file_is_named(project, edit):
    edit('masks', (project / 'my_transformer/masks.py').read_text(), _project_files()['my_transformer/masks.py'])
    assert _check_task(project, _get_task('masks')).message == 'subsequent_mask has no code yet'

@pytest.mark.parametrize('task', HALF)
def test_half_of_a_file_has_code(project, edit, task):
    before, after, message = HALF[task]
    text = (project / f'my_transformer/{task}.py').read_text()
    edit(task, before or text, after or _project_files()[f'my_transformer/{task}.py'])
    report = _check_task(project, _get_task(task))
    assert (report.status, report.message) == ('open', message)

def test_one_task_is_checked_after_those_it_needs(project, edit):
    edit('attention', ' / math.sqrt(Q.size(-1))', '')
    lines, status = check(project, 'multi_head')
    assert status == 1 and lines['multi_head'].split(maxsplit=1)[1] == 'waiting: it needs attention' and len(lines) == 2
    assert lines[''].startswith('0 of 1 right; next: ') and lines[''].endswith('my_transformer/attention.py')

@pytest.mark.parametrize('name', ['3', 'multi_head.py', 'my_transformer/multi_head.py'])
def test_names_of_a_task(name):
    assert _get_task(name).name == 'multi_head' and _get_task('2', _VERSIONS).name == 'version_02'

def test_new_refuses_other_files(capfd, tmp_path):
    write_files(tmp_path / 'notes', a_txt='mine')
    assert_user_error(run_in_process(capfd, 'course', 'new', tmp_path / 'notes'), 'notes already exists and is not empty')
    assert_user_error(run_in_process(capfd, 'course', 'new', tmp_path / 'notes/a.txt'), 'a.txt already exists')
    assert [p.name for p in (tmp_path / 'notes').iterdir()] == ['a.txt']
    result = assert_success(run_in_process(capfd, 'course', 'new', tmp_path / 'fresh'))
    assert '16 tasks' in result.stdout and len([*(tmp_path / 'fresh').rglob('test_*.py')]) == 16

def test_wrong_arguments(capfd, project):
    assert_user_error(run_in_process(capfd, 'course', 'check', project / 'tests'), 'is not a project of the course')
    assert_user_error(run_in_process(capfd, 'course', 'check', project, 'atention'), 'did you mean attention?')
    assert_user_error(run_in_process(capfd, 'course', 'grade', project), "action='grade' is unknown")
    assert_user_error(run_in_process(capfd, 'course', 'new', project, 'masks'), 'unexpected argument masks')

def test_tests_of_the_project(project, edit):
    edit('positions', 'torch.arange(length)', 'torch.arange(1, length + 1)')
    result = run_python('-m', 'pytest', '-q', '-p', 'no:cacheprovider', '--no-header', cwd=project)
    failed = {*re.findall(r'^FAILED tests/(\w+)\.py', result.stdout, re.MULTILINE)}
    assert failed == {'test_04_positions', 'test_09_transformer'}, result.stdout[-2000:]

def as_lists(value):
    "Cases with their tensors as lists, which can be compared."
    if isinstance(value, dict): return {k: as_lists(x) for k, x in value.items()}
    if isinstance(value, (list, tuple)): return [as_lists(x) for x in value]
    return value.tolist() if hasattr(value, 'tolist') else value

def test_snapshots_are_reproducible():
    for task in _TASKS: assert str(as_lists(task.make_cases())) == str(as_lists(task.make_cases())), task.name

def test_stubs_contain_statements():
    files = _project_files()
    pages = {re.sub(r'^\d+[a-z]*_', '', p.stem) for p in (ROOT / 'nbs').glob('*.ipynb')}
    for task in _TASKS:
        stub = files[f'my_transformer/{task.name}.py']
        assert 'raise NotImplementedError' in stub and task.link in stub and 'CHAPTER' not in stub and 'Hint: ' in stub
        assert task.chapter in pages and f'`my_transformer/{task.name}.py`' in files['README.md']
        compile(stub, task.name, 'exec')
    for text in files.values(): assert not re.search(r'\b(NUMBER|TITLE|TASKS|NAME)\b', text)

def test_numbers_with_the_parts_of_the_project(project):
    result = assert_success(run_python('train_numbers.py', '--steps', 2, '--test', 2, cwd=project))
    assert result.stdout.startswith('step    2  loss ') and re.search(r'exact match: 0.0 % \(0/2\)\n$', result.stdout)

@pytest.mark.nightly
def test_numbers_are_learned(project):
    result = assert_success(run_python('train_numbers.py', cwd=project))
    assert float(re.search(r'exact match: ([\d.]+) %', result.stdout)[1]) >= 97

def test_the_model_is_an_architecture_of_the_library(project, tmp_path):
    shutil.copytree(project, tmp_path / 'project')
    own = '--import', 'my_transformer'
    small = ('--N', 1, '--d_model', 16, '--d_ff', 16, '--h', 2, '--max_tokens', 256, '--max_steps', 4, '--warmup_steps', 2,
             '--save_every', '2 steps', '--average_checkpoints', 1)
    cwd = tmp_path / 'project'
    assert_success(run_forked('train', *own, '--recipe', 'demo', '--architecture', 'my_transformer', *map(str, small), '--output_dir', 'run', cwd=cwd))
    assert_success(run_forked('train', *own, '--output_dir', 'run', '--resume', '--max_steps', '6', cwd=cwd))
    assert assert_success(run_forked('translate', 'run', *own, cwd=cwd, stdin='seven\ntwo\n')).stdout.count('\n') == 2
    assert_user_error(run_forked('translate', 'run', cwd=cwd, stdin='seven\n'), "unknown architecture 'my_transformer'", '--import my_transformer')

def test_the_masks_are_made_on_the_device_of_the_ids(project):
    code = 'import my_transformer, torch\nfrom annotated_transformer.model.seq2seq import build_model, get_architecture\n' \
           "model = build_model('my_transformer', get_architecture('my_transformer').config_class(20, 1, 8, 8, 2)).to('meta')\n" \
           "device = str(model(*torch.ones(2, 3, 5, dtype=torch.long, device='meta')).device)"
    assert in_fresh_process(run_code, project, code, 'device') == 'meta'

def test_stubs_do_not_hinder_the_import(tmp_path):
    "A fault in the model is seen where the model is made, not by each test."
    _write_project(tmp_path / 'project')
    code = 'import my_transformer\nfrom annotated_transformer.model.seq2seq import build_model, get_architecture\n' \
           "build_model('my_transformer', get_architecture('my_transformer').config_class(20, 1, 8, 8, 2))"
    with pytest.raises(RuntimeError, match='my_transformer/transformer.py(?s:.*)NotImplementedError\n'): in_fresh_process(run_code, tmp_path / 'project', code)

@pytest.mark.parametrize(('text', 'message'), [
    ('PARTS = {', "SyntaxError in tests/adapters.py:1: '{' was never closed"), ('PARTS = 3', 'tests/adapters.py must define PARTS, a dict'),
    ('', 'tests/adapters.py must define PARTS, a dict'), ('PARTS = {}', "tests/adapters.py has no entry 'padding_mask'"),
    ('PARTS = dict(padding_mask="my_transformer.mask:padding_mask")', 'there is no module my_transformer.mask, which tests/adapters.py names for padding_mask'),
    ('PARTS = dict(padding_mask="masks:padding_mask")', 'there is no module masks, which')])
def test_adapters_of_a_student(project, tmp_path, text, message):
    shutil.copytree(project, tmp_path / 'project')
    (tmp_path / 'project/tests/adapters.py').write_text(text)
    report = _check_task(tmp_path / 'project', _get_task('masks'))
    assert report.status == 'wrong' and report.message.startswith(message), report
