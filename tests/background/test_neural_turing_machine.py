"The neural Turing machine: addressing and sharpening, machines side by side, the copy task and its measures, refusals."
import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.testing import assert_close

from annotated_transformer.background.neural_turing_machine import (NeuralTuringMachine, _circular_convolution, _content_addressing, _copy_loss, _CopyLSTM, _evaluate_copy,
                                                                    _sharpen, _write_memory, make_copy_task)

def machines(R): return NeuralTuringMachine(6, 4, N=12, W=5, d=9, R=R)

def side_by_side():
    "Three machines, sequences of six vectors for each, what is expected."
    torch.manual_seed(2)
    return machines(3), *make_copy_task(4, 8, 5, 3, n=6)

def test_a_large_beta_finds_the_best_slot():
    torch.manual_seed(0)
    M, k = torch.randn(2, 50, 6), torch.randn(2, 3, 6)
    cosines = F.cosine_similarity(k[:, :, None], M[:, None], dim=-1)
    assert_close(_content_addressing(k, M, torch.full((2, 3, 1), 1e5)), F.one_hot(cosines.argmax(-1), 50).float(), atol=1e-2, rtol=0)

def test_content_does_not_depend_on_lengths():
    M, k, beta = torch.randn(2, 50, 6), torch.randn(2, 3, 6), torch.ones(2, 3, 1)
    assert_close(_content_addressing(9 * k, M, beta), _content_addressing(k, 9 * M, beta))

def test_sharpening_is_a_power():
    "Also where the powers underflow."
    w, gamma = torch.randn(4, 9).softmax(-1), torch.rand(4, 1) * 3 + 1
    assert_close(_sharpen(w, gamma), w ** gamma / (w ** gamma).sum(-1, keepdim=True))
    even, strong = torch.full((128,), 1 / 128), torch.tensor([30.])
    assert (even ** strong / (even ** strong).sum()).isnan().all()
    assert_close(_sharpen(even, strong), even)

@pytest.mark.parametrize('start, content', [(1e-6, True), (0., True), (0., False)])
def test_an_empty_memory_gives_finite_gradients(start, content):
    "Without content none reaches k, β and g."
    machine, M = NeuralTuringMachine(3, 2, N=5, W=3, d=4, content=content), torch.full((1, 2, 5, 3), start, requires_grad=True)
    w = F.one_hot(torch.zeros(1, 2, 2, dtype=torch.long), 5).float().requires_grad_()
    machine.step(torch.randn(1, 2, 3), torch.zeros(1, 2, 3), w, M)[0].sum().backward()
    assert all(leaf.grad.isfinite().all() for leaf in (M, w, *machine.parameters()))
    assert machine.heads.weight.grad.unflatten(-1, (2, -1))[..., :5].any() == content

def test_machines_and_sequences_are_independent():
    (many, x, _), alone = side_by_side(), machines(1)
    answers, weights = many(x), many.weights
    assert_close(weights.sum(-1), torch.ones(3, 5, 14, 2))
    alone.load_state_dict({name: w[1:2] for name, w in many.state_dict().items()})
    assert_close(alone(x[1:2]), answers[1:2])
    assert_close(alone(x[1:2, 3:4]), answers[1:2, 3:4])

def test_the_last_answer_depends_on_the_first_vector():
    torch.manual_seed(2)
    machine, (x, _) = machines(1), make_copy_task(4, 8, 5, n=6)
    changed = x.clone()
    changed[:, :, 1, :4] = 1 - changed[:, :, 1, :4]
    assert (machine(changed)[:, :, -1] - machine(x)[:, :, -1]).abs().max() > 1e-6

def test_the_loss_is_the_sum_over_machines():
    many, x, target = side_by_side()
    assert_close(_copy_loss(many, x, target), sum(F.binary_cross_entropy_with_logits(y[:, -6:], t) for y, t in zip(many(x), target)))

def test_lstms_side_by_side_are_pytorchs():
    (_, x, _), pair, plain = side_by_side(), _CopyLSTM(6, 4, 7, 2, R=2), nn.LSTM(6, 7, 2, batch_first=True)
    plain.load_state_dict(pair.read[1].state_dict())
    assert_close(pair(x[:2])[1], pair.answer[1](plain(x[1])[0]))

def test_the_copy_task():
    "A mark, five vectors, a mark, five blanks; lengths from 1 to the longest."
    torch.manual_seed(0)
    x, target = make_copy_task(4, 6, 300, 2, n=5)
    assert (x.shape, target.shape) == ((2, 300, 12, 6), (2, 300, 5, 4))
    assert x[:, :, 1:6, :4].equal(target) and not x[:, :, 7:].any()
    assert x[0, 0, :, 4:].sum(-1).tolist() == [1., *[0.] * 5, 1., *[0.] * 5]
    assert .45 < target.mean() < .55
    assert {make_copy_task(4, 6)[1].size(2) for _ in range(200)} == {*range(1, 7)}

def test_wrong_bits_of_a_model_that_knows():
    "Of the second the last vector is wrong."
    class Knows(nn.Module):
        def forward(self, x):
            n = x.size(2) // 2 - 1
            y = F.pad(x[:, :, 1:n + 1, :4], (0, 0, n + 2, 0)) - .5
            y[1, :, -1] *= -1
            return y
    assert _evaluate_copy(Knows(), 4, 3, R=2).tolist() == [[0., 0, 0], [0, 0, 4]]

@pytest.mark.parametrize('moves', [2, 7])
def test_refuses_shifts(moves):
    with pytest.raises(ValueError, match=f's has {moves} shifts for 5 slots'): _circular_convolution(torch.zeros(5), torch.zeros(moves))

@pytest.mark.parametrize('slots, e, a', [(4, 3, 3), (5, 2, 3), (5, 3, 4)])
def test_refuses_to_write_other_shapes(slots, e, a):
    with pytest.raises(ValueError, match='shapes do not match'): _write_memory(torch.zeros(2, 5, 3), torch.zeros(2, slots), torch.zeros(2, e), torch.zeros(2, a))

@pytest.mark.parametrize('settings, message', [(dict(N=0), 'N=0'), (dict(d=0), 'd=0'), (dict(R=0), 'R=0'), (dict(shifts=-1), 'shifts=-1'), (dict(N=4, shifts=2), 'fit in')])
def test_refuses_sizes(settings, message):
    with pytest.raises(ValueError, match=message): NeuralTuringMachine(6, 4, **settings)

@pytest.mark.parametrize('shape', [(1, 1, 4, 6), (2, 1, 4, 5), (2, 4, 6)])
def test_refuses_inputs(shape):
    with pytest.raises(ValueError, match=r'must be \(R=2, B, T, 6\)'): NeuralTuringMachine(6, 4, N=5, W=3, d=4, R=2)(torch.zeros(shape))

def test_refuses_more_vectors_than_slots():
    small = NeuralTuringMachine(6, 4, N=5, W=3, d=4, R=2)
    assert small(torch.zeros(2, 1, 12, 6)).shape == (2, 1, 12, 4)
    with pytest.raises(ValueError, match='6 vectors do not fit'): small(torch.zeros(2, 1, 14, 6))
    with pytest.raises(ValueError, match='do not fit'): _evaluate_copy(small, 4, 6, R=2)

@pytest.mark.parametrize('call, message', [
    (lambda: _content_addressing(torch.zeros(2, 1, 4), torch.zeros(2, 5, 3), torch.ones(2, 1, 1)), 'k has width 4, the slots of the memory 3'),
    (lambda: make_copy_task(0, 5), 'bits=0'), (lambda: make_copy_task(4, 0), 'max_len=0'), (lambda: _evaluate_copy(machines(2), 4, 0, 5, R=2), 'n=0'),
    (lambda: _evaluate_copy(machines(2), 4, 5, 0, R=2), 'size=0'), (lambda: _CopyLSTM(6, 4, 0), 'd=0'), (lambda: _CopyLSTM(6, 4, 5, R=3)(torch.zeros(2, 1, 4, 6)), 'R=2')])
def test_refused(call, message):
    with pytest.raises(ValueError, match=message): call()
