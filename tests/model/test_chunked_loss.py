"The loss in chunks of tokens: the same value, the same gradient of every weight, whatever the model and the chunk."
from copy import deepcopy
from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.testing import assert_close

from annotated_transformer.background.bytenet import ByteNetConfig
from annotated_transformer.background.convs2s import ConvS2SConfig
from annotated_transformer.background.recurrent import RecurrentConfig
from annotated_transformer.model.chunked_loss import chunked_loss
from annotated_transformer.model.config import TransformerConfig
from annotated_transformer.model.loss import label_smoothed_loss
from annotated_transformer.model.seq2seq import Seq2SeqModel, build_model
from annotated_transformer.model.transformer import Transformer
from annotated_transformer.recipe import get_recipe

SMALL = TransformerConfig(50, N=1, d_model=16, d_ff=32, h=2, P_drop=0.)
MODELS = dict(tied=('transformer', SMALL), untied=('transformer', replace(SMALL, tie_embeddings=False)),
              recurrent=('recurrent', RecurrentConfig(50, N=1, d_model=16, P_drop=0.)), convs2s=('convs2s', ConvS2SConfig(50, d_model=16, P_drop=0., tie_embeddings=False)),
              bytenet=('bytenet', ByteNetConfig(50, d_model=16, P_drop=0.)))

def batch():
    torch.manual_seed(0)
    src, tgt = torch.randint(1, 50, (6, 7)), torch.randint(1, 50, (6, 9))
    src[1, 4:] = tgt[1, 3:] = tgt[4, 8:] = 0
    return src, tgt

def gradients(model, src, tgt):
    loss, logged = model.loss(src, tgt)
    assert torch.equal(loss, logged)
    return [loss.detach(), *torch.autograd.grad(loss / 7, [p for p in model.parameters() if p.requires_grad], allow_unused=True)]

@pytest.mark.parametrize('name', MODELS)
@pytest.mark.parametrize('chunk_size', [1, 5, 47, 1000])
def test_every_model(name, chunk_size):
    "In float64 equal to twelve digits; `metrics`, too."
    torch.manual_seed(1)
    model, (src, tgt) = build_model(*MODELS[name]).double(), batch()
    whole, metrics = gradients(model, src, tgt), model.metrics(src, tgt)
    model.loss_chunk_size = chunk_size
    for a, b in zip(gradients(model, src, tgt), whole): assert_close(a, b, rtol=1e-11, atol=1e-11)
    assert model.metrics(src, tgt) == pytest.approx(metrics, rel=1e-12)

def test_pytorch():
    "PyTorch's own cross-entropy of the whole matrix, with a bias and a small network as projection."
    torch.manual_seed(0)
    projection = nn.Sequential(nn.LayerNorm(8), nn.Linear(8, 30)).double()
    x, y = torch.randn(4, 6, 8, dtype=torch.float64, requires_grad=True), torch.randint(1, 30, (4, 6))
    y[2, 1:] = 0
    ours = chunked_loss(projection, x, y, .1, 0, 5)
    theirs = F.cross_entropy(projection(x).flatten(0, 1), y.flatten(), ignore_index=0, label_smoothing=.1, reduction='sum')
    assert_close(ours, theirs)
    for a, b in zip(*(torch.autograd.grad(loss, [x, *projection.parameters()]) for loss in (ours, theirs))): assert_close(a, b)

@pytest.mark.parametrize('reduce', [dict(loss_chunk_size=0), dict(loss_chunk_size=-3)])
def test_no_such_chunk(reduce):
    with pytest.raises(ValueError, match='loss_chunk_size=.* must be greater than or equal to 1'): get_recipe('demo', **reduce)
    with pytest.raises(ValueError, match='chunk_size=.* must be at least 1'):
        chunked_loss(nn.Linear(2, 3), torch.zeros(1, 1, 2), torch.ones(1, 1).long(), chunk_size=reduce['loss_chunk_size'])

def test_padding_only_and_one_token():
    projection, x = nn.Linear(8, 30), torch.randn(3, 4, 8, requires_grad=True)
    loss = chunked_loss(projection, x, torch.zeros(3, 4).long(), chunk_size=5)
    assert loss == 0 and all(not g.any() for g in torch.autograd.grad(loss, [x, projection.weight, projection.bias]))
    one = x[:1, :1], torch.tensor([[3]])
    for n in 1, 2: assert_close(chunked_loss(projection, *one, chunk_size=n), label_smoothed_loss(projection(one[0]), one[1])[0])

def test_frozen_weights():
    "A projection that is not trained still sends the gradient on; weights that none needs get none."
    torch.manual_seed(1)
    model, (src, tgt) = Transformer(replace(SMALL, tie_embeddings=False)).double(), batch()
    model.output_projection.requires_grad_(False)
    whole = gradients(model, src, tgt)
    model.loss_chunk_size = 4
    for a, b in zip(gradients(model, src, tgt), whole): assert_close(a, b)

def test_bfloat16():
    "Under autocast as close to float32 as the whole matrix is."
    torch.manual_seed(1)
    model, (src, tgt) = Transformer(SMALL), batch()
    exact = gradients(model, src, tgt)
    def error(chunk_size):
        model.loss_chunk_size = chunk_size
        with torch.autocast('cpu', torch.bfloat16): ours = gradients(model, src, tgt)
        return sum((a - b).norm().item() for a, b in zip(ours, exact))
    assert error(5) < 1.5 * error(None)

def test_compiled_and_with_accumulated_gradients():
    "Within a compiled function, and from two halves of a batch, the gradient is that of the batch."
    torch.manual_seed(1)
    model, (src, tgt) = Transformer(SMALL).double(), batch()
    whole = gradients(model, src, tgt)[1:]
    model.loss_chunk_size = 5
    step = torch.compile(lambda *pair: model.loss(*pair)[0], backend='eager')
    for half in slice(0, 3), slice(3, 6): (step(src[half], tgt[half]) / 7).backward()
    for p, g in zip(model.parameters(), whole): assert_close(p.grad, g)

def test_a_forward_of_its_own_is_respected():
    "A subclass whose logits are not the projection of its hidden states is trained on its logits."
    class Cold(Transformer):
        def forward(self, src, tgt): return 2 * super().forward(src, tgt)
    torch.manual_seed(1)
    model, (src, tgt) = Cold(SMALL), batch()
    whole = model.loss(src, tgt)[0]
    model.loss_chunk_size = 5
    assert torch.equal(model.loss(src, tgt)[0], whole)
    with pytest.raises(NotImplementedError, match='Seq2SeqModel has no forward'): Seq2SeqModel(SMALL)(src, tgt)

def test_it_can_be_sent_back_twice_and_copied():
    projection, x, y = nn.Linear(8, 30), torch.randn(3, 4, 8, requires_grad=True), torch.randint(1, 30, (3, 4))
    loss = chunked_loss(projection, x, y, chunk_size=5)
    a, b = (torch.autograd.grad(loss, x, retain_graph=True)[0] for _ in range(2))
    assert torch.equal(a, b)
    with pytest.raises(RuntimeError): torch.autograd.grad(torch.autograd.grad(loss, x, create_graph=True)[0].sum(), x)
    model = Transformer(SMALL); model.loss_chunk_size = 3
    assert deepcopy(model).loss_chunk_size == 3

def test_float16_keeps_the_scale_of_the_loss():
    "The gradients of a loss that is not scaled are too small for float16: with it they are those of the whole matrix, to the bit."
    torch.manual_seed(0)
    projection, x, y = nn.Linear(8, 300, bias=False), torch.randn(3, 4, 8, requires_grad=True), torch.randint(1, 300, (3, 4))
    with torch.autocast('cpu', torch.float16): losses = chunked_loss(projection, x, y, chunk_size=5), label_smoothed_loss(projection(x), y)[0]
    ours, theirs = (torch.autograd.grad(loss * 2**10, [x, projection.weight]) for loss in losses)
    assert all(map(torch.equal, ours, theirs))

def test_weights_that_are_no_parameters():
    "As while FSDP gathers them into plain tensors: they get their gradient."
    class Gathered(nn.Module):
        def __init__(self): super().__init__(); self.weight = torch.randn(30, 8, requires_grad=True)
        def forward(self, x): return F.linear(x, self.weight)
    projection, x, y = Gathered(), torch.randn(3, 4, 8, requires_grad=True), torch.randint(1, 30, (3, 4))
    losses = chunked_loss(projection, x, y, chunk_size=5), label_smoothed_loss(projection(x), y)[0]
    assert_close(*(torch.autograd.grad(loss, projection.weight)[0] for loss in losses))
