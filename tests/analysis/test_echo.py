"The echo of section 2: what goes in and out of its systems, and counts that are known by hand."
import pytest
import torch

from annotated_transformer.analysis.echo import draw_echo, echo_accuracy, _echo_logits, _lagged_loss, _lagged_model
from annotated_transformer.analysis.echo_systems import ECHO_SYSTEMS, _count_connections, _echo_table
from annotated_transformer.utils.io import project_path, read_json

@pytest.mark.parametrize('name', ECHO_SYSTEMS)
def test_each_system_has_logits_for_each_letter(name):
    "Eight ids for each letter, and an accuracy near chance before training."
    torch.manual_seed(0)
    model, x = ECHO_SYSTEMS[name].model(6), draw_echo(6, 64)
    assert _echo_logits(model, x).shape == (64, 6, 8) and 3 <= x.min() and x.max() <= 7
    assert echo_accuracy(model, x) < .5

@pytest.mark.parametrize('name, expected', {
    'ConvS2S': dict(across=1, within=2), 'ByteNet (decoder)': dict(across=2, within=2),
    'RNN encoder-decoder': dict(across=4, within=4), 'Transformer': dict(across=1, within=1)}.items())
def test_layers_between_positions(name, expected):
    "Over a distance of 4: one layer of attention, two of width 3, four steps of a cell."
    counts = _count_connections(ECHO_SYSTEMS[name], 4)
    assert {key: counts[key] for key in expected} == expected

@pytest.mark.parametrize('name, growth', {'Transformer': 0, 'ByteNet (decoder)': 0, 'RNN encoder-decoder': 4, 'Extended Neural GPU': 8}.items())
def test_products_sequential(name, growth):
    "Two more letters: none where positions are parallel, one for each letter read and written in a GRU, two of each in a Neural GPU."
    short, long = (_count_connections(ECHO_SYSTEMS[name], n)['sequential'] for n in (4, 6))
    assert long - short == growth

def test_lagged_echo_begins_at_chance():
    "A stack that has learned nothing has about ln 5 nats or more."
    torch.manual_seed(0)
    for dilations in [1, 2], []: assert _lagged_loss(_lagged_model(dilations), torch.randint(5, (8, 20)), 3) > 1.2

def test_table_has_a_row_for_each_system():
    "Two lines of head, then eight columns for each system, or seven without people."
    record = read_json(project_path('nbs/results/echo.json'))
    for people, columns in (True, 8), (False, 7):
        rows = _echo_table(record, people=people).splitlines()
        assert len(rows) == 2 + len(ECHO_SYSTEMS) and {row.count('|') for row in rows} == {columns + 1}
