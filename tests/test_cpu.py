"oneDNN in the place of PyTorch's products: the same numbers, and whatever is done with a model can still be done."
import json
import os
import pickle
import platform
import subprocess
import sys
from copy import deepcopy
from dataclasses import replace

import pytest
import torch
from accelerate import Accelerator
from helpers import EN_DE, SMALL_OVERRIDES, snapshot_dir, cli_args, run_in_process, number_lines, assert_success, assert_user_error, write_files
from torch import nn
from torch.nn import functional as F
from torch.testing import assert_close

from annotated_transformer import cpu as processors, run_directory
from annotated_transformer.cpu import _BFloat16Attention, _FastDropout, _OneDNNLinear, _OneDNNLinearFunction, _replace_modules, choose_matmul_backend, _is_onednn_available, optimize_for_training
from annotated_transformer.model.attention import MultiHeadAttention, subsequent_mask
from annotated_transformer.model.config import TransformerConfig
from annotated_transformer.model.layers import Stack
from annotated_transformer.model.loss import label_smoothed_loss
from annotated_transformer.model.transformer import Transformer
from annotated_transformer.recipe import get_recipe
from annotated_transformer.run_directory import RunDirectory, load_model
from annotated_transformer.training.optimizer import adam
from annotated_transformer.training import run_setup
from annotated_transformer.training.run_setup import _init_model
from annotated_transformer.training.train_step import ModelWithLoss, enable_gradient_checkpointing, train_step
from annotated_transformer.training.trainer import train


def test_products(capfd, tmp_path):
    "Chosen once, written down, kept when resumed, and off by a switch."
    text = write_files(tmp_path / 'text', train_en=number_lines('en'), train_de=number_lines('de'))
    for products in 'auto', 'pytorch', 'onednn':
        out = tmp_path / products
        assert_success(run_in_process(capfd, 'train', '--recipe', 'demo', *EN_DE, '--data_dir', text, '--output_dir', out, *cli_args(SMALL_OVERRIDES | dict(cpu_matmul_backend=products))))
        multiplies = json.loads((out / 'config.json').read_text())['resolved_matmul_backend']
        assert multiplies == products or products == 'auto' and multiplies in ('pytorch', 'onednn')
    before = snapshot_dir(tmp_path / 'onednn')
    assert_user_error(run_in_process(capfd, 'train', '--recipe', 'demo', *EN_DE, '--data_dir', text, '--output_dir', tmp_path / 'onednn', '--resume', *cli_args(SMALL_OVERRIDES | dict(cpu_matmul_backend='pytorch'))), 'cpu_matmul_backend (onednn → pytorch)')
    assert snapshot_dir(tmp_path / 'onednn') == before
    assert_user_error(run_in_process(capfd, 'train', '--output_dir', tmp_path / 'new', *cli_args(SMALL_OVERRIDES | dict(cpu_matmul_backend='mkl'))), "cpu_matmul_backend='mkl' must be 'auto', 'onednn' or 'pytorch'")

pytestmark = pytest.mark.skipif(not _is_onednn_available(), reason='this PyTorch has no oneDNN')

@pytest.fixture(autouse=True)
def one_thread():
    threads = torch.get_num_threads()
    torch.set_num_threads(1)
    yield
    torch.set_num_threads(threads)

WIDE = TransformerConfig(vocab_size=2000, N=1, d_model=256, d_ff=1024, h=4, P_drop=.1)

@pytest.fixture
def used(monkeypatch):
    "How often a product forward and backward went to oneDNN."
    calls, by_onednn = [], processors._linear_onednn
    def counted(*args): calls.append(args[0].shape); return by_onednn(*args)
    monkeypatch.setattr(processors, '_linear_onednn', counted)
    return calls

def ids(n=32): return (torch.randint(1, 2000, (n, 33), generator=torch.Generator().manual_seed(i)) for i in (0, 1))

def trained(model, steps=2, prepare=lambda accelerator, *both: accelerator.prepare(*both), **options):
    "The losses of some updates, and the weights after them."
    accelerator, model = Accelerator(cpu=True), model.train()
    prepared, optimizer = prepare(accelerator, ModelWithLoss(model), adam(model))
    for group in optimizer.param_groups: group['lr'] = 1e-3
    torch.manual_seed(0)
    losses = [train_step(prepared, optimizer, *ids(), accelerator)[0].item() for _ in range(steps)]
    return losses, {k: v.clone() for k, v in model.state_dict().items()}

def by_onednn(model): return _replace_modules(model, nn.Linear, _OneDNNLinear)

def new(onednn=True):
    torch.manual_seed(0)
    model = Transformer(WIDE)
    return by_onednn(model) if onednn else model

def test_training_is_the_same_but_for_rounding_and_repeats_to_the_bit(used):
    usual, nothing = trained(new(onednn=False)), len(used)
    ours, again = trained(new()), trained(new())
    assert nothing == 0 and len(used) > 20
    assert_close(ours[0], usual[0], rtol=1e-5, atol=0)
    assert ours[0] == again[0] and all(torch.equal(ours[1][k], again[1][k]) for k in ours[1])

def test_weights_copies_and_pickles_are_as_before(used):
    model, plain = new(), new(onednn=False)
    assert list(model.state_dict()) == list(plain.state_dict())
    assert [n for n, _ in model.named_parameters()] == [n for n, _ in plain.named_parameters()]
    for copy in deepcopy(model), pickle.loads(pickle.dumps(model)), by_onednn(model):
        layer = copy.output_projection
        assert type(layer) is _OneDNNLinear and layer.weight is copy.tgt_embed.weight
        used.clear()
        with torch.no_grad(): assert_close(copy.eval()(*ids()), plain.eval()(*ids()), rtol=1e-4, atol=1e-4)
        assert used
        with torch.no_grad(): layer.weight.zero_()           # a copy's own weights, not the model's
        assert (layer(torch.ones(100, 256)) == 0).all() and (copy is model or model.output_projection.weight.any())

def test_recomputed_layers_give_the_same_gradients(used):
    model = new(); enable_gradient_checkpointing(model)
    ours, recomputed = trained(new()), trained(model)
    assert used and ours[0] == recomputed[0] and all(torch.equal(ours[1][k], recomputed[1][k]) for k in ours[1])

def test_distributed_data_parallel(used, tmp_path):
    torch.distributed.init_process_group('gloo', store=torch.distributed.FileStore(str(tmp_path / 'store'), 1), rank=0, world_size=1)
    try:
        model, alone = nn.Sequential(nn.Linear(512, 1024), nn.ReLU(), nn.Linear(1024, 600)), None
        x = torch.randn(2048, 512)
        for wrap in lambda m: m, nn.parallel.DistributedDataParallel:
            model.zero_grad(); used.clear()
            wrap(by_onednn(model))(x).pow(2).sum().backward()
            assert used
            grads = [p.grad.clone() for p in model.parameters()]
            alone = alone or grads
            assert all(map(torch.equal, alone, grads)) and all(g.is_contiguous() for g in grads)
    finally: torch.distributed.destroy_process_group()

def test_everything_else_goes_the_usual_way(used):
    layer = _OneDNNLinear(nn.Linear(512, 1024))
    usual = lambda x: F.linear(x, layer.weight, layer.bias)
    x = torch.randn(300, 512)
    assert torch.equal(layer(x[:4]), usual(x[:4]))
    with torch.autocast('cpu', torch.bfloat16): assert layer(x).dtype == torch.bfloat16
    layer.double(); assert torch.equal(layer(x.double()), usual(x.double())); layer.float()
    assert_close(torch.compile(layer, backend='eager', fullgraph=True)(x), usual(x), rtol=0, atol=0)
    assert not used and layer(x) is not None and used
    class Own(nn.Linear):
        def forward(self, x): return super().forward(x) + 1
    hooked, computed = nn.Linear(2, 2), nn.utils.parametrizations.weight_norm(nn.Linear(2, 2))
    hooked.register_forward_hook(lambda *_: None)
    for layer in Own(2, 2), hooked, computed: assert by_onednn(nn.Sequential(layer))[0] is layer

def test_a_layer_with_and_without_gradients_and_without_rows():
    "Outputs equal those of nn.Linear, also for a batch of no rows."
    torch.manual_seed(0)
    layer, x = nn.Linear(512, 1000), torch.randn(5, 60, 512)
    fast = _OneDNNLinear(deepcopy(layer))
    assert_close(fast(x), layer(x))
    with torch.no_grad():
        assert_close(fast(x), layer(x))
        assert fast(x[:, :0]).shape == (5, 0, 1000)

@pytest.mark.parametrize('d_in, d_out', [(512, 2048), (2048, 512), (128, 10_000), (512, 128), (64, 32)])
def test_gradients_of_every_shape_and_memory_order(d_in, d_out):
    "Gradients of strided inputs and of expanded gradients equal F.linear's; they are contiguous and repeat to the bit."
    torch.manual_seed(0)
    def gradients(product, tensors, grad):
        leaves = [t.detach().clone().requires_grad_() for t in tensors]
        y = product(*leaves)
        return torch.autograd.grad(y, leaves, grad.expand_as(y))
    x, W, b = torch.randn(3, 100, d_in), torch.randn(d_out, d_in), torch.randn(d_out)
    for part, g in (x, torch.randn(3, 100, d_out)), (x[:, ::2], torch.tensor(.5)):
        onednn = _OneDNNLinearFunction.apply
        ours, again, usual = (gradients(product, (part, W, b), g) for product in (onednn, onednn, F.linear))
        for one, two, other in zip(ours, again, usual):
            assert torch.equal(one, two) and one.is_contiguous()
            assert_close(one, other, rtol=1e-4, atol=1e-3)

def test_gradients_of_gradients_and_of_expanded_tensors():
    x, W = ((torch.randn(n, 300) / 20).requires_grad_() for n in (7, 40))
    def second(product):
        first, = torch.autograd.grad(product(x, W, None).tanh().sum(), x, create_graph=True)
        return torch.autograd.grad(first.pow(2).sum(), (x, W))
    for a, b in zip(second(_OneDNNLinearFunction.apply), second(F.linear)): assert_close(a, b, rtol=1e-4, atol=1e-4)
    a, b = (torch.autograd.grad(product(x.t()[:, :1].expand(-1, 300), W, None).sum(), (x, W)) for product in (_OneDNNLinearFunction.apply, F.linear))
    for one, other in zip(a, b): assert_close(one, other, rtol=1e-4, atol=1e-3)

def test_the_choice_draws_no_random_numbers_and_needs_onednn(monkeypatch):
    state = torch.get_rng_state()
    assert choose_matmul_backend(128) in ('onednn', 'pytorch') and torch.equal(state, torch.get_rng_state())
    with torch.no_grad(): assert choose_matmul_backend(64, .01) in ('onednn', 'pytorch')
    monkeypatch.setattr(torch.backends.mkldnn, 'is_available', lambda: False)
    assert choose_matmul_backend(128) == 'pytorch'
    assert type(optimize_for_training(nn.Sequential(nn.Linear(512, 512)))[0]) is nn.Linear

def test_dice_repeat_when_layers_are_recomputed_and_belong_to_each_copy():
    model = optimize_for_training(new(onednn=False), 'pytorch'); enable_gradient_checkpointing(model)
    ours, recomputed = trained(optimize_for_training(new(onednn=False), 'pytorch')), trained(model)
    assert ours[0] == recomputed[0] and all(torch.equal(ours[1][k], recomputed[1][k]) for k in ours[1])
    for copy in deepcopy(model), pickle.loads(pickle.dumps(model)):
        assert type(copy.src_position.dropout) is _FastDropout is not copy.src_position.dropout

@pytest.mark.parametrize('p', [.1, .3, .9])
def test_dropout_is_fair(p):
    "Each of the four activations that share random bits is dropped at rate p, independently; the mean is preserved."
    torch.manual_seed(0)
    layer, x = _FastDropout(nn.Dropout(p)), torch.ones(2**20, requires_grad=True)
    y = layer(x)
    y.sum().backward()
    assert torch.equal(x.grad, y)                                 # of ones
    dropped = (y == 0).view(-1, 4).double()
    assert ((dropped.mean(0) - p).abs() < 5 * (p * (1 - p) / 2**18)**.5).all()
    assert (dropped.T.corrcoef() - torch.eye(4)).abs().max() < 5 / 2**9
    rate = 1 - round(p * 2**16) / 2**16
    assert_close(y[y > 0], torch.full_like(y[y > 0], 1 / rate))

def test_dropout_repeats_with_a_seed_and_leaves_the_rest_to_pytorch():
    "Any shape and memory order; evaluation, rates that 16 bits cannot express and layers in place are PyTorch's."
    layer, x = _FastDropout(nn.Dropout(.5)), torch.randn(3, 5, 7, dtype=torch.float64).transpose(0, 1)
    assert layer(x).shape == x.shape
    torch.manual_seed(1); once = layer(x)
    torch.manual_seed(1); assert torch.equal(layer(x), once)
    assert layer.eval()(x) is x
    for p in 0., 1e-6, 1.:
        torch.manual_seed(2); ours = _FastDropout(nn.Dropout(p))(x)
        torch.manual_seed(2); assert torch.equal(ours, nn.Dropout(p)(x))
    assert type(optimize_for_training(nn.Sequential(nn.Dropout(.1, inplace=True)))[0]) is nn.Dropout

def test_optimized_models_have_the_same_parameters():
    "Names and tied weights stay."
    plain = Transformer(WIDE)
    tuned = optimize_for_training(deepcopy(plain))
    assert [name for name, _ in tuned.named_parameters()] == [name for name, _ in plain.named_parameters()]
    assert tuned.tgt_embed.weight is tuned.output_projection.weight

def test_the_loss_can_be_differentiated_once():
    "Its gradient overwrites the log-probabilities, so a second backward pass raises."
    loss, _ = label_smoothed_loss(torch.randn(2, 9, 11, requires_grad=True), torch.randint(1, 11, (2, 9)))
    loss.backward(retain_graph=True)
    with pytest.raises(RuntimeError, match='modified by an inplace operation'): loss.backward()

def test_a_compiler_and_mixed_precision_get_what_they_know():
    layer, x = _FastDropout(nn.Dropout(.5)), torch.ones(1000)
    torch.manual_seed(0); compiled = torch.compile(layer, backend='eager', fullgraph=True)(x)
    torch.manual_seed(0); assert torch.equal(compiled, F.dropout(x, .5))
    assert layer(x.bfloat16()).dtype == torch.bfloat16 and layer(x[:0]).shape == (0,)

def test_dropout_keeps_one_byte_for_each_activation():
    layer, x, kept = _FastDropout(nn.Dropout(.5)), torch.ones(1000, requires_grad=True), []
    with torch.autograd.graph.saved_tensors_hooks(lambda t: kept.append(t) or t, lambda t: t): y = layer(x)
    y.sum().backward()
    assert [(t.dtype, t.numel()) for t in kept] == [(torch.bool, 1000)] and torch.equal(x.grad, y)

def gradients(layer, Q, K, V, mask=None):
    "Output and gradients of attention, in 64 bits."
    Q, K, V = (x.clone().requires_grad_() for x in (Q, K, V))
    y = layer.attend(Q, K, V, mask)
    return [x.double() for x in (y.detach(), *torch.autograd.grad(y, (Q, K, V), torch.ones_like(y)))]

@pytest.mark.parametrize('T', [1, 7, 512])
def test_attention_in_bfloat16_is_as_exact_as_the_fused_one(T):
    torch.manual_seed(0)
    layer, Q, K, V = MultiHeadAttention(16, 2), *torch.randn(3, 3, 2, T, 8).bfloat16()
    mask = subsequent_mask(T).expand(3, 1, T, T).clone()
    mask[1] = False                                          # these queries attend to nothing
    exact = gradients(layer, Q.double(), K.double(), V.double(), mask)
    fused, ours = gradients(layer, Q, K, V, mask), gradients(_BFloat16Attention(layer), Q, K, V, mask)
    for e, f, o in zip(exact, fused, ours): assert (o - e).norm() < max(1.5 * (f - e).norm(), 1e-2 * e.norm(), 1e-6)
    assert not ours[0][1].any()

def test_attention_in_bfloat16_leaves_the_rest_to_the_fused_one():
    "Other precisions, more than 512 keys, no gradient; a layer asked for its weights keeps them; P_attn drops them."
    layer = MultiHeadAttention(16, 2, P_attn=.5)
    ours, x = _BFloat16Attention(layer), torch.randn(3, 1, 2, 513, 8)
    for Q, K, V in (x[..., :9, :], x.bfloat16()):
        torch.manual_seed(1); fused = gradients(layer, Q, K, V)
        torch.manual_seed(1); assert all(map(torch.equal, fused, gradients(ours, Q, K, V)))
    Q, K, V = x[..., :9, :].bfloat16()
    assert torch.equal(ours.eval().attend(Q, K, V), layer.eval().attend(Q, K, V))
    Q, ours.need_weights = Q.requires_grad_(), True
    ours.attend(Q, K, V); assert ours.attn_weights.shape == (1, 2, 9, 9)
    ours.need_weights = False; ours.train()
    assert not torch.equal(ours.attend(Q, K, V), ours.attend(Q, K, V))

def test_only_attention_without_changes_is_replaced():
    class Own(MultiHeadAttention): pass
    model = optimize_for_training(nn.Sequential(MultiHeadAttention(16, 2), Own(16, 2)))
    assert [type(m) for m in model] == [_BFloat16Attention, Own] and type(model[0].dropout) is _FastDropout
    copy = pickle.loads(pickle.dumps(model[0])); assert type(copy) is _BFloat16Attention
    copy.W_Q.weight.data += 1; assert not torch.equal(copy.W_Q.weight, model[0].W_Q.weight)

@pytest.mark.skipif(platform.libc_ver()[0] != 'glibc', reason='a setting of glibc')
def test_freed_memory_is_kept():
    "In a process of its own: a tensor of 64 MiB is written again and again without a new page, at last (glibc may need some room between)."
    code = ('import resource, torch; from annotated_transformer.cpu import _keep_freed_memory\n'
            'def faults(): return resource.getrusage(resource.RUSAGE_SELF).ru_minflt\n'
            'def new():\n before = faults(); torch.zeros(2**24); return faults() - before\n'
            'before = [new() for _ in range(3)][-1]; _keep_freed_memory(); print(before, [new() for _ in range(10)][-1])')
    before, after = map(int, subprocess.check_output([sys.executable, '-c', code], text=True).split())
    assert after < 10 and before > 100 * max(after, 1)

def test_a_run_has_the_cheaper_dropout(tmp_path):
    recipe, out = get_recipe('demo', max_steps=2, P_drop=0.1, N=1, d_model=16, d_ff=16, h=2, save_every='1 steps'), tmp_path / 'run'
    train(recipe, ('numbers', 'en', 'de'), out)
    assert type(_init_model(recipe, RunDirectory(out)).src_position.dropout) is _FastDropout
    off = replace(recipe, cpu_matmul_backend='pytorch')                # one field, and every layer is PyTorch's
    layers = [type(m) for m in _init_model(off, RunDirectory(out)).modules()]
    assert nn.Dropout in layers and not {_FastDropout, _OneDNNLinear} & {*layers}
    decoders = []
    for backend in 'auto', 'pytorch':                                  # and of the search, when the run is opened
        config = json.loads((out / 'config.json').read_text()) | dict(cpu_matmul_backend=backend)
        (out / 'config.json').write_text(json.dumps(config))
        decoders.append(type(load_model(out).decoder))
    assert decoders[0] is not Stack and decoders[1] is Stack

def test_a_model_is_opened_for_this_machine(monkeypatch, tmp_path):
    "Not with the library that was faster where it was trained, unless the recipe names one."
    out = tmp_path / 'run'
    train(get_recipe('demo', max_steps=2, N=1, d_model=16, d_ff=16, h=2, save_every='1 steps'), ('numbers', 'en', 'de'), out)
    config = json.loads((out / 'config.json').read_text())
    for here, there, named, onednn in (('onednn', 'pytorch', 'auto', True), ('pytorch', 'onednn', 'auto', False), ('pytorch', 'pytorch', 'onednn', True)):
        monkeypatch.setattr(run_directory, '_fastest_backend', lambda d_model, here=here: here)
        (out / 'config.json').write_text(json.dumps(config | dict(cpu_matmul_backend=named, resolved_matmul_backend=there)))
        assert (_OneDNNLinear in map(type, load_model(out).modules())) == onednn

def test_few_compiled_products_are_kept(monkeypatch):
    name = 'ONEDNN_PRIMITIVE_CACHE_CAPACITY'
    for given, found in (None, '64'), ('7', '7'):
        monkeypatch.delenv(name, raising=False)
        if given: monkeypatch.setenv(name, given)
        optimize_for_training(nn.Linear(2, 2))
        assert os.environ[name] == found

def test_the_limit_comes_before_the_first_product(monkeypatch):
    "oneDNN reads it there, and choosing the library multiplies."
    name, seen = 'ONEDNN_PRIMITIVE_CACHE_CAPACITY', []
    monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(run_setup, 'choose_matmul_backend', lambda d_model: seen.append(os.environ.get(name)) or 'pytorch')
    run_setup._matmul_backend(get_recipe('demo'))
    assert seen == ['64']

@pytest.mark.parametrize('recipe, tokens', [('base', 2048), ('multi30k_tiny', 512), ('demo', 34952)])
def test_chunks_are_no_smaller_than_pays(recipe, tokens):
    "Each adds a gradient as large as the weights: 4·d_model tokens, or four million logits."
    with torch.device('meta'): model = Transformer(get_recipe(recipe).model)
    assert optimize_for_training(model).loss_chunk_size == tokens
    model.loss_chunk_size = 7
    assert optimize_for_training(model).loss_chunk_size == 7
