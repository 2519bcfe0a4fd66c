"One step, however it is split; prefetching; and validation, each pair once."
from types import SimpleNamespace

import pytest
import torch
from accelerate import Accelerator
from datasets import Dataset
from torch.nn.utils import parameters_to_vector
from torch.testing import assert_close

from annotated_transformer.data.batching import Batches
from annotated_transformer.model.config import TransformerConfig
from annotated_transformer.model.transformer import Transformer
from annotated_transformer.training.train_step import ModelWithLoss, _prefetch, shard_batch, train_step, validate

CONFIG = TransformerConfig(20, N=1, d_model=16, d_ff=32, h=2, P_drop=0.)
SRC = torch.tensor([[4, 5, 6, 3], [7, 8, 3, 0], [9, 3, 0, 0]])
TGT = torch.tensor([[2, 5, 6, 7, 3], [2, 8, 3, 0, 0], [2, 9, 9, 3, 0]])

class SmallLogits(Transformer):
    "Adds to its loss a hundredth of the sum of squares of its logits."
    def forward(self, src, tgt):
        self.logits = super().forward(src, tgt)
        return self.logits

    def loss(self, src, tgt):
        loss, cross_entropy = super().loss(src, tgt)
        real = (tgt[:, :-1] != 0)[..., None]                  # padding must not count: shards have more
        return loss + .01 * (self.logits.square() * real).sum(), cross_entropy

def weights_after(kind, micro_batches, **options):
    "Weights after one step of gradient descent with a rate of 0.1."
    torch.manual_seed(0)
    model = kind(CONFIG).double()
    train_step(ModelWithLoss(model), torch.optim.SGD(model.parameters(), lr=.1), SRC, TGT, Accelerator(cpu=True),
               gradient_accumulation_steps=micro_batches, **options)
    return parameters_to_vector(model.parameters())

@pytest.mark.parametrize('kind', [Transformer, SmallLogits])
@pytest.mark.parametrize('micro_batches', [2, 4])
def test_micro_batches_give_the_step_of_the_whole(kind, micro_batches):
    "Of four micro-batches one is empty; an auxiliary loss is split like the loss."
    assert_close(weights_after(kind, micro_batches), weights_after(kind, 1), rtol=0, atol=1e-12)

def test_an_auxiliary_loss_acts():
    assert (weights_after(SmallLogits, 1) - weights_after(Transformer, 1)).abs().max() > 1e-4

def test_clipping_acts_on_the_gradient_of_the_whole_step():
    "Gradient descent moves the weights by the rate times the norm."
    unmoved, clipped = (weights_after(Transformer, 2, max_grad_norm=norm) for norm in (1e-12, .5))
    assert (clipped - unmoved).norm().item() == pytest.approx(.1 * .5, rel=1e-4)

def test_accelerate_must_not_accumulate_by_itself():
    with pytest.raises(ValueError, match='gradient_accumulation_steps must be 1'):
        train_step(None, None, SRC, TGT, SimpleNamespace(gradient_accumulation_steps=4))

def test_shards_take_sentences_in_turn():
    "An empty shard is one sentence of padding, which has no loss."
    src, tgt = torch.arange(10).view(5, 2), torch.arange(15).view(5, 3)
    assert [shard_batch(src, tgt, i, 2, 0)[0][:, 0].tolist() for i in range(2)] == [[0, 4, 8], [2, 6]]
    assert shard_batch(src, tgt, 5, 6, 0)[1].tolist() == [[0, 0, 0]]

def test_prefetching_keeps_the_order():
    assert [*_prefetch([1, 4, 9, 16, 25], [0, 1, 2, 4])] == [1, 4, 9, 25]
    assert [*_prefetch([1], [0])] == [1]

def test_validation_counts_each_pair_once():
    "Ten pairs in seven batches, which three processes cannot share evenly: the sums of three are those of one."
    torch.manual_seed(0)
    model = Transformer(CONFIG)
    rows = [torch.randint(4, 20, (2 + i,)).tolist() for i in range(10)]
    lengths = [*map(len, rows)]
    batches = Batches(Dataset.from_dict(dict(src=rows, tgt=rows, n_src=lengths, n_tgt=lengths)), max_tokens=14)
    assert len(batches) % 3
    def sums(world_size):
        "Loss, correct tokens and tokens of each process, before they are added up."
        totals = []
        for rank in range(world_size): validate(ModelWithLoss(model), batches, SimpleNamespace(
            process_index=rank, num_processes=world_size, device='cpu', reduce=lambda t: totals.append(t) or t + 1e-9))
        return torch.stack(totals)
    assert_close(sums(3).sum(0), sums(1)[0])
    assert sums(1)[0, 2] == sum(n - 1 for n in lengths)
