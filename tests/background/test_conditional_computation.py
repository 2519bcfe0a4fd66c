"A mixture of experts: dense, by hand, its noise and gradients; LSTMs of thin matrices; refusals."
import pytest
import torch
from torch import nn
from torch.testing import assert_close

from annotated_transformer.background.conditional_computation import FactorizedLSTM, MixtureOfExperts, _cv_squared

def dense_and_experts():
    "A mixture that selects all of its four experts, tokens (50, 6) and what each expert answers (50, 4, 6)."
    torch.manual_seed(0)
    x, every = torch.randn(50, 6), MixtureOfExperts(6, 4, 4).eval()
    nn.init.normal_(every.gate.weight)
    return every, x, torch.stack([expert(x) for expert in every.experts], 1)

def test_all_experts_are_a_dense_weighted_sum():
    every, x, dense = dense_and_experts()
    assert_close(every(x), (every.gate(x).softmax(1)[..., None] * dense).sum(1))
    assert every.load.tolist() == [50.] * 4

def test_two_of_four_by_hand():
    (every, x, dense), two = dense_and_experts(), MixtureOfExperts(6, 4, 2).eval()
    two.load_state_dict(every.state_dict())
    by_hand = torch.stack([sum(w * dense[t, i] for w, i in zip(best.softmax(0), chosen)) for t, (best, chosen) in enumerate(zip(*two.gate(x).topk(2)))])
    assert_close(two(x), by_hand)
    assert_close(two.importance.sum(), torch.tensor(50.))

def test_at_the_beginning_noise_alone_selects():
    torch.manual_seed(0)
    net = MixtureOfExperts(6, 5, 2)
    assert not net.gate.weight.any() and not net.noise.weight.any()
    net(torch.randn(4000, 6))
    assert (net.selected.float().mean(0) - 2 / 5).abs().max() < .05

def test_noise_by_hand():
    torch.manual_seed(0)
    net, x = MixtureOfExperts(6, 5, 2), torch.randn(4000, 6)
    nn.init.normal_(net.gate.weight)
    nn.init.normal_(net.noise.weight)
    torch.manual_seed(5)
    net(x)
    torch.manual_seed(5)
    noise = torch.randn(4000, 5) * (1 + (x @ net.noise.weight.T).exp()).log()
    best = (x @ net.gate.weight.T + noise).topk(2)[1].sort(1)[0]
    assert_close(net.selected.nonzero()[:, 1].view(4000, 2), best)

def test_the_load_has_a_gradient():
    torch.manual_seed(0)
    net = MixtureOfExperts(6, 4, 1)
    nn.init.normal_(net.gate.weight)
    net(torch.randn(64, 6))
    _cv_squared(net.load).backward()
    assert net.gate.weight.grad.abs().sum() > 0 and net.noise.weight.grad.abs().sum() > 0

def test_unevenness():
    assert_close(_cv_squared(torch.tensor([1., 1, 1])), torch.tensor(0.))
    assert_close(_cv_squared(torch.tensor([0., 6.])), torch.tensor(1.))

@torch.no_grad()
def test_a_product_of_full_rank_loses_nothing():
    torch.manual_seed(0)
    whole, thin = FactorizedLSTM(4), FactorizedLSTM(4, rank=8)
    U, S, V = torch.linalg.svd(whole.products[0].weight)   # (16, 16), (8,), (8, 8)
    thin.products[0][0].weight.copy_(V)
    thin.products[0][1].weight.copy_(U[:, :8] * S)
    thin.products[0][1].bias.copy_(whole.products[0].bias)
    x = torch.randn(2, 5, 4)
    assert_close(thin(x), whole(x), rtol=1e-4, atol=1e-5)

@torch.no_grad()
def test_a_group_reads_only_its_own():
    torch.manual_seed(0)
    pair, x = FactorizedLSTM(8, groups=2), torch.randn(1, 5, 8)
    moved = x.clone()
    moved[..., :4] += 1
    assert_close(pair(x)[..., 4:], pair(moved)[..., 4:], rtol=0, atol=0)
    assert not torch.equal(pair(x)[..., :4], pair(moved)[..., :4])

@pytest.mark.parametrize('call, message', [
    (lambda: MixtureOfExperts(6, 2, 3), 'k=3'), (lambda: MixtureOfExperts(6, 0), 'n=0'),
    (lambda: MixtureOfExperts(6, 5)(torch.randn(2, 3, 6)), r'expected \(N, 6\)'), (lambda: MixtureOfExperts(6, 5)(torch.randn(0, 6)), 'N at least 1'),
    (lambda: FactorizedLSTM(6, 4), 'groups=4'), (lambda: FactorizedLSTM(6, 2, 0), 'rank=0'),
    (lambda: FactorizedLSTM(6, groups=3)(torch.randn(2, 5, 4)), r'\(B, T, 6\)'), (lambda: FactorizedLSTM(6)(torch.randn(2, 0, 6)), 'T at least 1')])
def test_refused(call, message):
    with pytest.raises(ValueError, match=message): call()
