"Adaptive computation time: the repeated cell and PyTorch's network, halting by hand, parity and its measures, refusals."
import math
from functools import partial

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.testing import assert_close

from annotated_transformer.background.adaptive_computation_time import ACTCell, RepeatRNNCell, _evaluate_parity, _parity_loss, _ParityNetwork, make_parity
from annotated_transformer.data.number_names import train_toy

def alone(cell, x, state=None):
    "One input (d_in) through a plain loop: the state's mean by the definition, of an RNN or a GRU."
    hs, states = [], []
    for n in range(cell.max_steps):
        state = cell.cell(torch.cat([x, x.new_tensor([float(n == 0)])])[None], state)
        states.append(state)
        hs.append(torch.sigmoid(cell.halt(state)).item())
        if sum(hs) >= 1 - cell.epsilon: break
    return sum(p * s for p, s in zip([*hs[:-1], 1 - sum(hs[:-1])], states))

def halting_cell():
    "A cell whose inputs halt at different steps, and some inputs."
    torch.manual_seed(1)
    cell = ACTCell(5, 6, 'gru', halting_bias=-1.).double()
    nn.init.normal_(cell.halt.weight, std=2.)
    return cell, torch.randn(30, 5, dtype=torch.double)

@pytest.mark.parametrize('times', [1, 2, 4])
def test_repeated_steps_are_pytorchs_network_that_reads_the_input_again(times):
    torch.manual_seed(0)
    x, cell, network = torch.randn(3, 5), RepeatRNNCell(5, 6, times), nn.RNN(6, 6, batch_first=True)
    network.load_state_dict({f'{name}_l0': w for name, w in cell.cell.state_dict().items()})
    flags = F.one_hot(torch.tensor(0), times).float()                    # 1, 0, 0, …
    read = torch.cat([x[:, None].expand(3, times, 5), flags[None, :, None].expand(3, times, 1)], -1)
    state, ponder, steps = cell(x)
    assert_close(state, network(read)[0][:, -1])
    assert_close(steps, torch.full((3,), float(times)))
    assert_close(ponder, steps)

def test_one_step_is_the_plain_cell():
    x = torch.randn(3, 5)
    for cell in RepeatRNNCell(5, 6, 1), ACTCell(5, 6, halting_bias=99.): assert_close(cell(x)[0], cell.cell(F.pad(x, (0, 1), value=1.)))

def test_before_training_the_ponder_cost_is_two_steps_and_the_remainder():
    cell = ACTCell(5, 6)
    nn.init.zeros_(cell.halt.weight)
    assert_close(cell(torch.randn(3, 5))[1], torch.full((3,), 3 - 1 / (1 + math.exp(-1))))

def test_a_frozen_halting_unit_mixes_two_states_and_training_leaves_it():
    torch.manual_seed(0)
    cell, h = ACTCell(8, 6, freeze_halting=True), 1 / (1 + math.exp(-1))
    before = [p.clone() for p in cell.halt.parameters()]
    train_toy(_ParityNetwork(cell), partial(make_parity, 8, 16), 5, loss_fn=partial(_parity_loss, tau=1.))
    assert_close([*cell.halt.parameters()], before)
    x, _ = make_parity(8, 10)
    first = cell.cell(F.pad(x, (0, 1), value=1.))
    assert_close(cell(x)[0], h * first + (1 - h) * cell.cell(F.pad(x, (0, 1)), first))

def test_an_input_does_not_depend_on_its_batch():
    "Neither its steps nor its gradients."
    cell, x = halting_cell()
    def gradients(rows):
        state, ponder, steps = cell(x[rows])
        return steps, torch.autograd.grad((state ** 2).sum() + ponder.sum(), list(cell.parameters()))
    steps, together = gradients(slice(None))
    assert len(steps.unique()) > 2
    assert_close(together, [sum(parts) for parts in zip(*(gradients(slice(i, i + 1))[1] for i in range(30)))])

def test_the_next_token_begins_with_the_state_of_the_last():
    cell, x = halting_cell()
    second = cell(x[4:8], cell(x[:4])[0])[0]
    for i in range(4): assert_close(second[i], alone(cell, x[4 + i], alone(cell, x[i]))[0])
    assert (second - cell(x[4:8])[0]).abs().max() > .01

def test_the_mean_of_the_answers_is_the_answer_of_the_mean():
    "Equation 9: the answer is linear."
    (cell, x), out, states = halting_cell(), nn.Linear(6, 1).double(), []
    cell.cell.register_forward_hook(lambda _, __, s: states.append(s))
    mean, _, _ = cell(x)
    answers = torch.stack([out(s)[:, 0] for s in states], 1)                # (B, n)
    assert_close((cell.halting_probs * answers).sum(1), out(mean)[:, 0])

def test_the_gradient_of_the_ponder_cost_is_a_finite_difference():
    cell, x = halting_cell()
    _, ponder, steps = cell(x)
    slope, = torch.autograd.grad(ponder.sum(), cell.halt.bias)
    with torch.no_grad():
        cell.halt.bias += 1e-7
        _, after, steps_after = cell(x)
    assert steps.tolist() == steps_after.tolist() and slope < 0
    assert_close((after - ponder).sum() / 1e-7, slope[0], rtol=1e-4, atol=1e-4)

def test_parity_vectors():
    "Signs first, then zeros; every k about equally often."
    x, odd = make_parity(8, 4000, torch.Generator().manual_seed(0))
    k = (x != 0).sum(1)
    assert all((row[:i] != 0).all() and not row[i:].any() for row, i in zip(x[:200], k))
    assert abs(k.bincount(minlength=9)[1:] - 500).max() < 100
    assert odd.tolist() == [sum(v == 1 for v in row) % 2 for row in x.tolist()]

def test_measures_by_k():
    class Knows(nn.Module):
        def forward(self, x): return (x == 1).sum(1) % 2 - .5, None, 1. + (x != 0).sum(1)
    found = _evaluate_parity(Knows(), 8)
    assert (found['right'], found['right_by_k'], found['steps_by_k']) == (1., [1.] * 8, [float(k + 1) for k in range(1, 9)])

def test_the_loss_counts_the_steps():
    plain, batch = _ParityNetwork(RepeatRNNCell(8, 4, 3)), make_parity(8, 10)
    assert_close(_parity_loss(plain, *batch, tau=.5), _parity_loss(plain, *batch) + 1.5)

@pytest.mark.parametrize('call, message', [
    (lambda: RepeatRNNCell(5, 6, 0), 'repetitions=0'), (lambda: RepeatRNNCell(0, 6), 'd_in=0'), (lambda: ACTCell(5, 0), 'd=0'),
    (lambda: ACTCell(5, 6, kind='cnn'), "kind='cnn' is unknown: use one of rnn, gru"), (lambda: ACTCell(5, 6, max_steps=0), 'max_steps=0'),
    (lambda: ACTCell(5, 6, epsilon=1.), r'epsilon=1\.0'), (lambda: ACTCell(5, 6, epsilon=-.1), r'epsilon=-0\.1'),
    (lambda: make_parity(0, 3), 'n=0'), (lambda: make_parity(3, 0), 'size=0'),
    (lambda: _evaluate_parity(_ParityNetwork(RepeatRNNCell(8, 4)), 8, 0), 'size=0'),
    (lambda: _parity_loss(_ParityNetwork(RepeatRNNCell(8, 4)), *make_parity(8, 3), -1.), r'tau=-1\.0')])
def test_refused(call, message):
    with pytest.raises(ValueError, match=message): call()

@pytest.mark.parametrize('make', [RepeatRNNCell, ACTCell])
def test_refuses_inputs_of_another_shape(make):
    with pytest.raises(ValueError, match=r'\(3, 4\) and must be \(B, 5\)'): make(5, 6)(torch.zeros(3, 4))
    with pytest.raises(ValueError, match=r'must be \(B, 5\)'): make(5, 6)(torch.zeros(5))
