"Runs that form an ensemble, and those that do not."
from helpers import assert_user_error, run_in_process

from annotated_transformer.inference.translator import Translator
from annotated_transformer.recipe import get_recipe
from annotated_transformer.training.trainer import train


def test_members_of_an_ensemble(trained, tmp_path, capfd):
    assert run_in_process(capfd, 'translate', f'{trained}, {trained}', stdin='seven').stdout == run_in_process(capfd, 'translate', f'{trained},{trained}', stdin='seven').stdout != ''
    for empty in f'{trained},', f',{trained}', f'{trained},,{trained}': assert_user_error(run_in_process(capfd, 'translate', empty, stdin='seven'), 'empty name between the commas')
    small = dict(N=1, d_model=16, d_ff=16, h=2, max_steps=2, warmup_steps=1, max_tokens=512, average_checkpoints=1)
    for name, corpus, more in (('a', ('numbers', 'en', 'de'), {}), ('b', ('numbers', 'de', 'en'), {}), ('c', ('numbers', 'en', 'de'), dict(max_len=70, seed=1))): train(get_recipe('demo', **small, **more), corpus, tmp_path / name)
    assert_user_error(run_in_process(capfd, 'translate', f'{tmp_path}/a,{tmp_path}/b', stdin='seven'), '/a and', '/b cannot form an ensemble: source_lang is en in the first, de in the second')
    assert Translator.from_pretrained([tmp_path / 'a', tmp_path / 'c']).config['model']['max_len'] == 70
