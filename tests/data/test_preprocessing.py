"A corpus is tokenised once, under a name that depends on its text and settings; invalid settings and labels are refused."
from dataclasses import asdict, replace

import pytest
from datasets import Dataset, DatasetDict, load_from_disk
from helpers import write_files

from annotated_transformer.data.corpora import load_corpus
from annotated_transformer.data.preprocessing import (
    PreprocessingConfig, _check_labels, _dataset_hash, _train_tokenizer, load_batches, preprocess_corpus)
from annotated_transformer.data.tokenizer import Tokenizer, _tokenizer_files
from annotated_transformer.utils.io import _create_output_dir

CORPUS = 'text', 'en', 'de'
SMALL = PreprocessingConfig(vocab_size=100, byte_fallback=False, max_len=60)

@pytest.fixture(scope='module')
def folder(tmp_path_factory):
    lines = load_corpus('numbers')['train'][:600]
    return write_files(tmp_path_factory.mktemp('text'), train_en='\n'.join(lines['source']), train_de='\n'.join(lines['target']))

@pytest.fixture(scope='module')
def store(folder, tmp_path_factory):
    preprocess_corpus(SMALL, CORPUS, folder, output_dir := tmp_path_factory.mktemp('data') / 'small')
    return output_dir

def test_the_hash_depends_on_settings_and_text(tmp_path):
    write_files(tmp_path, train_en='one\ntwo\n', train_de='eins\nzwei\n')
    key = _dataset_hash(SMALL, CORPUS, tmp_path)
    assert _dataset_hash(PreprocessingConfig(**asdict(SMALL)), CORPUS, tmp_path) == key
    assert len({key, _dataset_hash(replace(SMALL, vocab_size=121), CORPUS, tmp_path), _dataset_hash(replace(SMALL, max_len=50), CORPUS, tmp_path)}) == 3
    write_files(tmp_path, valid_en='seven,', valid_de='sieben')
    assert _dataset_hash(SMALL, CORPUS, tmp_path) != key
    assert _dataset_hash(SMALL, 'numbers') != _dataset_hash(SMALL, ('numbers', 'en', 'fr'))

def test_a_corpus_is_tokenised_once(folder, store):
    changed = (store / 'tokenizer.model').stat().st_mtime_ns
    preprocess_corpus(SMALL, CORPUS, folder, store)
    assert (store / 'tokenizer.model').stat().st_mtime_ns == changed

def test_long_pairs_are_dropped(folder, tmp_path, capfd):
    preprocess_corpus(replace(SMALL, max_len=12), CORPUS, folder, tmp_path / 'short')
    assert 'dropped 453 of 540 pairs with more than max_len=12 tokens' in capfd.readouterr().out

def test_the_tokenizer_of_another_run(folder, store, tmp_path, capfd):
    "The same text has the same ids, under another name; unknown tokens of another text are counted."
    preprocess_corpus(SMALL, CORPUS, folder, tmp_path / 'again', tokenizer_dir=store)
    assert load_from_disk(tmp_path / 'again/train')[:] == load_from_disk(store / 'train')[:]
    assert _dataset_hash(SMALL, CORPUS, folder, store) != _dataset_hash(SMALL, CORPUS, folder)
    french = DatasetDict(train=Dataset.from_dict(dict(en=[f'zero {"o" * i}' for i in range(40)], fr=['zéro'] * 40)))
    preprocess_corpus(SMALL, french, None, tmp_path / 'french', tokenizer_dir=store)
    assert '3.1% of the tokens are unknown to the tokenizer in' in capfd.readouterr().out

def test_a_vocabulary_for_each_side(folder, tmp_path):
    preprocess_corpus(replace(SMALL, src_vocab_size=40), CORPUS, folder, tmp_path / 'two')
    assert [p.name for p in _tokenizer_files(tmp_path / 'two')] == ['tokenizer.model', 'source.model']
    rows = load_from_disk(tmp_path / 'two/train')
    assert max(map(max, rows['src'])) < 40 <= max(map(max, rows['tgt']))

def test_words_as_tokens(folder, tmp_path):
    "Rows that are left over have no word."
    preprocess_corpus(replace(SMALL, preprocessing='words', vocab_size=600, src_vocab_size=120), CORPUS, folder, tmp_path / 'words')
    tokenizer, rows = Tokenizer.load(tmp_path / 'words'), load_from_disk(tmp_path / 'words/train')
    assert (tokenizer.vocab_size, tokenizer.src_tokenizer.vocab_size) == (600, 120)
    tokens = tokenizer.src_tokenizer.convert_ids_to_tokens(rows[21]['src'])
    assert ' '.join(tokens) == '▁three ▁hundred ▁and ▁sixty-one ▁thousand, ▁three ▁hundred ▁and ▁fifty-three </s>'

def test_an_interrupted_process_leaves_nothing(folder, tmp_path):
    tmp = tmp_path / 'again.tmp'
    _create_output_dir(tmp, 'data')
    (tmp / 'half').write_text('cut off')
    preprocess_corpus(SMALL, CORPUS, folder, tmp_path / 'again')
    assert not tmp.exists() and not (tmp_path / 'again/half').exists()

@pytest.mark.parametrize('fields, message', [
    (dict(preprocessing='utf8'), "preprocessing='utf8' is unknown"), (dict(preprocessing='labels'), 'needs src_vocab_size'), (dict(max_len=0), 'max_len=0 must be at least 1')])
def test_invalid_settings(fields, message):
    with pytest.raises(ValueError, match=message): PreprocessingConfig(**fields)

def with_label(label, split='train'):
    rows = Dataset.from_dict(dict(source=['a text'] * 2, target=['one', label]))
    return dict(train=rows.select([0])) | {split: rows}

@pytest.mark.parametrize('label', ['two words', ' one', ''])
def test_labels_that_are_not_one_word(label):
    with pytest.raises(ValueError, match=f'train: {label!r} is not a valid label'): _check_labels(with_label(label))

def test_labels_that_are_not_in_train(capfd):
    _check_labels(with_label('new', 'valid'))
    assert capfd.readouterr().out == 'valid: 1 examples have labels that are not in train and cannot be predicted: new\n'

@pytest.mark.parametrize('vocab_size, src_vocab_size, message', [(4, 40, 'vocab_size=4 is'), (9, 900, 'src_vocab_size=900 is')])
def test_vocabulary_sizes_that_do_not_fit(vocab_size, src_vocab_size, message):
    with pytest.raises(ValueError, match=message):
        _train_tokenizer(PreprocessingConfig('labels', vocab_size, src_vocab_size=src_vocab_size), with_label('two')['train'])

def test_missing_files_of_a_split(tmp_path):
    with pytest.raises(ValueError, match='is missing or corrupt'): load_batches(tmp_path, 512, pad_id=0, seed=0)
