"White is zero in every heat map, unless the caller says otherwise; parameters are counted once."
from matplotlib import pyplot as plt
import torch

from annotated_transformer.utils.plotting import heatmap, n_parameters


def _colours(*args, **kwargs):
    "Red, green and blue of each cell of a heat map, 0 to 1."
    ax = heatmap(*args, **kwargs)
    ax.figure.canvas.draw()
    colours = torch.tensor(ax.collections[0].get_facecolors())[:, :3]
    plt.close(ax.figure)
    return colours


def test_zero_is_white():
    "Zero is white beside values of one sign, of both signs, and in a mask."
    for values in [0., 1., 3.], [-1., 0., 3.], [False, True, True]:
        zero = values.index(0)
        assert _colours([values])[zero].min() > .95, values
        assert all(c.min() < .9 for i, c in enumerate(_colours([values])) if i != zero)


def test_the_smallest_value_is_not_white_unless_it_is_zero():
    "The colours begin at zero, not at the smallest value."
    assert _colours([[2., 3.]])[0].min() < .7


def test_signs_have_colours_of_equal_strength():
    "Blue is positive, red negative; values of one size are equally far from white."
    minus, plus, _ = _colours([[-1., 1., 4.]])
    assert minus[0] > minus[2] and plus[2] > plus[0]
    assert abs(minus.mean() - plus.mean()) < .05


def test_the_caller_decides():
    "A map and limits that are passed are used."
    red = _colours([[1., 2.]], cmap='Reds', vmin=1)
    assert red[0].min() > .9 and red[1, 0] > red[1, 2]
    assert _colours([[1., 2.]], vmax=10)[1].min() > .7


def test_parameters_are_counted_once_and_only_if_trained():
    "A tensor of two modules is one parameter; a frozen one is none."
    a, b = torch.nn.Linear(3, 4, bias=False), torch.nn.Linear(3, 4, bias=False)
    both = torch.nn.ModuleList([a, b])
    assert n_parameters(both) == 24
    b.weight = a.weight
    assert n_parameters(both) == 12
    a.weight.requires_grad_(False)
    assert n_parameters(both) == 0
