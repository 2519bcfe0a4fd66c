"""Every notebook runs from top to bottom, prints what was saved, and has no slow cell without a flag.

    pytest tests/test_pages.py -k lab/heads     one page
"""
import warnings

import pytest
from pages import ROOT, in_fresh_process, notebooks, run_notebook


@pytest.mark.parametrize('path', notebooks(), ids=lambda p: p.relative_to(ROOT / 'nbs').with_suffix('').as_posix())
def test_page(path):
    faults, notes = in_fresh_process(run_notebook, path)
    for note in notes: warnings.warn(f'{path.relative_to(ROOT)}: {note}', stacklevel=1)
    assert not faults, '\n'.join(faults)
