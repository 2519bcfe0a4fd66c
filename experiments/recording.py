"What every experiment writes down of itself, and the parts of a record that are made once."
import json, os, platform, subprocess, sys, time
from importlib.metadata import version
from pathlib import Path
import torch

def provenance(*packages):
    "Command, commit, machine and versions."
    commit = subprocess.run(['git', 'rev-parse', '--short', 'HEAD'], capture_output=True, text=True).stdout.strip()
    n = torch.get_num_threads()
    return dict(command=' '.join(['python', *sys.argv]), commit=commit, machine=f'{platform.machine()}, {n} thread{"s" * (n > 1)} of {os.cpu_count()} processors',
                versions=dict(python=platform.python_version()) | {name: version(name) for name in packages})

class Parts:
    "Parts of a record, each in a file of its own as soon as it is made: an interrupted command goes on, and several may share the work."
    def __init__(self, folder, settings):
        self.folder = Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        if (was := self.once('settings', lambda: settings, quiet=True)) != settings:
            sys.exit(f'error: {self.folder} was begun with other settings, {was}: choose another --runs')

    def has(self, name): return (self.folder / f'{name}.json').exists()

    def once(self, name, make, quiet=False):
        "What `make` gives, as it was written down before, or made now."
        path = self.folder / f'{name}.json'
        if not path.exists():
            start, made = time.time(), make()
            new = path.with_suffix(f'.{os.getpid()}')
            new.write_text(json.dumps(made)); new.replace(path)
            if not quiet: print(f'{name}: {(time.time() - start) / 60:.1f} minutes', {k: v for k, v in made.items() if not isinstance(v, (list, dict)) and len(str(v)) < 80}, flush=True)
        return json.loads(path.read_text())
