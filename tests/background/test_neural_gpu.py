"The Neural GPU: sums, a step by hand, padding, what its writers are conditioned on, refusals."
import pytest
import torch
from torch.nn import functional as F
from torch.testing import assert_close

from annotated_transformer.background.neural_gpu import ExtendedNeuralGPU, NeuralGPU, _ConvGRU, _diagonal_shift, _hard_sigmoid, make_addition

def numbers(rows): return [sum(bit << i for i, bit in enumerate(row)) for row in rows.tolist()]

def terms():
    torch.manual_seed(0)
    return torch.randint(2, (2, 300, 20))

def test_sums_in_columns():
    a, b = terms()
    x, y = make_addition(a, b)
    assert numbers(y - 1) == [i + j for i, j in zip(numbers(a), numbers(b))]
    assert_close(x[:, :-1], 1 + 2 * a + b)
    assert_close(make_addition(a.bool(), b.float())[1], y)

def test_sums_in_a_row():
    a, b = terms()
    x, y = make_addition(a, b, concatenate=True)
    assert numbers(y[:, :21] - 1) == [i + j for i, j in zip(numbers(a), numbers(b))] and not y[:, 21:].any()
    assert_close(x, torch.cat([a + 1, torch.full((300, 1), 3), b + 1], 1))

def test_hard_sigmoid(): assert _hard_sigmoid(torch.tensor([-3., -1., 0., 1., 2.])).tolist() == [0, 0, .5, 1, 1]

def test_a_step_position_by_position():
    torch.manual_seed(0)
    cell, s = _ConvGRU(6).eval(), torch.randn(2, 6, 5)
    g, c = cell.gates, cell.candidate
    def at(w, bias, x, i): return torch.einsum('oij,bij->bo', w, F.pad(x, (1, 1))[..., i:i + 3]) + bias
    r = torch.stack([_hard_sigmoid(at(g.weight[:6], g.bias[:6], s, i)) for i in range(5)], -1)
    for i in range(5):
        gate = _hard_sigmoid(at(g.weight[6:], g.bias[6:], s, i))
        old = torch.cat([s[:, :2, i], s[:, 2:4, i - 1] if i else torch.zeros(2, 2), s[:, 4:, i + 1] if i < 4 else torch.zeros(2, 2)], 1)
        new = gate * old + (1 - gate) * at(c.weight, c.bias, r * s, i).clamp(-1, 1)
        assert_close(cell(s)[..., i], new)

@torch.no_grad()
def test_through_open_gates_numbers_move_by_one_position_a_step():
    cell, s = _ConvGRU(6).eval(), torch.randn(2, 6, 5)
    cell.gates.weight.zero_()
    cell.gates.bias[6:] = 1.
    assert_close(cell(s), _diagonal_shift(s), rtol=0, atol=0)
    assert_close(cell(cell(s))[:, 2:4, 2:], s[:, 2:4, :-2], rtol=0, atol=0)

@torch.no_grad()
def test_padding_and_what_is_too_far_change_nothing():
    "Two positions a step."
    torch.manual_seed(0)
    net, x = NeuralGPU(5, 3, 36).eval(), torch.randint(1, 5, (4, 7))
    assert_close(net(F.pad(x, (0, 5)), steps=7)[:, :7], net(x))
    moved = x.clone()
    moved[:, 0] = 5 - moved[:, 0]
    one, other = net(x, 2), net(moved, 2)
    assert_close(one[:, 5:], other[:, 5:], rtol=0, atol=0)
    assert not torch.equal(one[:, :3], other[:, :3])

@torch.no_grad()
@pytest.mark.parametrize('mode, changed', dict(tape=[False] * 5 + [True] * 2, markov=[False] * 5 + [True, False]).items())
def test_what_a_writer_is_conditioned_on(mode, changed):
    "All letters before, or the last one; its own greedy output, given back, changes nothing."
    torch.manual_seed(0)
    writer, (src, tgt) = ExtendedNeuralGPU(9, 6, mode).eval(), torch.randint(9, (2, 3, 7))
    other = tgt.clone()
    other[:, 4] = (other[:, 4] + 1) % 9
    assert (writer(src, tgt) != writer(src, other)).any(-1).any(0).tolist() == changed
    own = writer(src)
    assert_close(writer(src, own.argmax(-1)), own)

@pytest.mark.parametrize('call, message', [
    (lambda: make_addition(torch.ones(2, 3), torch.ones(2, 2)), r'expected the same \(B, k\)'), (lambda: make_addition(torch.full((2, 3), 2), torch.ones(2, 3)), 'bits, 0 or 1'),
    (lambda: make_addition(torch.full((2, 3), -1), torch.ones(2, 3)), 'bits, 0 or 1'), (lambda: _ConvGRU(2), 'm=2'), (lambda: _ConvGRU(7), 'multiple of 3'),
    (lambda: _ConvGRU(6, 0, 1.), 'P_drop'), (lambda: NeuralGPU(1, 3), 'V_in=1'), (lambda: NeuralGPU(5, 3)(torch.tensor([[1]]), -3), 'steps=-3'),
    (lambda: NeuralGPU(5, 3)(torch.tensor([[5]])), 'each from 0 to 4'), (lambda: NeuralGPU(5, 3)(torch.tensor([-1])), r'expected \(B, n\)'),
    (lambda: ExtendedNeuralGPU(9, 6, 'twice'), 'output_mode'), (lambda: ExtendedNeuralGPU(9, 6)(torch.ones(3, 7).long(), torch.ones(3, 6).long()), 'expected the shape of src')])
def test_refused(call, message):
    with pytest.raises(ValueError, match=message): call()
