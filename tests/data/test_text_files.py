"One and the same cleaning of text in training, translation and scoring; encodings other than UTF-8 are named in one line."
import pytest
from datasets import Dataset, DatasetDict, load_from_disk
from helpers import write_files

from annotated_transformer.data.number_names import number_speller
from annotated_transformer.data.preprocessing import PreprocessingConfig, preprocess_corpus
from annotated_transformer.data.text_files import read_lines
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
