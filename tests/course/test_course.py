"The course: the reference solution is right, each planted mistake is named, and a student's code may do anything."
import shutil
from pathlib import Path

import pytest
from helpers import assert_user_error, run_in_process, snapshot_dir

from annotated_transformer.course.project import _write_project
from annotated_transformer.course.runner import _check_in_process, _check_task
from annotated_transformer.course.tasks import _TASKS, _get_task
from course.mistakes import MISTAKES

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
    assert len(MISTAKES) >= 40 and min(counts.values()) >= 4, counts

@pytest.mark.parametrize(('task', 'before', 'after', 'word'), MISTAKES, ids=[f'{m[0]}-{m[3]}' for m in MISTAKES])
def test_mistake(project, edit, task, before, after, word):
    edit(task, before, after)
    report = _check_task(project, _get_task(task))
    assert report.status == 'wrong' and word in report.message and '\n' not in report.message, report
