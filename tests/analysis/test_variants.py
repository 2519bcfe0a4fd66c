"Variants of other implementations: each is what its name says, and what changes nothing changes nothing."
from dataclasses import replace

import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.testing import assert_close

from annotated_transformer.analysis.variants import _VARIANTS, build_variant

IDS = torch.tensor([[5, 7]])

def test_without_the_factor_embeddings_are_rows_of_the_matrix():
    "With it they are √96 times as large."
    (_, base), (_, bare) = build_variant('base'), build_variant('no √d_model')
    assert_close(bare.src_embed(IDS), bare.src_embed.weight[IDS])
    assert_close(base.src_embed(IDS), bare.src_embed(IDS) * 96 ** .5)

def test_unit_standard_deviation_replaces_the_factor():
    "The same logits before the first step."
    (_, untied), (_, unit) = build_variant('untied'), build_variant('untied, no √d_model, σ = 1')
    assert_close(unit.eval()(IDS, IDS), untied.eval()(IDS, IDS))

def test_biases_begin_with_zero():
    "Four in each attention of three encoder and three decoder layers; the model is at first the same."
    (_, base), (_, biased) = build_variant('base'), build_variant('biases')
    new = {name for name, _ in biased.named_parameters()} - {name for name, _ in base.named_parameters()}
    assert len(new) == 3 * 3 * 4
    pair = torch.randint(3, 4000, (2, 2, 5))
    assert_close(biased.eval()(*pair), base.eval()(*pair))

def test_variants_differ_in_their_recipes():
    "All but three, which change the model; the seed is set as asked."
    assert len({build_variant(name)[0] for name in _VARIANTS}) == len(_VARIANTS) - 3
    assert build_variant('untied', seed=3)[0] == replace(build_variant('untied')[0], seed=3)
    with pytest.raises(ValueError, match="unknown variant 'huge': use one of base"): build_variant('huge')

def test_a_second_normalisation_changes_nothing_before_training():
    "As PyTorch's nn.Transformer has it after post-norm stacks."
    x = nn.LayerNorm(64)(torch.randn(2, 5, 64))
    assert_close(nn.LayerNorm(64)(x), x, atol=1e-4, rtol=0.)

def test_smoothing_that_leaves_padding_out_lowers_its_logit():
    "Padding has probability 0 in the target, so its gradient is positive."
    logits, target = torch.zeros(6, requires_grad=True), torch.tensor([0., .9, *[.1 / 4] * 4])
    F.cross_entropy(logits, target).backward()
    assert logits.grad[0] > 0
