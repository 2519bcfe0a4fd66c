"The wrong versions: each is not right, its symptom is recorded, and mending it is enough."
import json
import re

import pytest
from helpers import ROOT, assert_success, assert_user_error, run_in_process, run_python

from annotated_transformer.course.runner import _check_task
from annotated_transformer.course.versions import _FAULTS, _VERSIONS, _read_symptoms, _version_code, _write_versions

NAMES = [version.name for version in _VERSIONS]
# the test whose number differs from that of the right version, and by how much at least
SYMPTOMS = {'version_01': ('a source alone and padded', .1), 'version_02': ('the same input twice', .1),
            'version_03': ('weights of the right version', .1), 'version_04': ('largest weight of a query', .1),
            'version_05': ('the next token is another one', .1), 'version_06': ('a beam of 4: score', 1e-4),
            'version_07': ('in one part and in four', 1e-3), 'version_08': ('tokens five later', .1),
            'version_09': ('mean square after a new norm', .01), 'version_10': ('labels padded', 1.)}

@pytest.fixture(scope='module')
def project(tmp_path_factory):
    folder = tmp_path_factory.mktemp('mend') / 'project'
    _write_versions(folder)
    return folder.resolve()

def test_ten_versions_cite_public_code():
    assert len(_FAULTS) == 10 and len({before for before, *_ in _FAULTS}) == 10
    for *_, issue in _FAULTS: assert re.fullmatch(r'[\w-]+/[\w.-]+/(issues|pull)/\d+', issue)

@pytest.mark.parametrize('version', _VERSIONS, ids=NAMES)
def test_mending_the_fault_is_needed_and_enough(project, version):
    report = _check_task(project, version)
    assert report.status == 'wrong' and re.fullmatch(r'not mended: \d+ of 13 checks are right', report.message)
    path, (_, _, fault, _) = project / f'{version.name}.py', _FAULTS[NAMES.index(version.name)]
    wrong = path.read_text()
    assert fault not in wrong
    path.write_text(_version_code(0))
    try: report = _check_task(project, version)
    finally: path.write_text(wrong)
    assert report.status == 'right' and report.message.startswith(
        f'{fault}; it happened in https://github.com/')

@pytest.mark.parametrize('name', NAMES)
def test_the_symptom_is_recorded(name):
    runs, (test, least) = _read_symptoms()['runs'], SYMPTOMS[name]
    key, = [key for key in runs['right']['table'] if test in key]
    assert abs(runs[name]['table'][key] - runs['right']['table'][key]) >= least

def test_the_right_version_has_none():
    table = _read_symptoms()['runs']['right']['table']
    assert all(abs(value) < 1e-4 for key, value in table.items() if 'difference' in key)
    assert table['exact match, beam 4'] >= .9

def test_commands(capfd, tmp_path):
    result = assert_success(run_in_process(capfd, 'course', 'mend', tmp_path / 'mend'))
    assert '10 wrong versions' in result.stdout and (tmp_path / 'mend/symptoms.svg').stat().st_size > 10_000
    assert 'SYMPTOMS' not in (readme := (tmp_path / 'mend/README.md').read_text()) and readme.count('| version_') == 10
    assert_user_error(run_in_process(capfd, 'course', 'mend', tmp_path / 'mend'), 'mend already exists and is not empty')
    assert_user_error(run_in_process(capfd, 'course', 'mend', tmp_path / 'new', 'version_01'), 'unexpected argument version_01')
    assert_user_error(run_in_process(capfd, 'course', 'check', tmp_path / 'mend', 'version_010'), 'did you mean version_10?')
    (tmp_path / 'mend/version_02.py').write_text('def attention(Q:\n')
    (tmp_path / 'mend/version_03.py').write_text(_version_code(0).replace('LayerNorm', 'Norm'))
    for name, message in (('version_01', 'wrong: not mended: 12 of 13 checks are right'),
                          ('version_02', "wrong: SyntaxError in version_02.py:1: '(' was never closed"),
                          ('version_03', 'wrong: not mended: ')):
        result = run_in_process(capfd, 'course', 'check', tmp_path / 'mend', name)
        line, last = result.stdout.strip().split('\n')
        assert result.returncode == 1 and line.split(maxsplit=1)[1].startswith(message) and 'https' not in line, line
        assert last == f'0 of 1 right; next: {tmp_path / "mend" / name}.py'

@pytest.mark.nightly
def test_symptoms_of_a_student(project):
    code = f'import symptoms, {NAMES[0]} as version\nprint([*symptoms.measure(version, steps=20, n=1)[1]["table"].values()])'
    result = assert_success(run_python('-c', f'import sys; sys.path.insert(0, {str(project)!r})\n{code}'))
    assert len(json.loads(result.stdout)) == len(_read_symptoms()['runs'][NAMES[0]]['table']) - 1
    assert 'usage: ' in run_python(project / 'symptoms.py').stderr

@pytest.mark.nightly
def test_record_command(tmp_path):
    "The command of the record, with few steps; it goes on where it was interrupted."
    command = ROOT / 'experiments/course_symptoms.py', '--steps', 20, '--test', 1, '--runs', tmp_path / 'runs', '--out', tmp_path / 'record.json'
    (tmp_path / 'runs').mkdir()
    recorded = _read_symptoms()['runs']
    (tmp_path / 'runs/settings.json').write_text(json.dumps(dict(steps=20, test=1)))
    for name in NAMES[1:]: (tmp_path / f'runs/{name}.json').write_text(json.dumps(recorded[name]))
    assert_success(run_python(*command))
    record = json.loads((tmp_path / 'record.json').read_text())
    assert [*record['runs']] == ['right', *NAMES] and [*record['runs']['right']] == ['train', 'held_out', 'table']
    assert [*record['runs']['right']['table']] == [*record['runs'][NAMES[0]]['table']]
