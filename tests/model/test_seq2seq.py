"No search with a model whose steps and `forward` disagree."
import pytest
import torch

from annotated_transformer.inference.beam_search import beam_search
from annotated_transformer.inference.sampling import sample
from annotated_transformer.model.attention import MultiHeadAttention
from annotated_transformer.model.config import TransformerConfig
from annotated_transformer.model.seq2seq import stepwise
from annotated_transformer.model.transformer import Transformer


class Rotary(MultiHeadAttention):
    "Queries and keys are turned by their index."
    def heads(self, x):
        x = super().heads(x)
        if x.size(-1) < 2: return x
        angle = torch.arange(x.size(-2))[:, None] * torch.tensor([1., .3])[None]
        a, b = x[..., 0:2], x[..., 2:4]
        return torch.cat([a * angle.cos() - b * angle.sin(), a * angle.sin() + b * angle.cos(), x[..., 4:]], -1)

class Distance(MultiHeadAttention):
    "Scores get less by how far the key is behind the query."
    def forward(self, query, key, value, mask=None, kept=None):
        Q, (K, V) = self.heads(self.W_Q(query)), self.project(key, value) if kept is None else kept(self, key, value)
        far = torch.arange(Q.size(-2))[:, None] - torch.arange(K.size(-2))[None]
        scores = (Q @ K.transpose(-2, -1) / Q.size(-1) ** .5 - .7 * far.abs()).masked_fill(~mask, -1e9)
        return self.W_O((scores.softmax(-1) @ V).transpose(-3, -2).flatten(-2))

class Harmless(MultiHeadAttention):
    def forward(self, *args, **kwargs): return super().forward(*args, **kwargs)

def with_attention(kind):
    torch.manual_seed(0)
    model = Transformer(TransformerConfig(20, N=2, d_model=16, d_ff=16, h=2, P_drop=0.)).eval()
    for layer in model.decoder.layers:
        new = kind(16, 2)
        new.load_state_dict(layer.self_attn.state_dict())
        layer.self_attn = new.eval()
    return model

SRC = torch.tensor([[5, 6, 7, 8, 3], [9, 4, 3, 0, 0], [10, 3, 0, 0, 0]])

@pytest.mark.parametrize('kind', [Rotary, Distance])
def test_no_search_writes_with_an_attention_that_the_cache_does_not_suit(kind):
    model, tgt = with_attention(kind), torch.tensor([[2, 5, 6, 7, 8]] * 3)
    assert (stepwise(model, SRC, tgt) - model(SRC, tgt)).abs().max() > 1e-3           # why it must be refused
    for search in beam_search, sample:
        with pytest.raises(ValueError, match='cannot be searched.*step'): search(model, SRC, bos_id=2, eos_id=3)

@pytest.mark.parametrize('kind', [MultiHeadAttention, Harmless])
def test_the_papers_attention_and_a_harmless_subclass_are_searched(kind):
    model, tgt = with_attention(kind), torch.tensor([[2, 5, 6, 7, 8]] * 3)
    torch.testing.assert_close(stepwise(model, SRC, tgt), model(SRC, tgt), rtol=0, atol=1e-5)
    assert len(beam_search(model, SRC, bos_id=2, eos_id=3)) == 3
