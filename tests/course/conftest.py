"""A check of the course asks for a server that has loaded the package. Pages of a made-up package must not be forked from such a one, so the
server of `pages` is started before."""
from multiprocessing import forkserver

import pytest
from pages import HAS_FORKSERVER, PRELOAD, mp_context

@pytest.fixture(autouse=True)
def server_of_the_pages():
    if HAS_FORKSERVER: forkserver.ensure_running()
    yield
    if HAS_FORKSERVER: mp_context.set_forkserver_preload(PRELOAD)         # for the next server, should this one end
