"""What comes into a command and what leaves it: packed files, other formats, invisible characters, line ends, paths, languages without
blanks, ensembles, one limit for every engine, and scores that can be."""
import bz2, gzip, io, lzma, os, zipfile
import pytest
from conftest import SMALL, changed, in_here, names, refused, write
from datasets import Dataset, DatasetDict
from annotated_transformer.training import checkpoint as checkpoints
from annotated_transformer.utils import io as files
from annotated_transformer.export.engines import CTranslate2
from annotated_transformer.utils.io import one_line
from annotated_transformer.data.number_names import namer
from annotated_transformer.cli.export import transformer_export
from annotated_transformer.recipe import get_recipe
from annotated_transformer.inference.metrics import bleu, exact, significance
from annotated_transformer.data.tokenizer import (
    Tokenizer, cut_text, joined, sentences_of)
from annotated_transformer.training.trainer import train
from annotated_transformer.inference.translator import Translator
from annotated_transformer.tasks.parsing.trees import read_trees, score_trees

TEXT = ['seven', 'two hundred and twelve', 'ninety-nine', 'one hundred and five']

def zipped(data):
    with zipfile.ZipFile(out := io.BytesIO(), 'w') as z: z.writestr('t.txt', data)
    return out.getvalue()

PACKED = dict(gzip=gzip.compress, xz=lzma.compress, bzip2=bz2.compress)
OTHER = {'a zip archive': zipped, 'a PDF': lambda d: b'%PDF-1.7\n' + d, 'zstd': lambda d: b'\x28\xb5\x2f\xfd' + d, 'control characters': lambda d: bytes(range(256)) * 8 + d,
         'UTF-16': lambda d: d.decode().encode('utf-16'), 'end in CR alone': lambda d: d.replace(b'\n', b'\r')}

@pytest.mark.parametrize('stdin', [False, True])
@pytest.mark.parametrize('how', PACKED)
def test_packed_text_is_text_whatever_its_name(how, stdin, trained, tmp_path, capfd):
    plain = '\n'.join(TEXT) + '\n'
    expected = in_here(capfd, 'translate', trained, stdin=plain).stdout
    write(tmp_path, t_txt=PACKED[how](plain.encode()))
    result = in_here(capfd, 'translate', trained, stdin=PACKED[how](plain.encode())) if stdin else in_here(capfd, 'translate', trained, '--input', tmp_path / 't.txt')
    assert result.stdout == expected and expected.count('\n') == len(TEXT), result.stderr

@pytest.mark.parametrize('what', OTHER)
@pytest.mark.parametrize('command', ['translate', 'stdin', 'evaluate', 'score', 'train'])
def test_what_is_no_text_is_refused(what, command, trained, tmp_path, capfd):
    data = OTHER[what](('\n'.join(TEXT) + '\n').encode())
    write(tmp_path, t_txt=data, r_txt='\n'.join(TEXT), train_en=data, train_de='\n'.join(TEXT))
    args = {'translate': ('translate', trained, '--input', tmp_path / 't.txt'), 'stdin': ('translate', trained),
            'evaluate': ('evaluate', trained, '--src', tmp_path / 't.txt', '--ref', tmp_path / 'r.txt'), 'score': ('score', trained, '--src', tmp_path / 'r.txt', '--ref', tmp_path / 't.txt'),
            'train': ('train', '--recipe', 'demo', '--corpus', 'text_en_de', '--data_dir', tmp_path, '--out', tmp_path / 'run')}[command]
    result = in_here(capfd, *args, stdin=data if command == 'stdin' else '')
    refused(result, what, 'standard input' if command == 'stdin' else 'train.en' if command == 'train' else 't.txt')
    assert not result.stdout.strip() or command == 'train'

def test_a_cut_packed_file_is_named(trained, tmp_path, capfd):
    for how, suffix in (('xz', '.xz'), ('bzip2', '.bz2'), ('gzip', '.gz')):
        (tmp_path / f't{suffix}').write_bytes(PACKED[how](b'seven\n' * 4000)[:-20])
        refused(in_here(capfd, 'translate', trained, '--input', tmp_path / f't{suffix}'), f't{suffix} is not a complete {how} file')

def test_bytes_that_are_not_utf8_are_said_and_lose_no_line(trained, capfd):
    result = in_here(capfd, 'translate', trained, stdin=b'seven\ncaf\xe9 nine\nseven\n')
    lines = result.stdout.split('\n')
    assert len(lines) == 4 and lines[0] == lines[2] and 'standard input, line 2 is not UTF-8' in result.stderr

@pytest.mark.parametrize('odd', ['  {}', '{} ', '\ufeff{}', '\u200b{}\u200b', '\u00a0{}\u2003', '{}\r', '\t{}\t', '\ufeff {} \ufeff'])
def test_what_the_eye_does_not_see_changes_nothing(odd, trained, capfd):
    plain = in_here(capfd, 'translate', trained, stdin='\n'.join(TEXT)).stdout
    assert in_here(capfd, 'translate', trained, stdin='\n'.join(map(odd.format, TEXT))).stdout == plain
    translator = Translator.from_pretrained(trained)
    assert translator.translate([odd.format(t) for t in TEXT[:2]]) == plain.split('\n')[:2]
    assert exact([odd.format('acht')], ['acht']) == '100.0 % (1/1)'

def test_a_mark_at_the_start_of_any_line_is_no_text(tmp_path):
    from annotated_transformer.data.text_files import read_lines
    write(tmp_path, t_txt='\ufeffeins\nzwei\n\ufeffdrei\n')
    assert [*read_lines(tmp_path / 't.txt')] == ['eins', 'zwei', 'drei']

ENDS = ['\n', '\r', '\v', '\f', '\x1c', '\x1d', '\x1e', '\x85', '\u2028', '\u2029', '\r\n']

def test_no_command_writes_a_line_end_within_a_line(tmp_path, capfd):
    "A model that writes line ends, because its targets hold them: as many lines come out as go in, and the scores are those of what is written."
    odd = [f'{namer("de")(i)}{ENDS[i % 11]}x' for i in range(120)]
    splits = DatasetDict({s: Dataset.from_dict(dict(en=[*map(namer('en'), range(120))][part], de=odd[part])) for s, part in dict(train=slice(0, 120), valid=slice(0, 4), test=slice(0, 4)).items()})
    train(get_recipe('demo', "N=1 d_model=64 d_ff=64 vocab_size=100 steps=150 warmup_steps=30 tokens=1024 average=1 max_len=60 save_every='150 steps'"), splits, tmp_path / 'run')
    write(tmp_path, s_txt='\n'.join(map(namer('en'), range(40))), r_txt='\n'.join(map(namer('de'), range(40))))
    result = in_here(capfd, 'evaluate', tmp_path / 'run', '--src', tmp_path / 's.txt', '--ref', tmp_path / 'r.txt', '--out', tmp_path / 'h.txt')
    written = (tmp_path / 'h.txt').read_text()
    assert result.returncode == 0 and len(written.splitlines()) == 40 == written.count('\n') and not set(written) & set(''.join(ENDS[1:10]))
    assert in_here(capfd, 'translate', tmp_path / 'run', '--input', tmp_path / 's.txt').stdout == written
    references = (tmp_path / 'r.txt').read_text().split('\n')
    assert f"sacreBLEU: {bleu(written.splitlines(), references)['sacreBLEU']:.2f}" in result.stdout
    assert [one_line(f'a{end}b') for end in ENDS[:10]] == ['a b'] * 10

def test_a_file_of_the_user_is_not_overwritten(trained, tmp_path, capfd):
    write(tmp_path, s_txt='seven', r_txt='sieben', h_txt='mine')
    refused(in_here(capfd, 'evaluate', trained, '--src', tmp_path / 's.txt', '--ref', tmp_path / 'r.txt', '--out', tmp_path / 'h.txt'), 'h.txt already exists: name another file, or delete it')
    assert (tmp_path / 'h.txt').read_text() == 'mine'

def test_the_home_folder_is_found_in_every_path(trained, tmp_path, capfd, monkeypatch):
    monkeypatch.setenv('HOME', str(tmp_path))
    write(tmp_path / 'texts', train_en=names('en'), train_de=names('de'))
    os.symlink(trained, tmp_path / 'run')
    for run in '~/run', f'{trained},~/run': assert in_here(capfd, 'translate', run, stdin='seven').stdout.strip()
    assert not in_here(capfd, 'train', '--recipe', 'demo', '--corpus', 'text_en_de', '--data_dir=~/texts', '--out=~/new', '--set', SMALL).returncode
    assert (tmp_path / 'new/model.safetensors').is_file()

@pytest.mark.parametrize('name', ['memory::run', 'zip://a::run', 's3://a/run', 'data:run', 'caf\udce9'])
def test_names_that_a_library_would_read_otherwise(name, tmp_path, capfd, monkeypatch):
    monkeypatch.chdir(tmp_path)
    refused(in_here(capfd, 'train', '--out', name, '--set', SMALL), 'a library would read another folder of this name')
    assert not [*tmp_path.iterdir()]

def test_a_loop_of_links_is_one_line(trained, tmp_path, capfd):
    (tmp_path / 'loop').symlink_to('loop')
    for args in (('translate', trained, '--input', tmp_path / 'loop'), ('translate', tmp_path / 'loop'), ('train', '--recipe', 'demo', '--corpus', 'text_en_de', '--data_dir', tmp_path / 'loop', '--out', tmp_path / 'x'),
                 ('train', '--recipe', 'demo', '--corpus', 'hub_en_de', '--data_dir', tmp_path / 'loop', '--out', tmp_path / 'x'), ('train', '--out', tmp_path / 'loop', '--set', SMALL)):
        refused(in_here(capfd, *args), 'loop')
    (tmp_path / 'data').mkdir(); (tmp_path / 'data/self').symlink_to('.')
    refused(in_here(capfd, 'train', '--recipe', 'demo', '--corpus', 'hub_en_de', '--data_dir', tmp_path / 'data', '--out', tmp_path / 'x'), 'data')

def test_members_of_an_ensemble(trained, tmp_path, capfd):
    for empty in f'{trained},', f',{trained}', f'{trained},,{trained}': refused(in_here(capfd, 'translate', empty, stdin='seven'), 'a member of the ensemble has no name')
    small = 'N=1 d_model=16 d_ff=16 h=2 steps=2 warmup_steps=1 tokens=512 average=1'
    for name, corpus, more in (('a', 'numbers_en_de', ''), ('b', 'numbers_de_en', ''), ('c', 'numbers_en_de', 'max_len=70 seed=1')): train(get_recipe('demo', f'{small} {more}'), corpus, tmp_path / name)
    refused(in_here(capfd, 'translate', f'{tmp_path}/a,{tmp_path}/b', stdin='seven'), '/a and', '/b are no ensemble: source is en in the first, de in the second')
    assert Translator.from_pretrained([tmp_path / 'a', tmp_path / 'c']).config['model']['max_len'] == 70

@pytest.fixture(scope='module')
def weak(tmp_path_factory):
    "Runs after three steps, whose translations run on to the limit."
    folder = tmp_path_factory.mktemp('weak')
    def run(name, settings):
        train(get_recipe('demo', f"N=1 d_model=32 d_ff=32 h=2 steps=3 warmup_steps=2 tokens=512 average=1 save_every='3 steps' {settings}"), 'numbers', folder / name)
        transformer_export(str(folder / name))
        return folder / name
    return {name: run(name, settings) for name, settings in dict(usual='', short='max_len=22', learned='max_len=60 positions=learned').items()}

@pytest.mark.parametrize('alpha', [0., .6])
@pytest.mark.parametrize('name', ['usual', 'short', 'learned'])
def test_one_limit_for_every_engine(name, alpha, weak):
    sources = [*map(namer('en'), range(3, 9)), *map(namer('en'), range(121, 124))]
    torch_, other = Translator.from_pretrained(weak[name]), CTranslate2.from_pretrained(weak[name])
    together = other.translate(sources, alpha=alpha)
    assert together == [other.translate([s], alpha=alpha)[0] for s in sources]
    lengths = [[len(ids) for ids in t.tokenizer.encode(t.translate(sources, beam=1, alpha=alpha))] for t in (torch_, other)]
    ours, theirs = ([len(h[0].ids) for h in t.search(t.encode(sources), 1, alpha)] for t in (torch_, other))
    assert ours == theirs and lengths[0] == lengths[1]

@pytest.mark.parametrize('lang, lines', dict(zh=['我们在公园里散步。', '他读了一本书。'], ja=['私たちは公園を歩いた。', '彼は本を読んだ。'], th=['เราเดินในสวน', 'เขาอ่านหนังสือ'], zh_TW=['今天很冷。', '明天會下雨。']).items())
def test_a_perfect_translation_has_no_score_of_zero(lang, lines):
    scores = bleu(lines * 9, lines * 9, lang)
    assert all(value > 99.9 for value in scores.values() if isinstance(value, float)) and not [name for name in scores if 'tokenised' in name]

def test_scores_that_can_be():
    right = ['a cat sat on the mat today', 'no dog ran over the red road'] * 5
    low, high = bleu(['the mat a'] * 10, right)['95 % interval'].split(' to ')
    assert 0 <= float(low) <= float(high) <= 100
    assert significance(right, [r + '  ' for r in right], right) == (0, 1) and significance(right, right, right) == (0, 1)
    with pytest.raises(ValueError, match='no sentences to score'): bleu([], [])

def test_text_without_blanks_is_cut_and_joined_without_them():
    text = '我们在公园里散步。他读了一本书。今天很冷。'
    parts = cut_text(text, 9, lambda ts: [*map(len, ts)])
    assert ''.join(parts) == text and joined(parts, parts, 'zh', 'zh') == text
    english = 'We walked.  He read a book. It is cold.'
    assert ''.join(sentences_of(english)) == english and joined(sentences_of(english), ['一。', '二。', '三。'], 'en', 'zh') == '一。二。三。'
    assert joined(parts, ['We walk.', 'He reads.', 'Cold.'], 'zh-CN', 'en') == 'We walk. He reads. Cold.'

def test_words_by_the_count_of_sentencepiece():
    lines = ['the <unk> sat on <unk> mats', 'a  double blank and </s> in it'] * 3
    with pytest.raises(ValueError, match='use at least') as e: Tokenizer.of_words(lines, 6)
    least = int(str(e.value).split('use at least ')[1])
    for V in (least, least + 1, least + 20): assert Tokenizer.of_words(lines, V).vocab_size == V

def test_n_best_holds_no_text_twice(trained):
    found = Translator.from_pretrained(trained).n_best(TEXT, n=4, beam=8)
    for best in found: assert len(best) == 4 and len({text for text, _ in best}) == 4

def test_a_disk_that_refuses_the_mean(trained, tmp_path, capfd, monkeypatch):
    import shutil
    run = shutil.copytree(trained, tmp_path / 'a run')
    before = (run / 'model.safetensors').read_bytes()
    def full(*_, **__): raise checkpoints.safetensors.SafetensorError('Error while serializing: I/O error: No space left on device (os error 28)')
    monkeypatch.setattr(checkpoints.safetensors.torch, 'save_file', full)
    refused(in_here(capfd, 'average', run), 'make room on the disk', f"transformer_average '{run}'")
    assert (run / 'model.safetensors').read_bytes() == before and not [*run.glob('*.tmp')]

def test_a_full_disk_leaves_nothing_behind(tmp_path, monkeypatch):
    from pathlib import Path
    write_bytes = Path.write_bytes
    def half(self, data): write_bytes(self, data[:3]); raise OSError(28, 'No space left on device')
    monkeypatch.setattr(Path, 'write_bytes', half)
    with pytest.raises(OSError): files.replace_text(tmp_path / 'page.html', 'long text')
    assert not [*tmp_path.iterdir()]

def test_a_root_that_only_wraps_counts_in_no_file():
    bare_tree, (predicted,) = '(S (NP (PRP We)) (VP (VBP parse)))', read_trees('(S (NP (PRP We)) (VP (VBP parse)))')
    for root in '({})', '(TOP {})', '(ROOT {})', '(S1 {})':
        gold = read_trees(root.format(bare_tree))
        scores = score_trees([predicted], gold)
        assert scores['F1'] == scores['recall'] == 100

def test_quotation_marks_are_those_of_the_treebank():
    from annotated_transformer.cli.parse import as_in_treebank
    assert as_in_treebank(['"', 'Go', '"', ',', '“', 'he', '”', '(', "n't"]) == ['``', 'Go', "''", ',', '``', 'he', "''", '-LRB-', "n't"]

def test_what_is_said_when_a_run_begins(tmp_path, capfd):
    assert 'the learning rate rises to the end: warmup_steps=5 is not less than steps=4' in in_here(capfd, 'train', '--out', tmp_path / 'a', '--set', changed(SMALL, 'steps=4 warmup_steps=5')).stderr
    settings = changed(SMALL, 'steps=4 warmup_steps=1 schedule=cosine')
    assert not in_here(capfd, 'train', '--out', tmp_path / 'b', '--set', settings).returncode
    said = in_here(capfd, 'train', '--out', tmp_path / 'b', '--resume', '--set', changed(settings, 'steps=8')).stderr
    assert 'steps=4 → 8: with schedule=cosine the learning rate of update 4 was 0.00e+00 and is' in said

def test_fp16_on_a_cpu_is_refused(tmp_path, capfd, monkeypatch):
    from accelerate.state import AcceleratorState
    AcceleratorState._reset_state(True)
    monkeypatch.setenv('ACCELERATE_MIXED_PRECISION', 'fp16')
    try: refused(in_here(capfd, 'train', '--out', tmp_path / 'a', '--set', SMALL), 'fp16 needs a GPU')
    finally: AcceleratorState._reset_state(True)

def rewritten(packed, how):
    "Packed bytes of which the end is missing, or the middle is spoilt, or other bytes follow."
    half = len(packed) // 2
    return dict(cut=packed[:half], spoilt=packed[:half] + bytes(30) + packed[half + 30:])[how]

@pytest.mark.parametrize('fault', ['cut', 'spoilt'])
@pytest.mark.parametrize('how', PACKED)
def test_a_packed_stream_that_is_not_whole_is_one_line(how, fault, trained, tmp_path, capfd):
    data = rewritten(PACKED[how](names('en', 3000).encode()), fault)
    write(tmp_path, lines_txt=data, r_txt='eins\n')
    refused(in_here(capfd, 'translate', trained, '--beam', 1, stdin=data), f'standard input is not a complete {how} file')
    refused(in_here(capfd, 'score', trained, '--src', tmp_path / 'lines.txt', '--ref', tmp_path / 'lines.txt'), f'lines.txt is not a complete {how} file')

def test_the_ends_of_a_line_are_found_in_one_pass():
    from time import perf_counter
    blanks = ' \u00a0' * 50_000
    begin = perf_counter()
    assert files.bare(f'{blanks}a{blanks}b{blanks}') == f'a{blanks}b' and perf_counter() - begin < 1
    assert not [c for c in map(chr, range(0x10000)) if c.isspace() and files.bare(c)]
    for c in '\u00ad\u061c\u202a\u202e\u2066\u2069\u180e\0\x7f\x9f': assert files.bare(f'{c}a{c}b{c}') == f'a{c}b'
    for text in '\u0600a', 'क्\u0301', '❤\ufe0f', '\U0001f3f4\U000e0067\U000e007f': assert files.bare(text) == text    # these can be seen

def test_of_a_line_without_a_visible_character_nothing_is_translated(trained, tmp_path, capfd):
    lines = ['\u200b', '\u2066\u2069', '\u00ad', '\x02', '\ufeff\ufeff', 'nine']
    written = Translator.from_pretrained(trained).translate(lines)
    assert written[:5] == [''] * 5 and written[5]
    assert in_here(capfd, 'translate', trained, stdin='\n'.join(lines)).stdout.split('\n')[:6] == written

def test_a_file_beside_the_one_to_be_written_is_not_lost(trained, tmp_path, capfd):
    write(tmp_path, s_txt='seven', h_tmp='mine', page_html='mine')
    texts = '--src', tmp_path / 's.txt', '--ref', tmp_path / 's.txt'
    refused(in_here(capfd, 'evaluate', trained, *texts, '--out', tmp_path / 'h'), 'h.tmp already exists')
    refused(in_here(capfd, 'live', trained, tmp_path / 'page.html'), 'page.html already exists: name another file, or delete it')
    refused(in_here(capfd, 'live', trained, tmp_path / 'none/page.html'), 'there is no folder')
    assert (tmp_path / 'h.tmp').read_text() == (tmp_path / 'page.html').read_text() == 'mine'
