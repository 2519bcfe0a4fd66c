"What comes into a command and what leaves it: packed files, other formats, invisible characters, line ends, paths."
import bz2
import gzip
import io
import lzma
import os
import zipfile

import pytest
from datasets import Dataset, DatasetDict
from helpers import EN_DE, SMALL_OVERRIDES, cli_args, run_in_process, number_lines, assert_success, assert_user_error, write_files

from annotated_transformer.cli.classify import transformer_classify
from annotated_transformer.cli.parse import transformer_parse
from annotated_transformer.cli.translate import transformer_translate
from annotated_transformer.data.number_names import number_speller
from annotated_transformer.inference.evaluation import _format_exact_match
from annotated_transformer.inference.metrics import score_translations
from annotated_transformer.inference.translator import Translator
from annotated_transformer.recipe import get_recipe
from annotated_transformer.training.trainer import train
from annotated_transformer.utils.io import _replace_newlines

TEXT = ['seven', 'two hundred and twelve', 'ninety-nine', 'one hundred and five']

def zipped(data):
    with zipfile.ZipFile(out := io.BytesIO(), 'w') as z: z.writestr('t.txt', data)
    return out.getvalue()

def test_a_dash_is_standard_input(trained, classifier, capfd, monkeypatch):
    for command, run, line in ('translate', trained, 'seven'), ('classify', classifier[0], 'rain at last'):
        plain, dash = (assert_success(run_in_process(capfd, command, run, *more, stdin=line + '\n')).stdout for more in ((), ('--input', '-')))
        assert plain == dash != ''
    monkeypatch.setattr('sys.stdin', None)
    for command in transformer_translate, transformer_parse, transformer_classify:
        with pytest.raises(ValueError, match='standard input is closed: give --input FILE'): command('no run', input='-')

PACKED = dict(gzip=gzip.compress, xz=lzma.compress, bzip2=bz2.compress)

OTHER = {'a zip archive': zipped, 'a PDF': lambda d: b'%PDF-1.7\n' + d, 'zstd': lambda d: b'\x28\xb5\x2f\xfd' + d, 'control characters': lambda d: bytes(range(256)) * 8 + d,
         'UTF-16': lambda d: d.decode().encode('utf-16'), 'CR line endings': lambda d: d.replace(b'\n', b'\r')}

@pytest.mark.parametrize('stdin', [False, True])
@pytest.mark.parametrize('how', PACKED)
def test_packed_text_is_text_whatever_its_name(how, stdin, trained, tmp_path, capfd):
    plain = '\n'.join(TEXT) + '\n'
    expected = run_in_process(capfd, 'translate', trained, stdin=plain).stdout
    write_files(tmp_path, t_txt=PACKED[how](plain.encode()))
    result = run_in_process(capfd, 'translate', trained, stdin=PACKED[how](plain.encode())) if stdin else run_in_process(capfd, 'translate', trained, '--input', tmp_path / 't.txt')
    assert result.stdout == expected and expected.count('\n') == len(TEXT), result.stderr

@pytest.mark.parametrize('what', OTHER)
@pytest.mark.parametrize('command', ['translate', 'stdin', 'evaluate', 'score', 'train'])
def test_what_is_no_text_is_refused(what, command, trained, tmp_path, capfd):
    data = OTHER[what](('\n'.join(TEXT) + '\n').encode())
    write_files(tmp_path, t_txt=data, r_txt='\n'.join(TEXT), train_en=data, train_de='\n'.join(TEXT))
    args = {'translate': ('translate', trained, '--input', tmp_path / 't.txt'), 'stdin': ('translate', trained),
            'evaluate': ('evaluate', trained, '--src', tmp_path / 't.txt', '--ref', tmp_path / 'r.txt'), 'score': ('score', trained, '--src', tmp_path / 'r.txt', '--ref', tmp_path / 't.txt'),
            'train': ('train', '--recipe', 'demo', *EN_DE, '--data_dir', tmp_path, '--output_dir', tmp_path / 'run')}[command]
    result = run_in_process(capfd, *args, stdin=data if command == 'stdin' else '')
    assert_user_error(result, what, 'standard input' if command == 'stdin' else 'train.en' if command == 'train' else 't.txt')
    assert not result.stdout.strip() or command == 'train'

def test_a_cut_packed_file_is_named(trained, tmp_path, capfd):
    for how, suffix in (('xz', '.xz'), ('bzip2', '.bz2'), ('gzip', '.gz')):
        (tmp_path / f't{suffix}').write_bytes(PACKED[how](b'seven\n' * 4000)[:-20])
        assert_user_error(run_in_process(capfd, 'translate', trained, '--input', tmp_path / f't{suffix}'), f't{suffix} is not a complete {how} file')

def test_bytes_that_are_not_utf8_are_said_and_lose_no_line(trained, capfd):
    result = run_in_process(capfd, 'translate', trained, stdin=b'seven\ncaf\xe9 nine\nseven\n')
    lines = result.stdout.split('\n')
    assert len(lines) == 4 and lines[0] == lines[2] and 'standard input, line 2 is not UTF-8' in result.stderr

@pytest.mark.parametrize('odd', ['  {}', '{} ', '\ufeff{}', '\u200b{}\u200b', '\u00a0{}\u2003', '{}\r', '\t{}\t', '\ufeff {} \ufeff'])
def test_what_the_eye_does_not_see_changes_nothing(odd, trained, capfd):
    plain = run_in_process(capfd, 'translate', trained, stdin='\n'.join(TEXT)).stdout
    assert run_in_process(capfd, 'translate', trained, stdin='\n'.join(map(odd.format, TEXT))).stdout == plain
    translator = Translator.from_pretrained(trained)
    assert translator.translate([odd.format(t) for t in TEXT[:2]]) == plain.split('\n')[:2]
    assert _format_exact_match([odd.format('acht')], ['acht']) == '100.0 % (1/1)'

def test_a_mark_at_the_start_of_any_line_is_no_text(tmp_path):
    from annotated_transformer.data.text_files import read_lines
    write_files(tmp_path, t_txt='\ufeffeins\nzwei\n\ufeffdrei\n')
    assert [*read_lines(tmp_path / 't.txt')] == ['eins', 'zwei', 'drei']

ENDS = ['\n', '\r', '\v', '\f', '\x1c', '\x1d', '\x1e', '\x85', '\u2028', '\u2029', '\r\n']

def test_no_command_writes_a_line_end_within_a_line(tmp_path, capfd):
    "A model that writes line ends, because its targets hold them: as many lines come out as go in, and the scores are those of what is written."
    odd = [f'{number_speller("de")(i)}{ENDS[i % 11]}x' for i in range(120)]
    splits = DatasetDict({s: Dataset.from_dict(dict(en=[*map(number_speller('en'), range(120))][part], de=odd[part])) for s, part in dict(train=slice(0, 120), valid=slice(0, 4), test=slice(0, 4)).items()})
    train(get_recipe('demo', N=1, d_model=64, d_ff=64, vocab_size=100, max_steps=150, warmup_steps=30, max_tokens=1024, average_checkpoints=1, max_len=60, save_every='150 steps'), splits, tmp_path / 'run')
    write_files(tmp_path, s_txt='\n'.join(map(number_speller('en'), range(40))), r_txt='\n'.join(map(number_speller('de'), range(40))))
    result = run_in_process(capfd, 'evaluate', tmp_path / 'run', '--src', tmp_path / 's.txt', '--ref', tmp_path / 'r.txt', '--output', tmp_path / 'h.txt')
    written = (tmp_path / 'h.txt').read_text()
    assert result.returncode == 0 and len(written.splitlines()) == 40 == written.count('\n') and not set(written) & set(''.join(ENDS[1:10]))
    assert run_in_process(capfd, 'translate', tmp_path / 'run', '--input', tmp_path / 's.txt').stdout == written
    references = (tmp_path / 'r.txt').read_text().split('\n')
    assert f"sacreBLEU: {score_translations(written.splitlines(), references)['sacreBLEU']:.2f}" in result.stdout
    assert [_replace_newlines(f'a{end}b') for end in ENDS[:10]] == ['a b'] * 10

def test_a_file_of_the_user_is_not_overwritten(trained, tmp_path, capfd):
    write_files(tmp_path, s_txt='seven', r_txt='sieben', h_txt='mine')
    assert_user_error(run_in_process(capfd, 'evaluate', trained, '--src', tmp_path / 's.txt', '--ref', tmp_path / 'r.txt', '--output', tmp_path / 'h.txt'), 'h.txt already exists: choose another file or delete it')
    assert (tmp_path / 'h.txt').read_text() == 'mine'

def test_the_home_folder_is_found_in_every_path(trained, tmp_path, capfd, monkeypatch):
    monkeypatch.setenv('HOME', str(tmp_path))
    write_files(tmp_path / 'texts', train_en=number_lines('en'), train_de=number_lines('de'))
    os.symlink(trained, tmp_path / 'run')
    for run in '~/run', f'{trained},~/run': assert run_in_process(capfd, 'translate', run, stdin='seven').stdout.strip()
    assert not run_in_process(capfd, 'train', '--recipe', 'demo', *EN_DE, '--data_dir=~/texts', '--output_dir=~/new', *cli_args(SMALL_OVERRIDES)).returncode
    assert (tmp_path / 'new/model.safetensors').is_file()

@pytest.mark.parametrize('name', ['memory::run', 'zip://a::run', 's3://a/run', 'data:run', 'caf\udce9'])
def test_names_that_a_library_would_read_otherwise(name, tmp_path, capfd, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert_user_error(run_in_process(capfd, 'train', '--output_dir', name, *cli_args(SMALL_OVERRIDES)), 'this name would be read as a URL')
    assert not [*tmp_path.iterdir()]

def test_a_loop_of_links_is_one_line(trained, tmp_path, capfd):
    (tmp_path / 'loop').symlink_to('loop')
    for args in (('translate', trained, '--input', tmp_path / 'loop'), ('translate', tmp_path / 'loop'), ('train', '--recipe', 'demo', *EN_DE, '--data_dir', tmp_path / 'loop', '--output_dir', tmp_path / 'x'),
                 ('train', '--recipe', 'demo', '--dataset', 'hub', '--source_lang', 'en', '--target_lang', 'de', '--data_dir', tmp_path / 'loop', '--output_dir', tmp_path / 'x'), ('train', '--output_dir', tmp_path / 'loop', *cli_args(SMALL_OVERRIDES))):
        assert_user_error(run_in_process(capfd, *args), 'loop')
    (tmp_path / 'data').mkdir(); (tmp_path / 'data/self').symlink_to('.')
    assert_user_error(run_in_process(capfd, 'train', '--recipe', 'demo', '--dataset', 'hub', '--source_lang', 'en', '--target_lang', 'de', '--data_dir', tmp_path / 'data', '--output_dir', tmp_path / 'x'), 'data')

def rewritten(packed, how):
    "Packed bytes of which the end is missing, or the middle is spoilt, or other bytes follow."
    half = len(packed) // 2
    return dict(cut=packed[:half], spoilt=packed[:half] + bytes(30) + packed[half + 30:])[how]

@pytest.mark.parametrize('fault', ['cut', 'spoilt'])
@pytest.mark.parametrize('how', PACKED)
def test_a_packed_stream_that_is_not_whole_is_one_line(how, fault, trained, tmp_path, capfd):
    data = rewritten(PACKED[how](number_lines('en', 3000).encode()), fault)
    write_files(tmp_path, lines_txt=data, r_txt='eins\n')
    assert_user_error(run_in_process(capfd, 'translate', trained, '--beam', 1, stdin=data), f'standard input is not a complete {how} file')
    assert_user_error(run_in_process(capfd, 'score', trained, '--src', tmp_path / 'lines.txt', '--ref', tmp_path / 'lines.txt'), f'lines.txt is not a complete {how} file')

def test_of_a_line_without_a_visible_character_nothing_is_translated(trained, tmp_path, capfd):
    lines = ['\u200b', '\u2066\u2069', '\u00ad', '\x02', '\ufeff\ufeff', 'nine']
    written = Translator.from_pretrained(trained).translate(lines)
    assert written[:5] == [''] * 5 and written[5]
    assert run_in_process(capfd, 'translate', trained, stdin='\n'.join(lines)).stdout.split('\n')[:6] == written

def test_a_file_beside_the_one_to_be_written_is_not_lost(trained, tmp_path, capfd):
    write_files(tmp_path, s_txt='seven', h_tmp='mine', page_html='mine')
    texts = '--src', tmp_path / 's.txt', '--ref', tmp_path / 's.txt'
    assert_user_error(run_in_process(capfd, 'evaluate', trained, *texts, '--output', tmp_path / 'h'), 'h.tmp already exists')
    assert_user_error(run_in_process(capfd, 'live', trained, tmp_path / 'page.html'), 'page.html already exists: choose another file or delete it')
    assert_user_error(run_in_process(capfd, 'live', trained, tmp_path / 'none/page.html'), 'does not exist')
    assert (tmp_path / 'h.tmp').read_text() == (tmp_path / 'page.html').read_text() == 'mine'
