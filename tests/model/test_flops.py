"The formulas of section 5.2 against PyTorch's counters, measured tensors and cases by hand."
from dataclasses import replace

import pytest
import torch
from torch.nn import functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel
from torch.utils.flop_counter import FlopCounterMode, sdpa_backward_flop_count, sdpa_flop_count

from annotated_transformer.model.flops import PEAK_FLOPS, _forward_flops, mfu, peak_flops, train_flops, training_memory
from annotated_transformer.model.attention import MultiHeadAttention
from annotated_transformer.model.config import TransformerConfig, count_parameters, presets
from annotated_transformer.model.transformer import Transformer

SMALL = TransformerConfig(vocab_size=300, N=2, d_model=32, d_ff=64, h=4)
MODELS = dict(small=SMALL, uneven=replace(SMALL, d_k=5, d_v=12), pre=replace(SMALL, norm='pre', N=3),
              untied=replace(SMALL, tie_embeddings=False, positions='learned'), one_head=replace(SMALL, h=1, d_k=7, d_v=3))
WIDE = replace(presets['base'], N=2, vocab_size=8000)

def loss(model, B, T_k, T_q):
    "The loss of random tokens."
    vocab_size = model.config.vocab_size
    src, tgt = torch.randint(1, vocab_size, (B, T_k)), torch.randint(1, vocab_size, (B, T_q + 1))
    return F.cross_entropy(model(src, tgt[:, :-1]).float().flatten(0, 1), tgt[:, 1:].flatten(), label_smoothing=.1)

def counted(c, *shape, written_out=True, backward=False):
    "FLOPs that PyTorch's counter sees, with equation 1 written out or in PyTorch's function."
    model = Transformer(c)
    for m in model.modules():
        if isinstance(m, MultiHeadAttention): m.need_weights = written_out
    with FlopCounterMode(display=False) as counter:
        value = loss(model, *shape)
        if backward: value.backward()
    return counter.get_total_flops()

@pytest.mark.parametrize('shape', [(1, 1, 1), (2, 4, 9)])
@pytest.mark.parametrize('name', MODELS)
def test_flops_equal_pytorchs_count(name, shape):
    "Forward and training, to the last operation."
    c = MODELS[name]
    assert counted(c, *shape) == _forward_flops(c, *shape)
    assert counted(c, *shape, backward=True) == train_flops(c, *shape)

def test_flops_of_fused_attention():
    "The fused kernel of CPUs: not in the counter's table (PyTorch 2.13), or with one product too many in the backward pass (2.15)."
    shape = B, T_k, T_q = 3, 7, 5
    with sdpa_kernel(SDPBackend.MATH): plain = counted(SMALL, *shape, written_out=False, backward=True)
    with sdpa_kernel(SDPBackend.FLASH_ATTENTION): fused = counted(SMALL, *shape, written_out=False, backward=True)
    assert plain == train_flops(SMALL, *shape)
    forward = SMALL.N * 2 * B * SMALL.h * sum(SMALL.head_dims) * (T_k * T_k + T_q * T_q + T_q * T_k)
    assert plain - fused in (3 * forward, -forward // 2)
    Q = K = V = (3, 8, 25, 64)                                       # (B, h, T, d_k)
    assert sdpa_backward_flop_count(Q, Q, K, V) == 2.5 * sdpa_flop_count(Q, K, V)

@pytest.mark.parametrize('name', ['base', 'big'])
def test_six_flops_a_parameter_and_token(name):
    "Up to 70 tokens the rule is short by less than two percent."
    c = presets[name]
    assert 0 < train_flops(c, 1, 70, 70) / (6 * count_parameters(c) * 70) - 1 < .02

def test_memory_of_weights_gradients_and_adam():
    "4, 4 and 8 bytes a parameter, measured from the tensors that training makes."
    def nbytes(tensors): return sum(t.numel() * t.element_size() for t in tensors)
    model = Transformer(WIDE)
    optimizer = torch.optim.Adam(model.parameters())
    loss(model, 2, 7, 5).backward()
    optimizer.step()
    averages = [t for state in optimizer.state_dict()['state'].values() for t in state.values() if t.dim()]
    memory = training_memory(WIDE, 2, 7, 5)
    measured = dict(weights=nbytes(model.parameters()), gradients=nbytes(p.grad for p in model.parameters()), adam=nbytes(averages))
    assert measured == {part: memory[part] for part in measured}

def saved(c, *shape):
    "Bytes that one forward pass keeps for the backward pass: saved storages, each once, without the model's own tensors."
    model, kept = Transformer(c), {}
    own = {t.untyped_storage().data_ptr() for t in [*model.parameters(), *model.buffers()]}
    def pack(t):
        storage = t.untyped_storage()
        if storage.data_ptr() not in own: kept[storage.data_ptr()] = t, storage.nbytes()     # t keeps its address from being reused
        return t
    with torch.autograd.graph.saved_tensors_hooks(pack, lambda t: t): loss(model, *shape)
    return sum(n for _, n in kept.values())

# the formula leaves out one number per head and query, masks and ids; with d_k ≠ d_v PyTorch on a CPU keeps the attention weights
@pytest.mark.parametrize('c, tolerance', [*((MODELS[name], .06) for name in ('small', 'pre', 'untied', 'one_head')),
                                          (MODELS['uneven'], .2), (replace(SMALL, vocab_size=5000), .06), (WIDE, .005)])
def test_memory_of_activations(c, tolerance):
    "What the formula counts against what autograd saves."
    assert abs(saved(c, 16, 13, 11) / training_memory(c, 16, 13, 11)['activations'] - 1) < tolerance

@pytest.mark.parametrize('name', ['base', 'big'])
def test_the_papers_models_fit_eight_p100s_and_not_one(name):
    "16 GB each."
    assert training_memory(presets[name], 1000 / 8, 25, 25)['peak'] < 8e9
    assert training_memory(presets[name], 1000, 25, 25)['peak'] > 16e9

def test_only_one_reading_of_the_batch_fits_the_gpus():
    "25,000 tokens for all eight P100s keep below their peak, for each they exceed it; base by its steps is 3.0e18 FLOPs."
    for name, seconds in (('base', .4), ('big', 1.)):
        of_all = mfu(train_flops(presets[name], 1000, 25, 25), seconds, PEAK_FLOPS['P100'], n=8)
        assert 8 * of_all > 1 > of_all
    assert f"{100_000 * .4 * 8 * PEAK_FLOPS['P100']:.1e}" == '3.0e+18'

@pytest.mark.parametrize('name, peak', [('NVIDIA H100 80GB HBM3', 989e12), ('NVIDIA H100 PCIe', 756e12), ('Tesla P100-SXM2-16GB', 9.5e12), ('NVIDIA RTX A1000', None), ('NVIDIA GeForce RTX 2080 Ti', None)])
def test_the_peak_of_a_gpu_by_its_name(monkeypatch, name, peak):
    monkeypatch.setattr(torch.cuda, 'get_device_name', lambda device: name)
    assert peak_flops(torch.device('cuda')) == peak and peak_flops(torch.device('cpu')) is None
