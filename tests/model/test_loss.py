"The smoothed loss against PyTorch's cross-entropy: value, gradient, padding, any split."
import pytest
import torch
from torch.nn import functional as F
from torch.testing import assert_close

from annotated_transformer.model.loss import label_smoothed_loss


def batch(V=11, dtype=torch.float64, pad_id=0):
    torch.manual_seed(0)
    logits, target = torch.randn(4, 6, V, dtype=dtype, requires_grad=True), torch.randint(1, V, (4, 6))
    target[1, 3:] = target[3, :] = pad_id
    return logits, target

@pytest.mark.parametrize('eps_ls', [0., .1, .5])
@pytest.mark.parametrize('pad_id', [0, -100])
def test_pytorch(eps_ls, pad_id):
    logits, target = batch(pad_id=pad_id)
    loss, n = label_smoothed_loss(logits, target, eps_ls, pad_id)
    theirs = F.cross_entropy(logits.flatten(0, 1), target.flatten(), ignore_index=pad_id, label_smoothing=eps_ls, reduction='sum')
    assert_close(loss, theirs)
    assert n == (target != pad_id).sum() == 4 * 6 - 3 - 6
    assert_close(*(torch.autograd.grad(x, logits, retain_graph=True)[0] for x in (theirs, loss)))

def test_by_hand():
    "Two words of four, ε = 0.1: 0.925 and three times 0.025 of the mass."
    logits = torch.log(torch.tensor([[[.5, .25, .125, .125]]], dtype=torch.float64))
    expected = -(.925 * torch.tensor(.5).log() + .025 * torch.tensor([.25, .125, .125]).log().sum())
    assert_close(label_smoothed_loss(logits, torch.tensor([[0]]), .1, -1)[0], expected.double())

def test_the_least_loss_is_the_entropy_of_the_smoothed_target():
    eps, V = .1, 5
    best = torch.full((V,), eps / V, dtype=torch.float64)
    best[2] += 1 - eps
    assert_close(label_smoothed_loss(best.log()[None, None], torch.tensor([[2]]), eps, -1)[0], -(best * best.log()).sum())

@pytest.mark.parametrize('dim, size', [(0, 1), (0, 2), (1, 1), (1, 4)])
def test_any_split_adds_up(dim, size):
    "By sentences or by positions; the mean of the means of sentences is another number."
    logits, target = batch()
    whole, n = label_smoothed_loss(logits, target)
    parts = [label_smoothed_loss(x, y) for x, y in zip(logits.split(size, dim), target.split(size, dim))]
    assert_close(sum(loss for loss, _ in parts), whole)
    assert sum(k for _, k in parts) == n
    means = [loss / k for loss, k in parts if k]
    if (dim, size) == (0, 1): assert abs(sum(means) / len(means) - whole / n) > 1e-3

def test_what_stands_at_padding_is_not_seen():
    logits, target = batch()
    with torch.no_grad():
        spoilt = logits.clone()
        spoilt[target == 0] = float('nan')
    spoilt.requires_grad_()
    loss, _ = label_smoothed_loss(spoilt, target)
    assert_close(loss, label_smoothed_loss(logits, target)[0])
    gradient, = torch.autograd.grad(loss, spoilt)
    assert gradient.isfinite().all() and not gradient[target == 0].any()

def test_half_precision_is_added_up_in_single():
    logits, target = batch(V=50, dtype=torch.bfloat16)
    loss, _ = label_smoothed_loss(logits, target)
    assert loss.dtype == torch.float32
    assert_close(loss, label_smoothed_loss(logits.float(), target)[0])

def test_a_batch_of_padding_alone():
    logits = torch.randn(2, 3, 7, requires_grad=True)
    loss, n = label_smoothed_loss(logits, torch.zeros(2, 3, dtype=torch.long))
    loss.backward()
    assert loss == 0 and n == 0 and not logits.grad.any()

def smoothed_targets(target, V, eps):
    q = torch.full((len(target), V), eps / V, dtype=torch.float64)
    q[torch.arange(len(target)), target] += 1 - eps
    return q

def test_the_gradient_is_p_minus_q():
    logits, target = batch()
    gradient, = torch.autograd.grad(label_smoothed_loss(logits, target)[0], logits)
    real = target != 0
    assert_close(gradient[real], logits.detach()[real].softmax(-1) - smoothed_targets(target[real], 11, .1))
    assert not gradient[~real].any()

def test_kullback_leibler_differs_by_the_entropy_of_the_target():
    "Which no parameter of a model can change."
    logits, target = batch()
    real = target != 0
    q = smoothed_targets(target[real], 11, .1)
    kl = F.kl_div(logits[real].log_softmax(-1), q, reduction='sum')
    assert_close(label_smoothed_loss(logits, target)[0], kl - torch.xlogy(q, q).sum())
