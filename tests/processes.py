"""A command in a process of its own that need not load the slow libraries: it is forked from the server of `pages`, which has loaded them.
It can be killed, limited and launched by the dozen; that the shell starts the commands, too, `helpers.run` shows."""
import atexit
import os
import runpy
import socket
import subprocess
import sys
import tempfile
import traceback
from pathlib import Path

from pages import mp_context


def _run_main(name, args, files, cwd, env, begin):
    "In the new process: become the command."
    os.setsid()
    for fd, flags in enumerate((os.O_RDONLY, os.O_WRONLY, os.O_WRONLY)): os.dup2(os.open(files[fd], flags), fd)
    sys.stdin, sys.stdout, sys.stderr = open(0), open(1, 'w'), open(2, 'w', 1, errors='backslashreplace')
    os.environ.clear(); os.environ.update(env)
    os.chdir(cwd)
    sys.path[:0] = filter(None, env.get('PYTHONPATH', '').split(os.pathsep))
    if begin: begin()
    sys.argv = [name, *args]
    from annotated_transformer.cli.main import main
    try: main()
    except Exception: traceback.print_exc(); sys.exit(1)

class Command:
    "`transformer_NAME ARGS`, started, with the methods of `subprocess.Popen`. `begin` is called first in the new process, which leads a process group."
    def __init__(self, name, *args, stdin='', cwd=None, env=None, begin=None):
        self.folder = tempfile.TemporaryDirectory()
        files = [Path(self.folder.name, stream) for stream in ('stdin', 'stdout', 'stderr')]
        for path in files: path.touch()
        files[0].write_bytes(stdin.encode() if isinstance(stdin, str) else stdin)
        env = os.environ | {'OMP_NUM_THREADS': '1', 'HF_HUB_OFFLINE': '1'} | (env or {})
        self.args = [f'transformer_{name}', *map(str, args)]
        self.process = mp_context.Process(target=_run_main, args=(self.args[0], self.args[1:], list(map(str, files)), str(cwd or os.getcwd()), env, begin))
        self.process.start()
        self.pid = self.process.pid
        atexit.register(self.kill)             # a test that fails leaves nothing behind

    @property
    def returncode(self): return self.process.exitcode
    def poll(self): return self.returncode
    def kill(self): self.process.kill()
    def send_signal(self, signum): os.kill(self.pid, signum)
    def wait(self, timeout=300):
        self.process.join(timeout)
        if self.returncode is None:
            self.kill()
            raise subprocess.TimeoutExpired(self.args, timeout)
        return self.returncode
    def communicate(self, timeout=300):
        self.wait(timeout)
        return tuple(Path(self.folder.name, stream).read_text() for stream in ('stdout', 'stderr'))

def _result(command): return subprocess.CompletedProcess(command.args, command.wait(), *command.communicate())

def run_forked(name, *args, **options): return _result(Command(name, *args, **options))

def run_ranks(n, name, *args, **options):
    "The results of processes that share a run, started as a launcher starts them."
    with socket.socket() as free:
        free.bind(('127.0.0.1', 0))
        port = free.getsockname()[1]
    env = dict(MASTER_ADDR='127.0.0.1', MASTER_PORT=str(port), WORLD_SIZE=str(n), LOCAL_WORLD_SIZE=str(n), ACCELERATE_USE_CPU='true')
    return [_result(c) for c in [Command(name, *args, env=env | dict(RANK=str(i), LOCAL_RANK=str(i)), **options) for i in range(n)]]

def run_script(path, *args):
    "A script, to be run `in_fresh_process`: what it prints is lost."
    for fd in 1, 2: os.dup2(os.open(os.devnull, os.O_WRONLY), fd)
    sys.argv[:], sys.path[:0] = [path, *args], [str(Path(path).parent)]
    runpy.run_path(path, run_name='__main__')

def run_code(folder, code, name=None):
    "What code, to be run `in_fresh_process` as if in this folder, calls so."
    os.chdir(folder)
    sys.path[:0] = [str(folder)]
    exec(code, space := {})
    return space.get(name)
