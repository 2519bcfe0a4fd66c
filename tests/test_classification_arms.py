"The ablations of the experiment on news: each does what its name says, and each arm of the experiment can be built."
import importlib
import sys

import pytest
import torch
from datasets import Dataset, DatasetDict
from helpers import ROOT
from torch.testing import assert_close

from annotated_transformer.tasks.classification.classifier import TextClassifier
from annotated_transformer.model.seq2seq import build_model
from annotated_transformer.recipe import get_recipe
from annotated_transformer.training.trainer import train

SRC = torch.tensor([[5, 6, 7, 8, 9, 3]])
PADDED = torch.cat([SRC, torch.zeros(1, 3, dtype=torch.long)], 1)

@pytest.fixture(scope='module')
def arms():
    sys.path.insert(0, str(ROOT / 'experiments'))
    try: yield importlib.import_module('classification_arms')
    finally: sys.path.remove(str(ROOT / 'experiments'))

def small(arms, **changes):
    torch.manual_seed(0)
    return arms.ClassifierArm(arms.ArmConfig(**dict(vocab_size=8, src_vocab_size=20, d_model=16, d_ff=32, max_len=12) | changes)).eval()

@pytest.mark.parametrize('changes', [dict(flat=True), dict(bigrams=9), dict(attention='none'), dict(N=0, positions='none', bigrams=9)])
def test_padding_changes_nothing(arms, changes):
    m = small(arms, **changes)
    assert_close(m(PADDED), m(SRC))

def test_heads_by_view_depend_on_padding_and_see_neighbours_alone(arms):
    m = small(arms, attention='view', N=1, positions='none')
    assert (m(PADDED) - m(SRC)).abs().max() > .01
    attn, y = m.encoder.layers[0].self_attn, torch.randn(1, 8, 16, requires_grad=True)
    for masked, seen in ((None, [0, 1]), (1, [0])):                        # four heads, eight tokens: blocks of two
        mask = torch.ones(1, 1, 1, 8, dtype=torch.bool)
        if masked: mask[..., masked] = False
        y.grad = None
        attn(y, y, y, mask)[0, 0].sum().backward()
        assert y.grad.abs().sum(-1)[0].nonzero().flatten().tolist() == seen

def test_a_pair_has_one_vector_and_pairs_are_hardly_shared(arms):
    m = small(arms, bigrams=1000)
    x, swapped = m.embed_tokens(SRC), m.embed_tokens(SRC[:, [1, 0, 2, 3, 4, 5]])
    assert_close(x[0, 4:], swapped[0, 4:])                                 # the same pair, the same vector
    assert (x[0, 2] - swapped[0, 2]).abs().max() > .01                     # after another token, another
    many, asked = small(arms, bigrams=10**6, src_vocab_size=4000, d_model=2, h=1), []
    many.pairs.register_forward_hook(lambda module, ids, y: asked.append(ids[0]))
    many.embed_tokens(torch.randint(4, 4000, (100, 1001)))
    assert asked[0][:, 1:].unique().numel() > 92_000

def test_no_attention_takes_nothing_from_other_tokens(arms):
    m = small(arms, attention='none', positions='none')
    other = SRC.clone()
    other[0, 0] = 11
    z, moved = (m.encoder(m.embed(ids), None) for ids in (SRC, other))
    assert_close(z[:, 1:], moved[:, 1:])
    assert (z[:, 0] - moved[:, 0]).abs().max() > .01

def test_flat_is_all_vectors_in_a_row(arms):
    m, z = small(arms, flat=True, max_len=4), torch.tensor([[[1., -2.], [3., -4.], [9., 9.]]])
    assert m.pool(z, torch.tensor([[[True], [True], [False]]]))[0].tolist() == [1., -2., 3., -4., 0., 0., 0., 0.]

def test_every_arm_of_the_experiment_can_be_built(arms, monkeypatch):
    import ast
    tree = ast.parse((ROOT / 'experiments/classification.py').read_text())
    names = [n for n in tree.body if isinstance(n, ast.Assign) and n.targets[0].id in ('CUSTOM_ARCHITECTURE', 'ARMS')]
    found = {}
    exec(compile(ast.Module(names, []), 'arms', 'exec'), found)
    built = {}
    for name, (_, recipe, changes, _) in found['ARMS'].items():
        r = get_recipe(recipe, **dict(changes) | dict(d_model=16, d_ff=16))
        built[name] = build_model(r.architecture, r.model)(SRC).shape[-1] == r.model.vocab_size
    assert len(built) >= 20 and all(built.values())

def test_an_arm_is_trained_and_opened(arms, tmp_path):
    rows = dict(report=['Bears beat Hawks', 'Hawks beat Bears'] * 30, winner=['Bears', 'Hawks'] * 30)
    splits = DatasetDict({name: Dataset.from_dict(rows) for name in ('train', 'valid', 'test')})
    recipe = get_recipe('classify_small', architecture='classifier_arm', flat=True, bigrams=50, attention='view', vocab_size=6, src_vocab_size=10, preprocessing='words', d_model=16, d_ff=16,
                        max_len=8, max_steps=4, warmup_steps=2, max_tokens=64, save_every='4 steps', average_checkpoints=1)
    train(recipe, splits, tmp_path / 'run')
    translator = TextClassifier.from_pretrained(tmp_path / 'run', device='cpu')
    assert type(translator.models[0]) is arms.ClassifierArm and translator.classify(['Bears beat Hawks'])[0][0][0] in ('Bears', 'Hawks')
