"A recipe: its fields, its flags, and what is refused."
import json
from dataclasses import dataclass, fields

import pytest
from helpers import run_in_process, assert_user_error

from annotated_transformer.cli.arguments import _parse_args
from annotated_transformer.cli.train import transformer_train
from annotated_transformer.model import seq2seq
from annotated_transformer.model.config import TransformerConfig, count_parameters, presets
from annotated_transformer.recipe import (
    CheckpointConfig, DataConfig, OptimizationConfig, Recipe, ScheduleConfig, _recipe_from_config, flatten_recipe, get_recipe, recipe_to_dict, with_overrides)
from annotated_transformer.training.optimizer import learning_rate, noam_lr


def test_presets():
    "The rows of Table 3 and `big`, whose file repeats the sizes."
    for name in presets: assert count_parameters(get_recipe(name).model) == count_parameters(presets[name]) and get_recipe(name).model.P_drop == presets[name].P_drop
    assert get_recipe('base') == Recipe() and get_recipe('big').model == presets['big']

def test_heads_follow_the_width():
    with pytest.raises(ValueError, match='h=3 does not divide d_model=128'): get_recipe('demo', h=3)
    assert get_recipe('base', d_model=256).model.head_dims == (32, 32) and get_recipe('demo', h=8).model.head_dims == (16, 16)
    assert with_overrides(get_recipe('base'), d_model=256).model.head_dims == (32, 32) and recipe_to_dict(get_recipe('base'))['model']['d_k'] is None
    assert get_recipe('base', d_model=256, d_k=64).model.head_dims == (64, 32)

def test_no_field_has_two_homes(monkeypatch):
    names = [f.name for kind in (TransformerConfig, DataConfig, OptimizationConfig, ScheduleConfig, CheckpointConfig, Recipe) for f in fields(kind)]
    assert len(names) == len({*names})
    @dataclass(frozen=True)
    class Steps:
        vocab_size: int = 9
        max_len: int = 9
        d_model: int = 9
        max_steps: int = 9
    monkeypatch.setitem(seq2seq._REGISTRY, 'stepper', type('Stepper', (seq2seq.Seq2SeqModel,), dict(config_class=Steps)))
    with pytest.raises(ValueError, match="field 'max_steps' of Steps is already a field of the recipe"): Recipe(Steps(), 'stepper')
    with pytest.raises(ValueError, match='architecture=transformer needs a TransformerConfig, not a Steps'): Recipe(Steps())

@pytest.mark.parametrize('changes, message', [
    (dict(max_steps='6'), "max_steps='6' must be a valid integer"), (dict(max_steps=True), 'max_steps=True must be a valid integer'), (dict(max_steps=6.), 'max_steps=6.0 must be a valid integer'),
    (dict(peak_lr=float('nan')), 'peak_lr=nan must be a finite number'), (dict(peak_lr=True), 'peak_lr=True must be'), (dict(max_grad_norm=0), 'max_grad_norm=0 must be greater than 0'),
    (dict(gradient_checkpointing=1), 'gradient_checkpointing=1 must be a valid boolean'), (dict(average_checkpoints=0), 'average_checkpoints=0 must be greater than or equal to 1'), (dict(early_stopping_patience=0), 'early_stopping_patience=0 must be'),
    (dict(optimizer='adamax'), "optimizer='adamax' must be 'adam', 'adamw' or 'sgd'"), (dict(lr_scheduler_type='linear'), "must be 'inverse_sqrt', 'cosine' or 'constant_with_warmup'"),
    (dict(weight_decay=.1), "weight_decay needs optimizer='adamw' or 'sgd'"), (dict(momentum=.9), "momentum needs optimizer='sgd'"), (dict(seed=2**23), 'seed=8388608 must be less than'),
    (dict(save_every='often'), "save_every='often': write '10 minutes'"), (dict(N='1'), "N='1': must be int"),
    (dict(max_stepz=3), "unknown field 'max_stepz': did you mean 'max_steps'?"), (dict(rotary=3), "unknown field 'rotary': use one of N, P_attn"), (dict(preprocessing='labels'), "preprocessing='labels' needs src_vocab_size")])
def test_refused_in_one_line(changes, message):
    for change in lambda: get_recipe('demo', **changes), lambda: with_overrides(get_recipe('demo'), **changes):
        with pytest.raises(ValueError) as e: change()
        assert message in str(e.value) and '\n' not in str(e.value)

def test_flags_have_the_types_of_their_fields():
    given = _parse_args(transformer_train, '--recipe base --d_model 256 --peak-lr 1e-3 --tie_embeddings false --gradient_checkpointing --max_grad_norm null --max_steps=5'.split())
    assert given.items() >= dict(
        recipe='base', d_model=256, peak_lr=.001, tie_embeddings=False, gradient_checkpointing=True, max_grad_norm=None, max_steps=5).items()

@pytest.mark.parametrize('recipe, own, other', [('base', 'h', 'score'), ('rnn_tiny', 'score', 'h')])
def test_help_shows_the_fields_of_the_recipe_by_part(recipe, own, other, capsys):
    with pytest.raises(SystemExit): _parse_args(transformer_train, ['--recipe', recipe, '--help'])
    group, found = None, {}
    for line in capsys.readouterr().out.splitlines():
        if line.endswith(':') and line[0].isalpha(): group = line[:-1]
        elif line.startswith('  --'): found[line.split()[0][2:]] = group
    parts = 'model', 'data', 'optimization', 'schedule', 'checkpoints'
    wanted = {f.name: part for part in parts for f in fields(getattr(get_recipe(recipe), part))}
    assert wanted.items() <= found.items() and found['seed'] == 'run' and found['dataset'] == 'options'
    assert own in found and other not in found and [*dict.fromkeys(found.values())] == ['options', *parts, 'run']

@pytest.mark.parametrize('args, message', [
    ('--max_stepz 3', 'unknown option --max_stepz: did you mean --max_steps?'), ('--dropout 0.2', 'unknown option --dropout: use --P_drop'),
    ('--clip-norm=1', 'use --max_grad_norm'), ('--output_dir a --output_dir b', '--output_dir is given more than once'), ('--max_steps 3 --max_steps 4', '--max_steps is given more than once'), ('--max_steps 6x', "steps='6x' must be a valid integer"),
    ('--recipe bse', "unknown recipe 'bse': did you mean 'base'?"), ('--recipe nowhere.yaml', 'nowhere.yaml'), ('--peak_lr nan', "peak_lr='nan' must be a valid number"), ('--peak_lr .nan', 'peak_lr=nan must be'),
    ('--max_steps', 'expected one argument'), ('--recipe base --dataset text --d_model 255', 'h=8 does not divide d_model=255')])
def test_flags_that_are_refused(args, message, capfd, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    result = run_in_process(capfd, 'train', *args.split())
    assert_user_error(result, message)
    assert result.stderr.count('\n') == 1 and not [*tmp_path.iterdir()]

def test_overridden_fields_and_no_others():
    recipe = get_recipe('demo', max_steps=50, h=8, P_drop=.1, norm='pre', save_every='25 steps')
    flat, before = flatten_recipe(recipe), flatten_recipe(get_recipe('demo'))
    assert {k for k in flat if flat[k] != before[k]} == {'max_steps', 'h', 'P_drop', 'norm', 'save_every'} and recipe.model.norm == 'pre'
    assert with_overrides(recipe, seed=3).model == recipe.model and with_overrides(recipe, seed=3).seed == 3

def test_the_learning_rate_of_a_recipe():
    "Equation 3 by default, which is at half its peak after four times the warm-up."
    base, steps = get_recipe('base'), (1, 4000, 50_000, 100_000)
    assert [learning_rate(base, s) for s in steps] == pytest.approx([noam_lr(s) for s in steps])
    assert next(s for s in range(4000, 100_000) if learning_rate(base, s) <= learning_rate(base, 4000) / 2) == 16_000

def test_a_recipe_read_back():
    "From config.json, which has further fields and lacks one that has a default."
    recipe = get_recipe('demo', max_steps=7, optimizer='adamw', N=1)
    config = recipe_to_dict(recipe) | dict(pad_id=0)
    del config['checkpoints']['early_stopping_patience']
    assert _recipe_from_config(json.loads(json.dumps(config)), 'config.json') == recipe

def test_a_recipe_of_another_architecture(monkeypatch):
    "Its own fields can be overridden; without d_model it needs peak_lr."
    @dataclass(frozen=True)
    class Tiny:
        vocab_size: int = 100
        max_len: int = 60
        eps_ls: float = 0.
        layers: int = 2
    monkeypatch.setitem(seq2seq._REGISTRY, 'tiny', type('TinyModel', (seq2seq.Seq2SeqModel,), dict(config_class=Tiny)))
    recipe = with_overrides(Recipe(Tiny(), 'tiny', schedule=ScheduleConfig(peak_lr=.1)), layers=3, optimizer='sgd', momentum=.5)
    assert (recipe.model.layers, recipe.optimization.momentum, learning_rate(recipe, 4000)) == (3, .5, .1)
    with pytest.raises(ValueError, match='peak_lr is required: Tiny has no d_model'): Recipe(Tiny(), 'tiny')
