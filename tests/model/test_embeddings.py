"What comes into the stacks: rows times √d_model, and the sines of §3.5, number by number."
import math

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.testing import assert_close

from annotated_transformer.model.embeddings import Embedding, OutputProjection
from annotated_transformer.model.positional_encoding import PositionalEncoding


@pytest.mark.parametrize('d_model', [16, 512])
def test_embedding(d_model):
    torch.manual_seed(0)
    embed, ids = Embedding(1000, d_model), torch.tensor([[3, 999, 0]])
    assert_close(embed(ids), embed.weight[ids] * d_model ** .5)
    assert embed(torch.arange(1000)).std().item() == pytest.approx(1, abs=.03)
    assert embed.weight.var().item() == pytest.approx(1 / d_model, rel=.05)
    with pytest.raises(IndexError, match='index out of range'): embed(torch.tensor([[1000]]))

def test_the_gradient_of_a_lookup():
    "A row receives gradient once for each occurrence; the same as of a product with one-hot vectors."
    embed, ids = Embedding(9, 6), torch.tensor([5, 4, 5])
    by_row, = torch.autograd.grad(embed(ids).sum(), embed.weight)
    by_product, = torch.autograd.grad((F.one_hot(ids, 9).float() @ embed.weight * 6 ** .5).sum(), embed.weight)
    assert_close(by_row, by_product)
    assert_close(by_row[:, 0] / 6 ** .5, torch.tensor([0., 0, 0, 0, 1, 2, 0, 0, 0]))

def test_each_logit_is_a_dot_product():
    torch.manual_seed(0)
    projection, y = OutputProjection(6, 9), torch.randn(4, 6)
    assert_close(projection(y), torch.tensor([[sum(a * b for a, b in zip(out, row)) for row in projection.weight.tolist()] for out in y.tolist()]))
    assert_close((projection(y) + 1000).softmax(-1), projection(y).softmax(-1), atol=1e-4, rtol=0)

def test_a_step_moves_both_ends_of_a_tied_matrix():
    torch.manual_seed(0)
    embed = Embedding(9, 6)
    projection, before = OutputProjection(6, 9, embed), embed.weight.detach().clone()
    F.cross_entropy(projection(embed(torch.tensor([3, 4, 5]))), torch.tensor([6, 7, 8])).backward()
    torch.optim.SGD(projection.parameters(), lr=1.).step()
    assert not torch.equal(embed.weight, before)
    assert projection.weight.data_ptr() == embed.weight.data_ptr()

@pytest.mark.parametrize('V', [100, 1000, 10000])
def test_the_first_loss_is_half_a_nat_above_the_uniform_guess(V):
    torch.manual_seed(0)
    y = nn.LayerNorm(256)(torch.randn(256, 256))
    assert F.cross_entropy(OutputProjection(256, V)(y), torch.randint(V, (256,))).item() == pytest.approx(math.log(V) + 1/2, abs=.15)

def test_without_layers_a_tied_model_predicts_the_token_just_read():
    torch.manual_seed(0)
    embed, ids = Embedding(1000, 256), torch.arange(1000)
    assert_close(OutputProjection(256, 1000, embed)(nn.LayerNorm(256)(embed(ids))).argmax(-1), ids)

def test_tied_output_has_no_factor_and_no_bias():
    embed = Embedding(10, 4)
    logits = OutputProjection(4, 10, embed)
    assert logits.bias is None and logits.weight is embed.weight
    x = torch.randn(2, 4)
    assert_close(logits(x), x @ embed.weight.T)

def test_sines_and_cosines():
    d_model, table = 8, PositionalEncoding(8, 0.).eval()(torch.zeros(1, 50, 8))[0]
    for pos in range(50):
        for i in range(d_model // 2):
            angle = pos / 10_000 ** (2 * i / d_model)
            assert table[pos, 2 * i].item() == pytest.approx(math.sin(angle), abs=1e-5)
            assert table[pos, 2 * i + 1].item() == pytest.approx(math.cos(angle), abs=1e-5)

def test_learned_positions_refuse_a_longer_sentence():
    "The message names how many were learned."
    positions = PositionalEncoding(8, positions='learned', max_len=14)
    assert positions(torch.zeros(1, 14, 8)).shape == (1, 14, 8)
    with pytest.raises(ValueError, match='only max_len=14 were learned'): positions(torch.zeros(1, 20, 8))
