"The options of a command: unknown ones, and their spelling."
import pytest

from annotated_transformer.cli.arguments import _parse_args
from annotated_transformer.cli.evaluate import transformer_evaluate
from annotated_transformer.cli.train import transformer_train

@pytest.mark.parametrize('line, message', [
    ('a --batch_size 3', 'unknown option --batch_size: see --help'), ('a --num_beams 3', 'unknown option --num_beams: use --beam'),
    ('a --lenpen=1', 'unknown option --lenpen=1: use --alpha'), ('a b', 'unexpected argument b'), ('a --beem 3', 'did you mean --beam?')])
def test_suggested_options_are_those_of_the_command(line, message, capsys):
    with pytest.raises(SystemExit) as e: _parse_args(transformer_evaluate, line.split())
    assert e.value.code == 2 and message in capsys.readouterr().err

def test_batch_size_is_in_tokens(capsys):
    with pytest.raises(SystemExit): _parse_args(transformer_train, ['--per_device_train_batch_size', '64'])
    assert 'use --max_tokens (in tokens, not sentences)' in capsys.readouterr().err

def test_options_with_either_dash(monkeypatch):
    "Other versions of fastcore spell the options of a function with a dash."
    from annotated_transformer.cli import arguments
    plain = arguments.anno_parser
    def dashed(func, **kwargs):
        parser = plain(func, **kwargs)
        for action in parser._actions:
            for flag in action.option_strings:
                if '_' in flag: parser._option_string_actions[flag.replace('_', '-')] = parser._option_string_actions.pop(flag)
            action.option_strings = [flag.replace('_', '-') for flag in action.option_strings]
        return parser
    def brew(water_temp:int=90): pass            # degrees
    for make in plain, dashed:
        monkeypatch.setattr(arguments, 'anno_parser', make)
        for flag in '--water_temp', '--water-temp': assert arguments._parse_args(brew, [flag, '80']) == dict(water_temp=80)
