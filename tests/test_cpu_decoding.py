"The search without copies of keys and values finds the same."
from copy import deepcopy

import pytest
import torch
from torch.testing import assert_close

from annotated_transformer.cpu_decoding import _top_k, optimize_for_inference
from annotated_transformer.inference.beam_search import beam_search
from annotated_transformer.model.config import TransformerConfig
from annotated_transformer.model.transformer import Transformer


@pytest.mark.parametrize('beam', [1, 3, 7])
@pytest.mark.parametrize('settings', [{}, dict(norm='pre', positions='learned', max_len=40)])
def test_prefixes_side_by_side_find_the_same(beam, settings):
    torch.manual_seed(0)
    plain = Transformer(TransformerConfig(30, N=2, d_model=16, d_ff=32, h=2, **settings)).double().eval()
    with torch.no_grad(): plain.output_projection.weight.mul_(2)
    src = torch.randint(4, 30, (9, 8)).masked_fill(torch.arange(8) >= torch.arange(1, 10).clamp(max=8)[:, None], 0)
    tuned = optimize_for_inference(deepcopy(plain))
    assert type(tuned.decoder) is not type(plain.decoder) and list(tuned.state_dict()) == list(plain.state_dict())
    both = [beam_search(m, src, beam, max_extra_tokens=8, bos_id=2, eos_id=3) for m in (plain, tuned)]
    assert [[h.ids for h in hs] for hs in both[0]] == [[h.ids for h in hs] for hs in both[1]]
    assert len({len(hs[0].ids) for hs in both[0]}) > 1                                      # sources leave the batch at different steps
    for a, b in zip(*both): assert_close([h.log_prob for h in a], [h.log_prob for h in b], rtol=0, atol=1e-10)

@pytest.mark.parametrize('n', [640, 100, 37, 3])
def test_top_k_equals_topk(n):
    "Values and indices, for widths that 64 divides and for others."
    x = torch.randn(5, n, generator=torch.Generator().manual_seed(0))
    assert all(map(torch.equal, _top_k(x, 8), x.topk(min(8, n))))

def test_sources_must_have_equally_many_prefixes():
    "Two rows of one source and one of another are refused."
    model = optimize_for_inference(Transformer(TransformerConfig(30, N=1, d_model=16, d_ff=32, h=2)).eval())
    state = model.init_state(torch.ones(2, 3).long())
    model.decode_step(state, torch.ones(2).long())
    with pytest.raises(ValueError, match='same number of prefixes'): model.reorder(state, torch.tensor([0, 0, 1]))
