"Recipe files: both formats, every named one, and what is refused."
import json

import pytest
import yaml
from helpers import assert_user_error, run_in_process

from annotated_transformer.recipe import Recipe, ScheduleConfig, flatten_recipe, get_recipe, recipe_to_dict
from annotated_transformer.recipe_files import _recipe_path, list_recipes


@pytest.mark.parametrize('name', list_recipes())
def test_every_named_recipe_goes_through_both_formats(name, tmp_path):
    recipe = get_recipe(name)
    for suffix, write in ('json', json.dumps), ('yaml', yaml.safe_dump):
        path = tmp_path / f'own.{suffix}'
        path.write_text(write(recipe_to_dict(recipe)))
        assert get_recipe(path) == recipe

def test_every_file_is_a_recipe_that_says_no_more_than_it_must():
    for path in _recipe_path('').parent.glob('*'):
        values = yaml.safe_load(path.read_text())
        assert path.read_text().startswith('# ') and 'architecture' in values
        plain = flatten_recipe(get_recipe(path)) | flatten_recipe(Recipe())
        for part in values.values():
            for name, value in part.items() if isinstance(part, dict) else ():
                if part is not values.get('model'): assert plain[name] != value, f'{path}: {name} is the default'

@pytest.mark.parametrize('suffix, text, message', [
    ('yaml', 'schedule: {max_steps: 3, max_steps: 4}', 'max_steps is given more than once'), ('json', '{"seed": 1, "seed": 2}', 'seed is given more than once'),
    ('yaml', 'schedule: {max_steps: "6"}', "max_steps='6' must be a valid integer"), ('json', '{"schedule": {"max_steps": NaN}}', 'max_steps=nan must be'), ('yaml', 'schedule: {peak_lr: .nan}', 'must be a finite'),
    ('yaml', 'schedule: {max_tokens: 6}', "unknown field 'max_tokens'"), ('yaml', 'shedule: {max_steps: 6}', "unknown field 'shedule': did you mean 'schedule'?"), ('yaml', 'schedule: 6', 'ScheduleConfig must be a mapping of fields'),
    ('json', '{"pad": 0}', "unknown field 'pad'"), ('yaml', '[1, 2]', 'is not a recipe'), ('yaml', 'a: [', 'own.yaml: while parsing'), ('json', '{', 'own.json: Expecting'),
    ('yaml', 'architecture: unheard_of', "unknown architecture 'unheard_of'")])
def test_files_that_are_refused(suffix, text, message, tmp_path, capfd):
    path = tmp_path / f'own.{suffix}'
    path.write_text(text)
    with pytest.raises(ValueError) as e: get_recipe(path)
    assert message in str(e.value) and 'own.' in str(e.value) and '\n' not in str(e.value)
    assert_user_error(run_in_process(capfd, 'train', '--recipe', path), message)

def test_numbers_as_people_write_them(tmp_path):
    path = tmp_path / 'own.yaml'
    path.write_text('architecture: transformer\nschedule: {peak_lr: 1e-3, max_steps: 50}')
    assert get_recipe(path).schedule == ScheduleConfig(max_steps=50, peak_lr=.001)
    assert get_recipe(path, peak_lr=None).schedule.peak_lr is None
    with pytest.raises(FileNotFoundError): get_recipe(tmp_path / 'other.yaml')

def test_a_run_is_a_recipe(trained):
    "Its configuration can be given to `--recipe`; what else it says of the run is allowed there alone."
    recipe = get_recipe(trained / 'config.json')
    assert recipe.model.d_model == 64 and recipe.schedule.max_steps == 200
    values = recipe_to_dict(recipe) | dict(versions={})            # as in a run's, but not one
    (trained.parent / 'copy.json').write_text(json.dumps(values))
    with pytest.raises(ValueError, match="unknown field 'versions'"): get_recipe(trained.parent / 'copy.json')
