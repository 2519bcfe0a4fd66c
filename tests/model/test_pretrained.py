"Weights in a file: what may be edited in config.json, and what is refused."
import json
from dataclasses import asdict, replace

import pytest
import torch
from torch.testing import assert_close

from annotated_transformer.background.recurrent import RecurrentConfig
from annotated_transformer.model.pretrained import load_weights, save_weights
from annotated_transformer.model.seq2seq import build_model
from annotated_transformer.run_directory import load_model

CONFIG = RecurrentConfig(20, N=1, d_model=8, P_drop=.1)

@pytest.fixture
def run(tmp_path):
    "Weights of a model that is no Transformer, and a function that opens them with other settings."
    torch.manual_seed(0)
    model = build_model('recurrent', CONFIG)
    save_weights(dict(model.named_parameters()), CONFIG, tmp_path / 'model.safetensors')
    def load(architecture='recurrent', **changes):
        config = dict(architecture=architecture, model=asdict(CONFIG) | changes, pad_id=0)
        (tmp_path / 'config.json').write_text(json.dumps(config))
        return load_model(tmp_path)
    return model.eval(), load, tmp_path

def test_saved_weights_are_those_of_before(run):
    "Also with another dropout, label smoothing and length."
    model, load, folder = run
    for loaded in load(), load(P_drop=0., eps_ls=0., max_len=7):
        for a, b in zip(model.parameters(), loaded.parameters(), strict=True): assert_close(a, b, rtol=0, atol=0)
    assert loaded.config.max_len == 7 and loaded.config.eps_ls == 0
    assert load_weights(folder / 'model.safetensors', model).keys() == dict(model.named_parameters()).keys()

def test_other_settings_are_refused(run):
    "A changed width, an unknown field, an architecture that is not a string."
    model, load, folder = run
    with pytest.raises(ValueError, match='trained with d_model=8, but config.json has d_model=16'): load(d_model=16)
    with pytest.raises(ValueError, match="unknown field 'width'"): load(width=3)
    with pytest.raises(ValueError, match='config.json'): load(architecture=['recurrent'])
    with pytest.raises(ValueError, match='trained with d_model=8'):
        load_weights(folder / 'model.safetensors', build_model('recurrent', replace(CONFIG, d_model=16)))
