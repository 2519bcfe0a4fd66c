"Adam and the schedules of section 5.3: by hand, and against PyTorch's own."
import math

import pytest
import torch
from torch import nn
from torch.testing import assert_close

from annotated_transformer.training.optimizer import adam, lr_at_step, make_optimizer, noam_lr

def path(gradients, lr=.01, name='adam', start=0., **options):
    "The value of one weight after each step."
    model = nn.Linear(1, 1, bias=False).double()
    nn.init.constant_(model.weight, start)
    optimizer, values = make_optimizer(model, name, **options), []
    optimizer.param_groups[0]['lr'] = lr
    for g in gradients:
        model.weight.grad = torch.full_like(model.weight, g)
        optimizer.step()
        values.append(model.weight.item())
    return values

def test_first_step_is_the_learning_rate():
    "Whatever the size of the gradient: m and v, corrected, are 3 and 9, so the weight moves by 3/3 of the rate."
    assert_close(path([3.], start=1.), [.99])
    assert_close(path([-5e-4]), [.01], rtol=1e-5, atol=0)

def test_a_steeper_loss_takes_the_same_path():
    "A thousand times as steep."
    gradients = torch.randn(20, generator=torch.Generator().manual_seed(0)).tolist()
    assert_close(path([1000 * g for g in gradients]), path(gradients), rtol=1e-6, atol=0)

def test_gradients_as_small_as_epsilon():
    "One of zero moves nothing, one of 1e-9 half as far, one of 1e-7 nearly as far as any."
    assert path([0.]) == [0.]
    assert_close(path([-1e-9]), [.005])
    assert_close(path([-1e-7]), [.01], rtol=.02, atol=0)

def test_no_learning_rate_no_step():
    "Until the schedule sets one it is 0, so that forgetting the schedule shows at once."
    model, x = nn.Linear(2, 2), torch.randn(3, 2)
    before, optimizer = model.weight.detach().clone(), adam(model)
    model(x).sum().backward()
    optimizer.step()
    assert torch.equal(model.weight, before)

def test_memory_of_beta_2():
    "The weights of past squares sum to one, and their mean age is 50 steps, the newest counted as 1."
    weights = .02 * .98 ** torch.arange(2000.)
    assert_close(weights.sum().item(), 1., rtol=1e-5, atol=0)
    assert_close((weights * torch.arange(2000)).sum().item() + 1, 50., rtol=1e-4, atol=0)

def test_equation_3():
    "Its two terms meet at the peak; linear before, an inverse root after; the width scales it; the warm-up is forgotten after the peak."
    with pytest.raises(ValueError, match='steps count from 1'): noam_lr(0)
    assert_close(4000 ** -.5, 4000 * 4000 ** -1.5)
    assert_close(noam_lr(2000), 2 * noam_lr(1000))
    assert_close(noam_lr(40_000), noam_lr(10_000) / 2)
    assert_close(noam_lr(300, d_model=1024), noam_lr(300, d_model=256) / 2)
    assert noam_lr(50_000, warmup_steps=1000) == noam_lr(50_000, warmup_steps=8000)

def test_pytorchs_scheduler_with_equation_3():
    "It counts from 0."
    optimizer = torch.optim.SGD(nn.Linear(1, 1).parameters(), lr=1.)
    scheduler = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda n: noam_lr(n + 1, 16, 20))
    for step in range(1, 61):
        assert optimizer.param_groups[0]['lr'] == noam_lr(step, 16, 20)
        optimizer.step()
        scheduler.step()

@pytest.mark.parametrize('name, options, moved', [('sgd', {}, .01), ('adam', {}, .01), ('adamw', dict(weight_decay=.1), .01 + .01 * .1 * 2),
                                                  ('sgd', dict(momentum=.9), .019)])
def test_first_step_of_each_optimizer(name, options, moved):
    "A weight of 2 with a gradient of 1; AdamW also takes away a share of the weight, and Nesterov's first step is 1.9 times as long."
    assert_close(2 - path([1.], name=name, start=2., **options)[0], moved, rtol=0, atol=1e-6)

def test_unknown_names_are_refused():
    "Of an optimizer and of a schedule."
    with pytest.raises(ValueError, match='adma'): make_optimizer(nn.Linear(1, 1), 'adma')
    with pytest.raises(ValueError, match='cosin'): lr_at_step(1, 1., 10, 110, 'cosin')

@pytest.mark.parametrize('step', [1, 300, 3999, 4000, 4001, 100_000])
def test_inverse_square_root_is_equation_3(step):
    "With the peak of equation 3."
    assert_close(lr_at_step(step, noam_lr(4000), 4000, 100_000), noam_lr(step))

def test_cosine_and_constant():
    "A cosine ends at zero, a constant stays."
    assert_close([lr_at_step(s, 1., 10, 110, 'cosine') for s in (5, 10, 60, 110)], [.5, 1., .5, 0.])
    assert [lr_at_step(s, 1., 10, 110, 'constant_with_warmup') for s in (1, 10, 110)] == [.1, 1., 1.]
    assert math.isclose(lr_at_step(60, 1., 10, 110), (10 / 60) ** .5)
