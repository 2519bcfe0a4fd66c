"Notebooks, package and pages are in order: the checks of tools/check.py, one test each."
import re

import check
import pytest
import torch
from helpers import ROOT


@pytest.mark.parametrize('name', check.CHECKS)
def test_check(name):
    faults = check.CHECKS[name](ROOT)
    assert not faults, '\n'.join(faults)

def test_one_thread_for_each_worker():
    "conftest.py sets the number before torch is loaded; two threads that wait for each other on a busy core cost tens of times as much."
    assert torch.get_num_threads() == 1

def test_no_record_names_a_path_of_a_machine():
    found = [f'{p.name}: {line.strip()[:80]}' for p in (ROOT / 'nbs/results').glob('*.json') for line in p.read_text(encoding='utf-8').splitlines()
             if '"command"' in line and re.search(r'(?<![\w.:/])/\w', line)]
    assert not found, found
