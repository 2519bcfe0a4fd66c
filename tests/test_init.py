"What `import annotated_transformer as at` offers, and what it loads."
import ast
import importlib.util

from helpers import ROOT, run_python

NAMES = ['Transformer', 'TransformerConfig', 'Translator', 'Tokenizer', 'Recipe', 'train', 'load_model', 'beam_search', '__version__']

def test_the_names_come_when_they_are_asked_for():
    "A lazy package: loading it loads no torch, and each name is the one of its module."
    result = run_python('-c', f"""
import sys, annotated_transformer as at
assert at.__all__ == {NAMES} and set(at.__all__) <= set(dir(at))
assert 'torch' not in sys.modules and 'numpy' not in sys.modules
from annotated_transformer import *
from annotated_transformer.model.transformer import Transformer as T
assert at.Transformer is Transformer is T and at.train.__module__ == 'annotated_transformer.training.trainer' and callable(at.beam_search)
try: at.nothing
except AttributeError as e: print(e)
""")
    assert result.stdout == "module 'annotated_transformer' has no attribute 'nothing'\n", result.stderr

def test_translating_loads_no_training(trained):
    "Reading a JSON file and a file of tensors, and a search, need no data sets, no plots, no launcher."
    result = run_python('-c', f"""
import sys
from annotated_transformer.inference.translator import Translator
print(*Translator.from_pretrained({str(trained)!r}).translate(['seven']))
print(*{{'datasets', 'pandas', 'scipy', 'seaborn', 'matplotlib', 'accelerate', 'pyarrow', 'num2words'}} & {{*sys.modules}})""")
    assert result.returncode == 0 and result.stdout.strip() == 'sieben', result.stdout + result.stderr

def test_nobody_imports_from_the_root():
    for path in (ROOT / 'annotated_transformer').rglob('*.py'):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import): assert 'annotated_transformer' not in [a.name for a in node.names], path
            if isinstance(node, ast.ImportFrom):
                package = '.'.join(path.relative_to(ROOT).parts[:-1])
                home = importlib.util.resolve_name('.' * node.level + (node.module or ''), package)
                assert home != 'annotated_transformer', path
