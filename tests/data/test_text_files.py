"Lines, pairs and splits of text files; one and the same cleaning of text in training, translation and scoring; encodings other than UTF-8 are named in one line."
import gzip
import tracemalloc

import pytest
from datasets import Dataset, DatasetDict, load_from_disk
from helpers import write_files

from annotated_transformer.data.number_names import number_speller
from annotated_transformer.data.preprocessing import PreprocessingConfig, preprocess_corpus
from annotated_transformer.data.splits import _hold_out
from annotated_transformer.data.text_files import _drop_blank_pairs, _load_text, _read_split, _read_tsv, _write_arrow, read_lines, read_parallel
from annotated_transformer.inference.evaluation import evaluate
from annotated_transformer.tasks.parsing.parser import _load_gold_trees
from annotated_transformer.utils.io import _strip_invisible

EN, DE = ([*map(number_speller(lang), range(120))] for lang in ('en', 'de'))
ODD = '\u200b{}\ufeff', '\ufeff{}', '{}\u200e ', '\u00a0{}\u00ad'

def ids_of(folder, corpus, data_dir, text):
    preprocess_corpus(PreprocessingConfig(preprocessing=text, vocab_size=100, byte_fallback=False), corpus, data_dir, folder)
    return {split: (part['src'][:], part['tgt'][:]) for split in ('train', 'valid') for part in [load_from_disk(folder / split)]}, (folder / 'tokenizer.model').read_bytes()

@pytest.mark.parametrize('text', ['raw', 'moses_lc'])
@pytest.mark.parametrize('own', [False, True])
def test_training_text_is_cleaned_as_translated_text_is(text, own, tmp_path):
    "Invisible characters at the ends change neither tokenizer nor ids, whether the text comes from files or is given."
    def corpus(name, form):
        sides = dict(en=[form(i, s) for i, s in enumerate(EN)], de=[form(i, s) for i, s in enumerate(DE)])
        if own: return DatasetDict({split: Dataset.from_dict({k: v[part] for k, v in sides.items()}) for split, part in dict(train=slice(100), valid=slice(100, 110), test=slice(110, 120)).items()}), None
        files = {f'{split}_{lang}': '\n'.join(lines[part]) for lang, lines in sides.items() for split, part in dict(train=slice(100), valid=slice(100, 110), test=slice(110, 120)).items()}
        return ('text', 'en', 'de'), write_files(tmp_path / name, **files)
    plain, odd = (ids_of(tmp_path / f'{name}_ids', *corpus(name, form), text) for name, form in dict(
        plain=lambda i, s: s, odd=lambda i, s: ODD[i % 4].format(s)).items())
    assert odd == plain

class Echo:
    "A translator whose translations are the lines given."
    config = dict(target_lang='de', preprocessing='raw', dataset='text')
    def n_best(self, sources, **_): return [[(s, 0.)] for s in sources]
    def postprocess(self, texts): return texts

@pytest.mark.parametrize('end', ['\r', '\v', '\f', '\x1c', '\x85', '\u2028', '\u2029'])
def test_line_ends_within_a_reference_are_spaces_as_in_a_translation(end):
    written = [f'{s} und noch ein Wort' for s in DE[:20]]
    scores, _ = evaluate(Echo(), written, [s.replace(' und', f'{end}und') for s in written])
    assert scores['exact match'] == '100.0 % (20/20)' and scores['sacreBLEU'] > 99.9

@pytest.mark.parametrize('text', ['می\u200c', 'क्\u200d', '\u200dक', '👩\u200d'])
def test_joiners_are_letters(text):
    "ZWNJ and ZWJ decide on the form of the letter beside them; a zero-width space and a byte order mark do not."
    for c in '\u200b', '\ufeff': assert _strip_invisible(f'{c}{text} {c}') == text

def test_gold_trees_are_read_as_other_text(tmp_path):
    (tmp_path / 'latin.txt').write_bytes('(NP (NN tree))\n(NP (NN rôle))\n'.encode('latin-1'))
    (tmp_path / 'none.txt').write_bytes(b'')
    (tmp_path / 'marked.txt').write_bytes('\ufeff(NP (DT a)\r\n  (NN tree))\r\n\ufeff(NP (NN r\xf4le))'.encode())
    with pytest.raises(ValueError, match=r'latin.txt, line 2: not UTF-8'): _load_gold_trees(tmp_path / 'latin.txt')
    with pytest.raises(ValueError, match=r'none.txt is empty'): _load_gold_trees(tmp_path / 'none.txt')
    assert [t.words for t in _load_gold_trees(tmp_path / 'marked.txt')] == [['a', 'tree'], ['rôle']]

@pytest.mark.parametrize('coding', ['utf-16', 'utf-16-le', 'utf-16-be'])
@pytest.mark.parametrize('text', ['ja\n', '\n'.join(DE), '\n'.join(DE) + '\n漢字 你好\n'])
def test_utf16_is_named(coding, text, tmp_path):
    "With a byte order mark and without."
    (tmp_path / 'a.txt').write_bytes(text.encode(coding))
    with pytest.raises(ValueError, match=r'a.txt is UTF-16: convert it to UTF-8 \(iconv -f UTF-16(LE|BE)?\)'): [*read_lines(tmp_path / 'a.txt')]

@pytest.mark.parametrize('content', [b'a\0b\n', b'one\0two\n' * 3, b'\0\n'])
def test_text_with_a_few_zero_bytes_is_read(content, tmp_path):
    (tmp_path / 'a.txt').write_bytes(content)
    assert '\n'.join(read_lines(tmp_path / 'a.txt')) + '\n' == content.decode()

UNUSUAL = ['one\x85still one', 'two\u2028\u2029', 'three\x0b\x0c\x1c\x1d\x1e', 'four\rstill four', '', ' six ', 'sieben ü 😀']

@pytest.mark.parametrize('content', ['\n'.join(UNUSUAL), '\ufeff' + '\r\n'.join(UNUSUAL) + '\r\n'])
def test_lines_end_at_a_line_feed_only(content, tmp_path):
    "With or without gzip, and with or without a line feed at the end."
    write_files(tmp_path, a_txt=content, a_txt_gz=gzip.compress(content.encode()))
    for name in 'a.txt', 'a.txt.gz': assert [*read_lines(tmp_path / name)] == UNUSUAL

@pytest.mark.parametrize('name, content, message', [
    ('a.txt', 'gut\nschön\n'.encode('latin-1'), 'a.txt, line 2: not UTF-8'), ('b.txt', b'', 'b.txt is empty'), ('e.txt', b'\xef\xbb\xbf', 'e.txt is empty'),
    ('c.gz', b'not gzip', 'c.gz is not a complete gzip file'), ('d.gz', gzip.compress(b'cut short' * 9, mtime=0)[:20], 'd.gz is not a complete gzip file')])
def test_unreadable_files_are_named(name, content, message, tmp_path):
    "A wrong encoding, an empty file, a byte order mark alone, a broken gzip file."
    (tmp_path / name).write_bytes(content)
    with pytest.raises(ValueError, match=message): [*read_lines(tmp_path / name)]

def test_pairs_of_two_files(tmp_path):
    "Different lengths are refused, whichever file is the longer one; a shift between equal lengths cannot be noticed."
    write_files(tmp_path, two=b'one\ntwo\n', four=b'eins\nzwei\ndrei\nvier\n', shifted=b'zwei\ndrei')
    two, four, shifted = (tmp_path / name for name in ('two', 'four', 'shifted'))
    assert [*read_parallel(two, two)] == [('one', 'one'), ('two', 'two')] and [*read_parallel(two, shifted)] == [('one', 'zwei'), ('two', 'drei')]
    for pair, lengths in ((two, four), 'two has 2 lines, .*four has 4: '), ((four, two), 'four has 4 lines, .*two has 2: '):
        with pytest.raises(ValueError, match=lengths): [*read_parallel(*pair)]

def test_pairs_of_one_file(tmp_path):
    "Further columns are ignored; a line without a tab is named."
    write_files(tmp_path, a_tsv=b'one\teins\ntwo\tzwei\tCC-BY\n', b_tsv=b'one\teins\ntwo zwei\n')
    assert [*_read_tsv(tmp_path / 'a.tsv')] == [('one', 'eins'), ('two', 'zwei')]
    with pytest.raises(ValueError, match='b.tsv, line 2: no tab'): [*_read_tsv(tmp_path / 'b.tsv')]

NAMES = 'Europarl', 'Europarl', 'news-commentary', 'TED', 'Europarl', 'wiki_v2', 'TED', 'TED', 'a', 'x.y'
SENTENCES = [('the house is old', 'das Haus ist alt')] * 10

def three_columns(names, sentences=SENTENCES): return '\n'.join(f'{name}\t{s}\t{t}' for name, (s, t) in zip(names, sentences))

def test_a_first_column_of_names_is_refused(tmp_path):
    write_files(tmp_path, a_tsv=three_columns(NAMES))
    with pytest.raises(ValueError, match='a.tsv: the first column holds single words, perhaps names; source and target must be the first two columns'): [*_read_tsv(tmp_path / 'a.tsv')]

@pytest.mark.parametrize('rows', [three_columns(NAMES[:9]), three_columns([f'{name}.' for name in NAMES]), three_columns(['他们在家里'] * 10), three_columns(NAMES[:9] + ('a house',)),
    three_columns(NAMES, [*SENTENCES[:9], ('Haus', 'a common word')]), three_columns(NAMES, [*SENTENCES[:9], ('das Haus', 'CC-BY')]), '\n'.join(f'{name}\tdas Haus' for name in NAMES)],
    ids=['nine lines', 'sentences of a word', 'no blanks in Chinese', 'two words', 'a target of a word', 'a comment of a word', 'two columns'])
def test_columns_that_only_resemble_names(tmp_path, rows):
    write_files(tmp_path, a_tsv=rows)
    assert len([*_read_tsv(tmp_path / 'a.tsv')]) >= 9

def test_pairs_with_an_empty_side(capfd):
    assert [*_drop_blank_pairs([('one', 'eins'), ('two', ' '), ('', 'drei')], 'train')] == [('one', 'eins')]
    assert capfd.readouterr().out == 'train: 2 of 3 pairs dropped, one side empty\n'
    with pytest.raises(ValueError, match='valid: no pair'): [*_drop_blank_pairs([('', '')], 'valid')]

PAIRS = [(f'sentence {i}', f'Satz {i}, Fassung {j}') for j in range(3) for i in range(100)]
TSV = '\n'.join(map('\t'.join, PAIRS))

def test_missing_splits_of_a_folder(tmp_path, capfd):
    "Only valid is held out where test is given; one TSV file gives all three splits."
    write_files(tmp_path, train_tsv=TSV, test_en=b'one\n\n', test_de=b'eins\nzwei\n')
    assert {name: len(part) for name, part in _load_text(tmp_path, 'en', 'de').items()} == dict(train=285, valid=15, test=1)
    assert 'test: 1 of 2 pairs dropped' in capfd.readouterr().out
    assert _load_text(tmp_path / 'train.tsv', 'en', 'de')['test'][:] == _hold_out(_write_arrow(PAIRS), ['valid', 'test'], seed=0)['test'][:]

def test_stored_pairs():
    "Written in several batches, the last a short one: the same pairs, in the same order."
    pairs = _write_arrow((str(i), str(-i)) for i in range(25_001))
    assert pairs['source'][:] == [str(i) for i in range(25_001)] and pairs[20_000] == dict(source='20000', target='-20000')

def test_a_changed_file_is_read_again(tmp_path):
    "Nothing is cached."
    write_files(tmp_path, train_tsv=TSV, test_en=b'one\n', test_de=b'eins\n')
    for target in 'eins', 'uno':
        (tmp_path / 'test.de').write_text(target)
        assert _load_text(tmp_path, 'en', 'de')['test'][0] == dict(source='one', target=target)

def test_memory_does_not_grow_with_the_file(tmp_path):
    "The peak of Python's memory, while a file is read and stored, and while one four times as long is."
    def peak(n):
        (tmp_path / 'train.tsv').write_bytes(b'twenty-one\teinundzwanzig\n' * n)
        tracemalloc.start()
        assert len(_read_split([tmp_path / 'train.tsv'], 'train')) == n
        try: return tracemalloc.get_traced_memory()[1]
        finally: tracemalloc.stop()
    small, large = peak(25_000), peak(100_000)
    assert large < 1.1 * small
