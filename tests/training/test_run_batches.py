"The check of memory before the first step."
from types import SimpleNamespace

import pytest
from helpers import SMALL_OVERRIDES

from annotated_transformer.data.corpora import load_corpus
from annotated_transformer.recipe import get_recipe
from annotated_transformer.run_directory import RunDirectory
from annotated_transformer.training.run_batches import _load_train_valid
from annotated_transformer.training.run_setup import _init_model, _prepare_run
from annotated_transformer.utils import validation
from annotated_transformer.utils.validation import UserError


def test_logits_have_to_fit_all_at_once_or_chunk_by_chunk(tmp_path, monkeypatch):
    "12 bytes a logit: 512 tokens × 100 types need 614,400 bytes, chunks of 16 tokens 19,200."
    whole, chunks = (get_recipe('demo', **SMALL_OVERRIDES, loss_chunk_size=size) for size in (None, 16))
    run = RunDirectory(tmp_path / 'run')
    _prepare_run(run, whole, load_corpus('numbers'))
    model = _init_model(whole, run)
    def load(recipe, memory):
        monkeypatch.setattr(validation.psutil, 'virtual_memory', lambda: SimpleNamespace(total=memory))
        model.loss_chunk_size = recipe.loss_chunk_size
        return _load_train_valid(recipe, run, model, 1)
    train_batches, _ = load(whole, 614_400)
    assert train_batches.max_batch_tokens > 16
    with pytest.raises(UserError, match=r'the logits of \d+ tokens \(max_tokens, loss_chunk_size\): [\d,]+ bytes are needed, this machine has 19,200'): load(whole, 19_200)
    load(chunks, 19_200)
    with pytest.raises(UserError, match=r'the logits of 16 tokens .*: 19,200 bytes are needed, this machine has 19,199'): load(chunks, 19_199)
