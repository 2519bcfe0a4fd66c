"Notebooks, package and pages are in order: the checks of tools/check.py, one test each."
import check
import pytest
from helpers import ROOT


@pytest.mark.parametrize('name', check.CHECKS)
def test_check(name):
    faults = check.CHECKS[name](ROOT)
    assert not faults, '\n'.join(faults)
