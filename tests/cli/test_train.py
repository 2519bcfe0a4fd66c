"transformer_train: its last line, its recipe."
import json

from helpers import SMALL_OVERRIDES, cli_args, run_in_process, number_lines, assert_user_error, write_files

from annotated_transformer.run_directory import RunDirectory


def test_the_last_line_names_the_command_for_the_run_and_can_be_pasted(classifier):
    folder, line = classifier
    assert 'validation accuracy' in line and f"Next: transformer_classify '{folder}' --input FILE" in line, line

def test_text_of_ones_own_needs_a_recipe(tmp_path, capfd):
    write_files(tmp_path, train_en=number_lines('en'), train_fr=number_lines('de'))
    assert_user_error(run_in_process(capfd, 'train', '--dataset', 'text', '--source_lang', 'en', '--target_lang', 'fr', '--data_dir', tmp_path, '--output_dir', tmp_path / 'run'), 'dataset text needs a --recipe', 'multi30k_tiny')
    assert not (tmp_path / 'run').exists()

def test_a_run_is_resumed_with_its_own_recipe(tmp_path, capfd):
    write_files(tmp_path, train_en=number_lines('en'), train_fr=number_lines('de'))
    args = '--dataset', 'text', '--source_lang', 'en', '--target_lang', 'fr', '--data_dir', tmp_path, '--output_dir', tmp_path / 'run'
    assert not run_in_process(capfd, 'train', '--recipe', 'demo', *cli_args(SMALL_OVERRIDES), *args).returncode
    assert not run_in_process(capfd, 'train', '--resume', '--max_steps', 4, *args).returncode
    config = json.loads((tmp_path / 'run/config.json').read_text())
    assert config['model']['d_model'] == 32 and RunDirectory(tmp_path / 'run').metrics()[-1]['step'] == 4
