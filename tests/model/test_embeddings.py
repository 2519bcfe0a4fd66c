"What comes into the stacks: rows times √d_model, and the sines of §3.5, number by number."
import math

import pytest
import torch
from torch.testing import assert_close

from annotated_transformer.model.embeddings import Embedding, OutputProjection
from annotated_transformer.model.positional_encoding import PositionalEncoding


@pytest.mark.parametrize('d_model', [16, 512])
def test_embedding(d_model):
    torch.manual_seed(0)
    embed, ids = Embedding(1000, d_model), torch.tensor([[3, 999, 0]])
    assert_close(embed(ids), embed.weight[ids] * d_model ** .5)
    assert embed(torch.arange(1000)).std().item() == pytest.approx(1, abs=.03)

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
