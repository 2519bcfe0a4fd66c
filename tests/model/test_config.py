"The hyper-parameters: heads that follow the width, what is refused, and the rows of Table 3."
from dataclasses import FrozenInstanceError, asdict, replace

import pytest

from annotated_transformer.model.config import TransformerConfig, count_parameters, presets

BASE = dict(N=6, d_model=512, d_ff=2048, h=8, d_k=64, d_v=64, P_drop=.1, eps_ls=.1)
TABLE_3 = dict(          # what differs from the base model
    base={}, A_h1=dict(h=1, d_k=512, d_v=512), A_h4=dict(h=4, d_k=128, d_v=128), A_h16=dict(h=16, d_k=32, d_v=32), A_h32=dict(h=32, d_k=16, d_v=16),
    B_dk16=dict(d_k=16), B_dk32=dict(d_k=32), C_N2=dict(N=2), C_N4=dict(N=4), C_N8=dict(N=8), C_d256=dict(d_model=256, d_k=32, d_v=32),
    C_d1024=dict(d_model=1024, d_k=128, d_v=128), C_dff1024=dict(d_ff=1024), C_dff4096=dict(d_ff=4096), D_drop0=dict(P_drop=0.), D_ls0=dict(eps_ls=0.),
    E_learned=dict(positions='learned'), big=dict(d_model=1024, d_ff=4096, h=16, P_drop=.3)) | {'D_drop0.2': dict(P_drop=.2), 'D_ls0.2': dict(eps_ls=.2)}

def test_each_preset_is_its_row_and_nothing_else():
    assert presets.keys() == TABLE_3.keys()
    for name, row in TABLE_3.items():
        d_k, d_v = presets[name].head_dims
        assert replace(presets[name], d_k=d_k, d_v=d_v) == TransformerConfig(**BASE | row), name

def test_heads_share_the_width():
    base = TransformerConfig()
    assert TransformerConfig(d_k=16).head_dims == (16, 64)
    assert TransformerConfig(h=7, d_k=64, d_v=64).head_dims == (64, 64)
    assert replace(base, h=16).head_dims == (32, 32) and replace(base, h=16) == TransformerConfig(h=16)

def test_a_configuration_is_frozen_and_goes_through_a_dictionary():
    base = TransformerConfig()
    with pytest.raises(FrozenInstanceError): base.d_model = 1024
    assert TransformerConfig(**asdict(base)) == base

@pytest.mark.parametrize('changes, message', [
    (dict(h=7), 'h=7 does not divide d_model=512: set both d_k and d_v'), (dict(h=7, d_k=64), 'h=7 does not divide'),
    (dict(norm='layer'), "norm='layer' is unknown: use one of post, pre"), (dict(positions='rotary'), "positions='rotary' is unknown: use one of"),
    (dict(P_drop=1.), 'P_drop=1.0 must be below 1'), (dict(P_drop=-.1), 'P_drop=-0.1 must be at least 0'),
    (dict(eps_ls=float('nan')), 'eps_ls=nan is not a finite number'), (dict(P_attn=2), 'P_attn=2 must be below 1'),
    *((dict([(name, 0)]), f'{name}=0 must be at least 1') for name in 'vocab_size N d_model d_ff h d_k d_v max_len'.split())])
def test_what_is_refused(changes, message):
    with pytest.raises(ValueError, match=message.replace('.', '[.]')): TransformerConfig(**changes)

def test_a_vocabulary_that_explains_the_column_of_the_paper():
    "41,100 tokens give every printed count but that of big; 37,000 give none."
    printed = dict(base=65, B_dk16=58, B_dk32=60, C_N2=36, C_N4=50, C_N8=80, C_d256=28, C_d1024=168, C_dff1024=53, C_dff4096=90, big=213)
    for name, millions in printed.items():
        counts = [round(count_parameters(replace(presets[name], vocab_size=V)) / 1e6) for V in (41_100, 37_000)]
        assert [n == millions for n in counts] == [name != 'big', False]
