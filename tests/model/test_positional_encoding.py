"Sines and cosines: steps, distances, precision; and the layer that adds them."
import math

import pytest
import torch
from torch.testing import assert_close

from annotated_transformer.model.positional_encoding import PositionalEncoding, positional_encoding

def step(k, d_model):
    "The matrix that takes PE(pos) to PE(pos + k)."
    angles = k / 10000 ** (torch.arange(0, d_model, 2).double() / d_model)
    return torch.block_diag(*(torch.tensor([[math.cos(a), math.sin(a)], [-math.sin(a), math.cos(a)]], dtype=torch.float64) for a in angles))

def fitted_step(table, first, last, k=5):
    "The same by least squares, from some positions."
    return torch.linalg.lstsq(table[first:last], table[first + k:last + k]).solution.T

def layer(**settings): return PositionalEncoding(16, **settings).eval()

def test_a_step_is_the_same_rotation_everywhere():
    table = positional_encoding(8000, 8).double()
    assert_close(fitted_step(table, 0, 3000), fitted_step(table, 4000, 7000), rtol=0, atol=1e-5)
    assert_close(fitted_step(table, 0, 3000), step(5, 8), rtol=0, atol=1e-5)

def test_dot_products_depend_on_the_distance_alone():
    table, omega = positional_encoding(3000, 512).double(), 10000. ** -(torch.arange(0, 512, 2).double() / 512)
    for distance in (0, 1, 50, 2000):
        products = (table[distance:] * table[:3000 - distance]).sum(-1)
        assert_close(products, torch.full_like(products, (distance * omega).cos().sum().item()), rtol=0, atol=1e-4)

def test_all_positions_have_one_norm():
    assert_close(positional_encoding(5000, 512).norm(dim=1), torch.full((5000,), 16.))

def test_another_layout_has_the_same_dot_products():
    "All sines first and all cosines after them, as in the authors' code: the columns change places."
    table, angles = positional_encoding(100, 64), torch.arange(100)[:, None] / 10000 ** (torch.arange(0, 64, 2) / 64)
    halves = torch.cat([angles.sin(), angles.cos()], -1)
    assert_close(table[:, [*range(0, 64, 2), *range(1, 64, 2)]], halves, rtol=0, atol=1e-5)
    assert_close(table @ table.T, halves @ halves.T, rtol=0, atol=1e-3)

def test_far_positions_are_exact():
    "Computed in float64: in float32 a row of width 512 is wrong in the third decimal at position 100,000."
    exact = [f(100_000 / 10000 ** (i / 4)) for i in range(4) for f in (math.sin, math.cos)]
    assert_close(positional_encoding(100_001, 8)[-1], torch.tensor(exact), rtol=0, atol=1e-7)
    def row(dtype):
        angle = torch.tensor([100_000]).to(dtype) / 10000 ** (torch.arange(0, 512, 2).to(dtype) / 512)
        return torch.cat([angle.sin(), angle.cos()], -1).double()
    assert 1e-3 < (row(torch.float32) - row(torch.float64)).abs().max() < 1e-2

def test_what_is_refused():
    "Sinusoids come in pairs; learned vectors may have any width and end with the table."
    for make in lambda: positional_encoding(10, 7), lambda: PositionalEncoding(7):
        with pytest.raises(ValueError, match='d_model=7 is odd'): make()
    with pytest.raises(ValueError, match="positions='leanred'"): PositionalEncoding(8, .1, 'leanred')
    assert PositionalEncoding(7, positions='learned').table.shape == (1024, 7)
    with pytest.raises(ValueError, match='9 positions, but only max_len=8 were learned'): layer(positions='learned', max_len=8)(torch.zeros(1, 9, 16))

def test_the_layer_adds_the_rows_and_nothing_else():
    x, learned = torch.randn(2, 7, 16), layer(positions='learned', max_len=8)
    assert_close(layer()(x), x + positional_encoding(7, 16))
    assert_close(learned(x), x + learned.table[:7])
    assert_close(layer(positions='none')(x), x)
    for kind in layer(max_len=8), learned: assert_close(kind(torch.zeros(1, 3, 16), 5)[0], kind.table[5:8])

def test_dropout_falls_on_the_sum():
    "Of the word alone it would leave the position, so that no entry were zero."
    torch.manual_seed(0)
    x = torch.randn(8, 50, 64)
    out, total = PositionalEncoding(64, P_drop=.1)(x), x + positional_encoding(50, 64)
    assert (out == 0).float().mean().item() == pytest.approx(.1, abs=.01)
    assert_close(out[out != 0], total[out != 0] / .9)

@pytest.mark.parametrize('dtype', [torch.float64, torch.bfloat16])
def test_the_table_is_extended_in_the_type_of_the_layer(dtype):
    position = layer(max_len=8).to(dtype)
    for T in (5, 100): assert position(torch.zeros(1, T, 16, dtype=dtype)).dtype == dtype
    position = layer(max_len=8)
    position(torch.zeros(1, 100, 16, dtype=dtype))                 # the type of the input has no effect
    assert position.table.dtype == torch.float32

@pytest.mark.parametrize('device', ['cpu', 'meta', pytest.param('cuda', marks=pytest.mark.skipif(not torch.cuda.is_available(), reason='needs CUDA'))])
def test_the_table_is_extended_where_the_layer_is(device):
    position = layer(max_len=8).to(device)
    out = position(torch.zeros(1, 100, 16, device=device))
    assert out.device.type == device
    if device != 'meta':
        assert_close(out[0].cpu(), positional_encoding(100, 16))
        assert_close(position(torch.zeros(1, 5, 16, device=device))[0].cpu(), positional_encoding(5, 16))

def test_sinusoids_are_neither_trained_nor_saved():
    fixed, learned = layer(max_len=8), layer(positions='learned', max_len=8)
    assert [sum(p.numel() for p in m.parameters()) for m in (fixed, learned)] == [0, 8 * 16]
    assert [list(m.state_dict()) for m in (fixed, learned)] == [[], ['table']]
