"""A check of the course forks from a server that has loaded the package. Pages of a made-up package must not be forked from it, so the
server ends with these tests."""
from multiprocessing import forkserver

import pytest
from pages import HAS_FORKSERVER, PRELOAD, mp_context

@pytest.fixture(autouse=True, scope='module')
def server_ends_with_these_tests():
    yield
    if HAS_FORKSERVER:
        forkserver._forkserver._stop()
        mp_context.set_forkserver_preload(PRELOAD)
