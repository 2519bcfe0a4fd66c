"The tables of guide/coming_from: our options exist, and the options of Hugging Face and fairseq are answered with ours."
import json
import re

import pytest
from pages import ROOT

from annotated_transformer.cli.arguments import _parse_args
from annotated_transformer.cli.train import transformer_train
from annotated_transformer.cli.translate import transformer_translate

def rows(key):
    "Cells of each row of the table in a cell of the page."
    cells = json.loads((ROOT / 'nbs/guide/coming_from.ipynb').read_text(encoding='utf-8'))['cells']
    text, = (''.join(c['source']) for c in cells if c['id'] == key)
    return [[cell.strip() for cell in line.strip('|').split(' | ')] for line in text.splitlines() if line.startswith('|')][2:]

COMMANDS = dict(model=transformer_train, training=transformer_train, generation=transformer_translate)
ANOTHER = 'EarlyStoppingCallback', 'from_pretrained', '--bpe'        # not an option, or of another program
PAIRS = [(COMMANDS[key], ours, theirs) for key in COMMANDS for row in rows(key) if (ours := re.findall(r'--(\w+)', row[0]))
         for theirs in re.findall(r'`([\w-]+)`', ' '.join(row[1:3])) if theirs not in ANOTHER and theirs.lstrip('-').replace('-', '_') not in ours]

def test_the_tables_are_read(): assert len(PAIRS) > 40

@pytest.mark.parametrize('command, ours, theirs', PAIRS)
def test_their_options_are_answered_with_ours(command, ours, theirs, capsys):
    run = ['run'] if command is transformer_translate else []
    with pytest.raises(SystemExit): _parse_args(command, [*run, '--' + theirs.lstrip('-'), '1'])
    assert re.search(rf"use --({'|'.join(ours)})\b", capsys.readouterr().err)

@pytest.mark.parametrize('key', COMMANDS)
def test_our_options_exist(key, capsys):
    with pytest.raises(SystemExit): _parse_args(COMMANDS[key], ['--help'])
    text = capsys.readouterr().out
    missing = {name for row in rows(key) for name in re.findall(r'--(\w+)', row[0]) if f'--{name} ' not in text}
    assert not missing
