"The treebank: signatures, the files of a folder or an archive, its splits, and what is said of a file that is missing or corrupt."
import gzip
import io
import tarfile
import zipfile

import pytest

from annotated_transformer.data.corpora import load_corpus
from annotated_transformer.tasks.parsing.treebank import (_NLTK_SPLIT, _PTB_SPLIT, _build_vocab, _detect_split, _replace_rare_words, _word_signature,
                                                          load_treebank, read_treebank)
from annotated_transformer.tasks.parsing.trees import read_trees

TREE, OTHER = read_trees('(S (NP (DT The) (NN model)) (VP (VBZ reads) (NP (NNS trees)))) (S (NP (DT A) (NN tree)) (VP (VBZ grows)))')
FILES = {1: f'{TREE}\n', 159: str(OTHER), 160: f'\ufeff{OTHER}', 180: 'not (read'}
EXPECTED = dict(train=[TREE, OTHER], development=[OTHER])

def write_tar(path):
    "The files in a compressed archive."
    with tarfile.open(path, 'w:gz') as archive:
        for number, text in FILES.items():
            member = tarfile.TarInfo(f'combined/wsj_{number:04}.mrg')
            member.size = len(text.encode())
            archive.addfile(member, io.BytesIO(text.encode()))
    return path

def write_zip(path):
    "The same files, their names in capitals."
    with zipfile.ZipFile(path, 'w') as archive:
        for number, text in FILES.items(): archive.writestr(f'treebank/combined/WSJ_{number:04}.MRG', text)
    return path

@pytest.fixture
def bank(tmp_path):
    "A treebank of three files with a sentence or three each, one file for each split of NLTK's sample."
    for number, text in {1: f'{TREE}\n{TREE}\n{OTHER}', 150: OTHER, 160: OTHER}.items(): (tmp_path / f'wsj_{number:04}.mrg').write_text(str(text))
    return tmp_path

@pytest.mark.parametrize('word, signature', {'Blumenthal': '*A***al', '47.9': '**0**', 'top-ranked': '***-*ed'}.items())
def test_signatures(word, signature):
    "Capital, digits, hyphen, ending."
    assert _word_signature(word) == signature

def test_the_vocabulary_is_of_words_seen_twice_and_of_shared_signatures():
    "All other words become *."
    vocab = _build_vocab('the model was reading the paper , the reader was writing 3.5 % or 47.9'.split())
    assert vocab == {'the', 'was', '****er', '****ng', '**0**', '****'}
    assert _replace_rare_words('the parser was unearthing 12.5 trees'.split(), vocab) == ['the', '****er', 'was', '****ng', '**0**', '*']

@pytest.mark.parametrize('write, name', [(write_tar, 'wsj.tar.gz'), (write_zip, 'wsj.zip')])
def test_an_archive_is_read(write, name, tmp_path):
    "By its own name and as the only one in a folder; a byte order mark is skipped, files of no split are not read."
    path = write(tmp_path / name)
    assert read_treebank(path) == read_treebank(tmp_path) == EXPECTED

def test_several_archives_are_refused(tmp_path):
    "One has to go."
    write_tar(tmp_path / 'wsj.tar.gz'), write_zip(tmp_path / 'wsj.zip')
    with pytest.raises(ValueError, match='several archives'): read_treebank(tmp_path)

def test_corrupt_archives_are_named(tmp_path):
    "Cut off, or compressed and no archive."
    for write, name in (write_tar, 'cut.tar.gz'), (write_zip, 'cut.zip'):
        path = write(tmp_path / name)
        path.write_bytes(path.read_bytes()[:-60])
    (tmp_path / 'no.tgz').write_bytes(gzip.compress(b'no archive' * 200))
    for name in 'cut.tar.gz', 'cut.zip', 'no.tgz':
        with pytest.raises(ValueError, match=f'{name} is not a complete'): read_treebank(tmp_path / name)

def test_a_file_counts_by_its_number(tmp_path):
    "Those beside an archive are preferred to it, other corpora skipped, a split without files named."
    write_tar(tmp_path / 'wsj.tar.gz')
    (tmp_path / 'wsj_0001.mrg').write_text(str(TREE))
    with pytest.raises(ValueError, match='wsj_0160.mrg to wsj_0179.mrg'): read_treebank(tmp_path)
    assert read_treebank(tmp_path, dict(all=range(10)))['all'] == [TREE]
    (tmp_path / 'sw0002.mrg').write_bytes(b'not (read')                      # telephone calls
    assert read_treebank(tmp_path, dict(all=range(10)))['all'] == [TREE]

def test_a_file_that_is_not_utf_8_is_named(bank):
    "And none of its trees is read."
    (bank / 'wsj_0002.mrg').write_bytes(b'(S (NN \xff))')
    with pytest.raises(ValueError, match='wsj_0002.mrg'): read_treebank(bank)

def test_a_number_that_two_files_have_is_refused(bank, tmp_path_factory):
    "Also in a folder that is a link."
    elsewhere = tmp_path_factory.mktemp('elsewhere')
    (elsewhere / 'wsj_0001.mrg').write_text(str(TREE))
    (bank / 'more').symlink_to(elsewhere)
    with pytest.raises(ValueError, match='more/wsj_0001.mrg and wsj_0001'): read_treebank(bank)

def test_the_split_follows_from_the_numbers(bank):
    "NLTK's sample, or the whole treebank."
    assert _detect_split(bank) == _NLTK_SPLIT
    (bank / 'wsj_0200.mrg').write_text(str(TREE))
    assert _detect_split(bank) == _PTB_SPLIT

def test_a_tagged_source_has_each_tag_behind_its_word(bank):
    "Words that occur twice; the target language may be left out."
    tokens = load_corpus(('treebank', 'tagged', None), bank)['train'][0]['source'].split()
    assert (tokens[::2], tokens[1::2]) == (TREE.words, [f'/{tag}' for tag in TREE.tags])

def test_the_vocabulary_is_that_of_the_training_files(bank):
    "The second sentence is in all three files and in training once: its words stay unknown."
    assert [load_treebank(bank, 'words', 'trees')[split][-1]['source'] for split in ('train', 'valid', 'test')] == ['* * *'] * 3

def test_what_the_data_set_refuses(bank):
    "No folder, other languages, a folder without trees."
    with pytest.raises(ValueError, match='treebank needs data_dir'): load_corpus('treebank')
    with pytest.raises(ValueError, match='no en → de'): load_corpus(('treebank', 'en', 'de'), bank)
    (bank / 'empty').mkdir()
    for read in read_treebank, lambda folder: load_corpus('treebank', folder):
        with pytest.raises(FileNotFoundError, match='neither .mrg files nor an archive'): read(bank / 'empty')
