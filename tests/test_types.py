"What a user's mypy sees: methods added by `patch` are in the stubs; a wrong call of them is reported."
import os
import subprocess
import sys

import pytest
from helpers import ROOT

USER = """import torch
from annotated_transformer.data.tokenizer import Tokenizer
from annotated_transformer.model.attention import MultiHeadAttention
from annotated_transformer.model.config import TransformerConfig
from annotated_transformer.model.transformer import Transformer

class ScaledQueries(MultiHeadAttention):
    def project_queries(self, query: torch.Tensor, start_pos: int = 0) -> torch.Tensor:
        return 2 * super().project_queries(query, start_pos)

def translate(folder: str) -> list[str]:
    tokenizer = Tokenizer.load(folder)
    tokenizer.save(folder)
    model = Transformer(TransformerConfig(vocab_size=tokenizer.vocab_size), tokenizer.pad_id)
    state = model.init_state(torch.tensor(tokenizer.encode(['one'])))
    logits = model.decode_step(state, torch.tensor([tokenizer.bos_id]))
    model.reorder(state, torch.tensor([0]))
    return tokenizer.decode(logits.argmax(-1, keepdim=True).tolist())

Tokenizer.load(3)
Tokenizer.laod('folder')
MultiHeadAttention(8, 2).project_queries('x')
reveal_type(Transformer(TransformerConfig()).encoder)
reveal_type(MultiHeadAttention(8, 2).W_Q)
"""
REPORTED = """user.py:20: error: Argument 1 to "load" of "Tokenizer" has incompatible type "int"; expected "str | PathLike[Any]"  [arg-type]
user.py:21: error: "type[Tokenizer]" has no attribute "laod"  [attr-defined]
user.py:22: error: Argument 1 to "project_queries" of "MultiHeadAttention" has incompatible type "str"; expected "Tensor"  [arg-type]
user.py:23: note: Revealed type is "annotated_transformer.model.layers.Stack"
user.py:24: note: Revealed type is "torch.nn.modules.linear.Linear"
"""

@pytest.mark.nightly      # twenty seconds of mypy on PyTorch's types
def test_a_users_file(tmp_path):
    "The whole package passes beside its stubs, too."
    (tmp_path / 'user.py').write_text(USER)
    command = [sys.executable, '-m', 'mypy', '--config-file', ROOT / 'mypy.ini', '--cache-dir', ROOT / '.mypy_cache/user', '--no-error-summary', '-p', 'annotated_transformer', '-m', 'user']
    result = subprocess.run(list(map(str, command)), cwd=tmp_path, env=os.environ | {'MYPYPATH': str(ROOT)}, capture_output=True, text=True)
    assert result.stdout == REPORTED, result.stdout + result.stderr
