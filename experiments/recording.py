"What every experiment writes down of itself, and the parts of a record that are made once."
import argparse, json, os, platform, shlex, subprocess, sys, time
from importlib.metadata import version
from pathlib import Path
import torch
from annotated_transformer.cli.recipe_flags import _add_recipe_arguments
from annotated_transformer.recipe import flatten_recipe, get_recipe

def processor_family():
    "Vendor, family and model of the processor, and the widest instructions that PyTorch uses on it."
    try: lines = Path('/proc/cpuinfo').read_text().splitlines()
    except OSError: lines = []
    info = {key.strip(): value.strip() for key, _, value in (line.partition(':') for line in lines)}
    name = f"{info['vendor_id']} family {info['cpu family']} model {info['model']}" if 'vendor_id' in info else platform.processor() or platform.machine()
    return f'{name}, {torch.backends.cpu.get_cpu_capability()}'

def provenance(*packages):
    "Command (of absolute paths the names only), commit, machine and versions."
    commit = subprocess.run(['git', 'rev-parse', '--short', 'HEAD'], capture_output=True, text=True).stdout.strip()
    n = torch.get_num_threads()
    return dict(command=shlex.join(['python', *(Path(x).name if os.path.isabs(x) else x for x in sys.argv)]), commit=commit, machine=f'{platform.machine()}, {n} thread{"s" * (n > 1)} of {os.cpu_count()} processors', processor=processor_family(),
                versions=dict(python=platform.python_version()) | {name: version(name) for name in packages})

def add_corpus(parser, dataset='multi30k'):
    "Options for the text."
    parser.add_argument('--dataset', default=dataset, help='as for transformer_train')
    parser.add_argument('--source_lang', default='en')
    parser.add_argument('--target_lang', default='de')

def read_arguments(parser, recipe):
    "The arguments; the fields of a recipe are options, too, of which those given are `changes`: `--max_steps 20` for a trial."
    _add_recipe_arguments(parser, recipe := get_recipe(recipe))
    given, fields = vars(parser.parse_args()), flatten_recipe(recipe)
    a = argparse.Namespace(**{k: v for k, v in given.items() if k not in fields}, changes={k: v for k, v in given.items() if k in fields})
    if 'dataset' in given: a.corpus = a.dataset, a.source_lang, a.target_lang
    return a

class ResultCache:
    "Parts of a record, each in a file of its own as soon as it is made: an interrupted command goes on, and several may share the work."
    def __init__(self, folder, settings):
        self.folder = Path(folder)
        self.folder.mkdir(parents=True, exist_ok=True)
        if (was := self.get_or_compute('settings', lambda: settings, quiet=True)) != settings:
            sys.exit(f'error: {self.folder} was begun with other settings, {was}: choose another --runs')

    def has(self, name): return (self.folder / f'{name}.json').exists()

    def get_or_compute(self, name, make, quiet=False):
        "What `make` gives, as it was written down before, or made now."
        path = self.folder / f'{name}.json'
        if not path.exists():
            start, made = time.time(), make()
            new = path.with_suffix(f'.{os.getpid()}')
            new.write_text(json.dumps(made)); new.replace(path)
            if not quiet: print(f'{name}: {(time.time() - start) / 60:.1f} minutes', {k: v for k, v in made.items() if not isinstance(v, (list, dict)) and len(str(v)) < 80}, flush=True)
        return json.loads(path.read_text())
