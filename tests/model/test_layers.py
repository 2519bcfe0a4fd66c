"Add & norm, the layers and the stacks: the order of the steps, what each sub-layer is given, and no shared weights."
import pytest
import torch
from torch import nn
from torch.testing import assert_close

from annotated_transformer.model.layers import AddNorm, DecoderLayer, EncoderLayer, Stack

class Recorder(nn.Module):
    "A sub-layer that notes its inputs and adds nothing."
    def __init__(self, name, calls):
        super().__init__()
        self.name, self.calls = name, calls

    def forward(self, *args):
        self.calls.append((self.name, args))
        return torch.zeros_like(args[0])

def recorders(calls, *names): return [Recorder(name, calls) for name in names]
def add_norm(): return AddNorm(16)
def inputs(): return torch.randn(2, 5, 16), torch.ones(5, 5, dtype=torch.bool)

def test_the_variance_divides_by_the_width():
    "Not by one less, as `x.std()` does."
    x = torch.tensor([1., 2., 3., 6.])
    assert_close(AddNorm(4)(x, torch.zeros_like), torch.tensor([-2., -1., 0., 3.]) / (14/4 + 1e-5) ** .5)

@pytest.mark.parametrize('norm', ['post', 'pre'])
def test_dropout_removes_the_contribution_and_never_x(norm):
    "With a sub-layer of ones the sum is x, or x plus one divided by the share that is kept."
    torch.manual_seed(0)
    module, x = AddNorm(512, .1, norm), torch.randn(2, 5, 512)
    if norm == 'post': module.norm = nn.Identity()             # to see the sum
    added = module(x, torch.ones_like) - x
    assert_close(added.unique().round(decimals=3).unique(), torch.tensor([0., 1 / .9]), rtol=0, atol=1e-3)
    assert abs((added == 0).float().mean() - .1) < .02
    assert_close(module.eval()(x, torch.zeros_like), x)

def test_a_sublayer_of_another_width_is_refused():
    x, _ = inputs()
    with pytest.raises(RuntimeError, match='must match the size'): AddNorm(16)(x, lambda y: y[..., :4])

def test_what_the_sublayers_of_the_encoder_are_given():
    calls, (x, mask) = [], inputs()
    EncoderLayer(*recorders(calls, 'self_attn', 'feed_forward'), add_norm)(x, mask)
    (first, args), (second, (y,)) = calls
    assert (first, second) == ('self_attn', 'feed_forward')
    assert args[0] is args[1] is args[2] is x and args[3] is mask
    assert_close(y, nn.LayerNorm(16)(x))

def test_what_the_sublayers_of_the_decoder_are_given():
    "Each mask and each cache of the layer goes where it belongs."
    calls, (x, mask), memory, memory_mask = [], inputs(), torch.randn(2, 7, 16), torch.ones(5, 7, dtype=torch.bool)
    class Caches:
        def layer_caches(self, layer): return 'self', 'cross'
    DecoderLayer(*recorders(calls, 'self_attn', 'cross_attn', 'feed_forward'), add_norm)(x, memory, mask, memory_mask, Caches())
    (_, own), (_, cross), _ = calls
    assert [name for name, _ in calls] == ['self_attn', 'cross_attn', 'feed_forward']
    assert own[0] is own[1] is own[2] is x and own[3] is mask and own[4] == 'self'
    assert cross[1] is cross[2] is memory and cross[3] is memory_mask and cross[4] == 'cross'

def test_no_two_layers_share_a_tensor():
    "Six decoder layers, three LayerNorms each, a gain and a bias each."
    stack = Stack(lambda: DecoderLayer(*recorders([], 'self_attn', 'cross_attn', 'feed_forward'), add_norm), 6)
    assert len({p.data_ptr() for p in stack.parameters()}) == 6 * 3 * 2
    assert sum(p.numel() for p in stack.parameters()) == 6 * 3 * 2 * 16

def test_idle_sublayers_leave_one_normalisation():
    x, _ = inputs()
    idle = Stack(lambda: EncoderLayer(*recorders([], 'self_attn', 'feed_forward'), add_norm), 6)
    assert_close(idle(x), nn.LayerNorm(16)(x), rtol=0, atol=1e-3)
