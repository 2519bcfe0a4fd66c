"""A Transformer that translates, as in "Attention Is All You Need": `import annotated_transformer as at`."""
from importlib import import_module
from typing import Any

__version__ = "0.1.0"

_modules = dict(
    Transformer='model.transformer', TransformerConfig='model.config',
    Translator='inference.translator', Tokenizer='data.tokenizer', Recipe='recipe',
    train='training.trainer', load_model='run_directory',
    beam_search='inference.beam_search')
__all__ = [*_modules, '__version__']

def __getattr__(name:str) -> Any:
    "Import a name at its first use (PEP 562), so that importing the package loads no torch."
    if name not in _modules: raise AttributeError(f'module {__name__!r} has no attribute {name!r}')
    globals()[name] = value = getattr(import_module(f'{__name__}.{_modules[name]}'), name)
    return value

def __dir__() -> list[str]: return sorted({*globals(), *__all__})
