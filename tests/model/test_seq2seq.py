"Attentions of one's own, read token by token; no search with a model whose steps and `forward` disagree."
import json
from dataclasses import asdict, dataclass

import pytest
import torch
from torch import nn
from torch.nn import functional as F

from annotated_transformer.cpu_decoding import optimize_for_inference
from annotated_transformer.inference.beam_search import beam_search
from annotated_transformer.inference.sampling import sample
from annotated_transformer.model.attention import MultiHeadAttention
from annotated_transformer.model.config import TransformerConfig
from annotated_transformer.model.feed_forward import FeedForward
from annotated_transformer.model import seq2seq
from annotated_transformer.model.layers import Stack
from annotated_transformer.model.pretrained import save_weights
from annotated_transformer.model.seq2seq import Seq2SeqModel, build_model, check_incremental, get_architecture, incremental_logits, register_architecture
from annotated_transformer.model.transformer import Transformer
from annotated_transformer.run_directory import load_model


class Rotary(MultiHeadAttention):
    "Queries and keys are turned by their positions (Su et al. 2021)."
    def turned(self, x, start_pos):
        angle = (start_pos + torch.arange(x.size(-2)))[:, None] / 100 ** torch.linspace(0, 1, x.size(-1) // 2)
        a, b = x.chunk(2, -1)
        return torch.cat([a * angle.cos() - b * angle.sin(), a * angle.sin() + b * angle.cos()], -1)

    def project_queries(self, query, start_pos=0): return self.turned(super().project_queries(query), start_pos)

    def project_keys_values(self, key, value, start_pos=0):
        K, V = super().project_keys_values(key, value)
        return self.turned(K, start_pos), V

class Distance(MultiHeadAttention):
    "Scores get less by how far the key is from the query (Press et al. 2022)."
    def attend(self, Q, K, V, mask=None, start_pos=0):
        far = (start_pos + torch.arange(Q.size(-2)))[:, None] - torch.arange(K.size(-2))
        bias = -.7 * far.abs().to(Q)
        return F.scaled_dot_product_attention(Q, K, V, bias if mask is None else bias.masked_fill(~mask, -torch.inf))

class Harmless(MultiHeadAttention):
    def forward(self, *args, **kwargs): return super().forward(*args, **kwargs)

class Indexed(Rotary):
    "A mistake: positions by the index in what it is given."
    def turned(self, x, start_pos): return super().turned(x, 0)

class Running(FeedForward):
    "A mistake for a decoder: a part that mixes positions and remembers none."
    def forward(self, x): return super().forward(x.cumsum(1))

def model(kind, P_drop=0., part='attention', **settings):
    class Swapped(Transformer):
        def make_attention(self, role):
            if part != 'attention' or role == 'cross': return super().make_attention(role)
            return kind(self.config.d_model, self.config.h)
        def make_feed_forward(self): return kind(16, 16) if part == 'feed_forward' else super().make_feed_forward()
    torch.manual_seed(0)
    return Swapped(TransformerConfig(20, N=2, d_model=16, d_ff=16, h=2, P_drop=P_drop, **settings)).eval()

SRC = torch.tensor([[5, 6, 7, 8, 3], [9, 4, 3, 0, 0], [10, 3, 0, 0, 0]])
TGT = torch.tensor([[2, 5, 6, 7, 8], [2, 9, 4, 4, 6], [2, 10, 3, 11, 12]])

@pytest.mark.parametrize('positions', ['sinusoidal', 'none'])
@pytest.mark.parametrize('kind', [MultiHeadAttention, Harmless, Rotary, Distance])
def test_an_attention_with_positions_is_decoded_as_it_is_trained(kind, positions):
    m = model(kind, positions=positions)
    torch.testing.assert_close(incremental_logits(m, SRC, TGT), m(SRC, TGT), rtol=0, atol=1e-5)
    found = beam_search(m, SRC, max_extra_tokens=5, bos_id=2, eos_id=3)
    for src, hypotheses in zip(SRC, found):                                                # scores are those of forward
        for h in hypotheses:
            log_p = m(src[None], torch.tensor([[2, *h.ids]]))[0].log_softmax(-1)
            assert abs(log_p.gather(1, torch.tensor([*h.ids, 3])[:, None]).sum().item() - h.log_prob) < 1e-4
    if kind in (Rotary, Distance):                                                         # it does see positions
        assert (model(MultiHeadAttention, positions=positions)(SRC, TGT) - m(SRC, TGT)).abs().max() > 1e-3

def test_incremental_logits_take_any_first_token():
    m = model(MultiHeadAttention)
    for first in (2, 2, 2), (2, 9, 4):
        tgt = TGT.clone(); tgt[:, 0] = torch.tensor(first)
        torch.testing.assert_close(incremental_logits(m, SRC, tgt), m(SRC, tgt), rtol=0, atol=1e-5)

def test_cross_attention_is_given_the_position_of_the_query():
    "A position-aware attention in every place decodes step by step as it is trained."
    class Everywhere(Transformer):
        def make_attention(self, role): return Rotary(self.config.d_model, self.config.h)
    torch.manual_seed(0)
    m = Everywhere(TransformerConfig(20, N=2, d_model=16, d_ff=16, h=2, P_drop=0., positions='none')).eval()
    torch.testing.assert_close(incremental_logits(m, SRC, TGT), m(SRC, TGT), rtol=0, atol=1e-5)

@pytest.mark.parametrize('kind, optimized', [(MultiHeadAttention, True), (Rotary, False), (Distance, False)])
def test_the_cpu_changes_the_decoder_of_the_paper_alone(kind, optimized):
    m = model(kind)
    assert (type(optimize_for_inference(m).decoder) is Stack) != optimized

def test_a_name_is_for_one_architecture(monkeypatch):
    monkeypatch.setattr(seq2seq, '_REGISTRY', {})
    class Transformer2(Transformer): pass
    class Transformer3(Transformer): pass
    with pytest.raises(ValueError, match="'transformer' is already registered for Transformer"): register_architecture('transformer')(Transformer2)
    register_architecture('second')(Transformer2)
    with pytest.raises(ValueError, match="'second' is already registered for Transformer2"): register_architecture('second')(Transformer3)

@pytest.mark.parametrize('kind, part', [(Indexed, 'attention'), (Running, 'feed_forward')])
def test_no_search_writes_with_a_part_that_the_cache_does_not_suit(kind, part):
    m = model(kind, part=part)
    assert (incremental_logits(m, SRC, TGT) - m(SRC, TGT)).abs().max() > 1e-3              # why it must be refused
    for search in beam_search, sample:
        with pytest.raises(ValueError, match='wrong logits.*`start_pos`'): search(m, SRC, bos_id=2, eos_id=3)

@pytest.mark.parametrize('kind', [Harmless, Rotary, Distance])
def test_swapped_parts_start_from_the_same_weights(kind):
    "The same seed, the same draws: a comparison of parts is not one of initialisations."
    own, papers = (dict(model(k).named_parameters()) for k in (kind, MultiHeadAttention))
    assert own.keys() == papers.keys() and all(torch.equal(own[name], papers[name]) for name in own)

def test_a_part_of_ones_own_is_drawn_by_the_same_rule():
    class Gated(FeedForward):
        def __init__(self, d_model, d_ff):
            super().__init__(d_model, d_ff)
            self.gate = nn.Linear(d_model, d_ff)
        def forward(self, x): return self.W_2(self.W_1(x).relu() * self.gate(x))
    gate = model(Gated, part='feed_forward').encoder.layers[0].feed_forward.gate
    bound = (6 / (16 + 16)) ** .5                                                          # Xavier; PyTorch's own is 1/4
    assert .9 * bound < gate.weight.abs().max() <= bound and not gate.bias.any()

@dataclass(frozen=True)
class MeanConfig:
    vocab_size: int = 12
    d_model: int = 8
    max_len: int = 60
    eps_ls: float = .1

class Mean(Seq2SeqModel):
    "The running mean of the target's vectors, plus the mean of the source's."
    config_class = MeanConfig
    def __init__(self, config, pad_id=0):
        super().__init__(config, pad_id)
        self.embed, self.out = nn.Embedding(config.vocab_size, config.d_model), nn.Linear(config.d_model, config.vocab_size)

    def forward(self, src, tgt):
        n = torch.arange(1, tgt.size(1) + 1)[:, None]
        return self.out(self.embed(tgt).cumsum(1) / n + self.embed(src).mean(1, keepdim=True))

def mean_model():
    torch.manual_seed(0)
    return Mean(MeanConfig()).eval()

def test_defaults_decode_a_model_that_has_only_forward():
    "The default state holds the tokens; `reorder` selects its rows."
    m, src, tgt = mean_model(), torch.tensor([[4, 5, 6], [7, 8, 0]]), torch.tensor([[2, 6, 8, 3], [2, 7, 4, 9]])
    torch.testing.assert_close(incremental_logits(m, src, tgt), m(src, tgt))
    state = m.init_state(src)
    for t in 0, 1: m.decode_step(state, tgt[:, t])
    m.reorder(state, torch.tensor([1]))
    assert state['tgt'].tolist() == [[2, 7]]

def test_check_incremental_refuses_a_model_that_forgets_its_prefix():
    class Forgetful(Mean):
        def decode_step(self, state, token): return self(state['src'], token[:, None])[:, -1]
    check_incremental(mean_model(), SRC, 2)
    with pytest.raises(ValueError, match='Forgetful has wrong logits in incremental decoding'): check_incremental(Forgetful(MeanConfig()).eval(), SRC, 2)

def test_check_incremental_compares_a_model_once_and_again_with_another_module():
    model, calls = mean_model(), []
    hook = model.register_forward_pre_hook(lambda *_: calls.append(1))
    check_incremental(model, SRC, 2)
    once = len(calls)
    check_incremental(model, SRC, 2)
    assert len(calls) == once > 0
    hook.remove()
    class CountsPositions(nn.Linear):
        def forward(self, x): return super().forward(x) + x.size(1)
    model.out = CountsPositions(model.config.d_model, model.config.vocab_size)
    with pytest.raises(ValueError, match='wrong logits'): check_incremental(model, SRC, 2)

def test_a_registered_model_is_built_saved_and_loaded(monkeypatch, tmp_path):
    "A subclass is registered by itself, under another name, with the same weights."
    monkeypatch.setattr(seq2seq, '_REGISTRY', {})
    monkeypatch.setattr(Mean, 'architecture', None)
    register_architecture('mean')(Mean)
    assert get_architecture('mean') is Mean is type(build_model('mean', MeanConfig()))
    with pytest.raises(ValueError, match='no config_class'): register_architecture('plain')(nn.Linear)
    class Doubled(Mean):
        def forward(self, src, tgt): return 2 * super().forward(src, tgt)
    m, tgt = mean_model(), torch.tensor([[2, 5]] * 3)
    save_weights(m.state_dict(), m.config, tmp_path / 'model.safetensors')
    def load(name):
        (tmp_path / 'config.json').write_text(json.dumps(dict(architecture=name, model=asdict(m.config), pad_id=0)))
        return load_model(tmp_path)
    torch.testing.assert_close(load('mean')(SRC, tgt), m(SRC, tgt), rtol=0, atol=0)
    with pytest.raises(ValueError, match="unknown architecture 'doubled'"): load('doubled')
    register_architecture('doubled')(Doubled)
    assert (Mean.architecture, load('doubled').architecture) == ('mean', 'doubled')
    torch.testing.assert_close(load('doubled')(SRC, tgt), 2 * m(SRC, tgt))
