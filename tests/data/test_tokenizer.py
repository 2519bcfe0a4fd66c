"Unused tokens, two vocabularies, any text."
import pickle
import random
import re
import shutil
from importlib.util import find_spec

import pytest
from helpers import EN_DE, SMALL_OVERRIDES, cli_args, run_in_process, number_lines, assert_success, assert_user_error, write_files

from annotated_transformer.data.corpora import load_corpus
from annotated_transformer.data.number_names import number_speller
from annotated_transformer.data.tokenizer import Tokenizer, _sample_training_text, _train_bpe
from annotated_transformer.inference.translator import Translator


def test_words_by_the_count_of_sentencepiece():
    lines = ['the <unk> sat on <unk> mats', 'a  double blank and </s> in it'] * 3
    with pytest.raises(ValueError, match='use at least') as e: Tokenizer.train_word_level(lines, 6)
    least = int(str(e.value).split('use at least ')[1])
    for V in (least, least + 1, least + 20): assert Tokenizer.train_word_level(lines, V).vocab_size == V


def test_two_vocabularies(capfd, tmp_path):
    "Source and target with tokens of their own: trained, resumed, translated, exported; a tokenizer that is not its own is refused."
    text = write_files(tmp_path / 'text', train_en=number_lines('en'), train_de=number_lines('de'))
    out, settings = tmp_path / 'out', SMALL_OVERRIDES | dict(src_vocab_size=60)
    for steps in 2, 4: assert_success(run_in_process(capfd, 'train', '--recipe', 'demo', *EN_DE, '--data_dir', text, '--output_dir', out, '--resume', *cli_args(settings | dict(max_steps=steps))))
    assert Translator.from_pretrained(out, device='cpu').models[0].src_embed.num_embeddings == 60
    write_files(tmp_path, lines='seven\n')
    assert_success(run_in_process(capfd, 'translate', out, '--input', tmp_path / 'lines'))
    assert_success(run_in_process(capfd, 'export', out, '--format', 'safetensors'))
    exported = assert_success(run_in_process(capfd, 'translate', out / 'safetensors', '--input', tmp_path / 'lines')).stdout
    assert exported == assert_success(run_in_process(capfd, 'translate', out, '--input', tmp_path / 'lines')).stdout
    if find_spec('ctranslate2'):
        assert_success(run_in_process(capfd, 'export', out))
        assert_success(run_in_process(capfd, 'translate', out, '--input', tmp_path / 'lines', '--engine', 'ctranslate2', '--n_best', '2', '--print_scores'))
    shutil.copy(out / 'tokenizer.model', out / 'source.model')
    assert_user_error(run_in_process(capfd, 'translate', out, '--input', tmp_path / 'lines'), 'source.model does not match config.json')

@pytest.mark.parametrize('V', [9, 10, 25])
@pytest.mark.parametrize('kind', ['train_word_level', 'train_char_level'])
def test_text_with_the_names_of_unused_tokens(kind, V):
    text = ['w<unused1> <unused0> w', 'w <unused2>']
    t = getattr(Tokenizer, kind)(text, V)
    assert t.vocab_size == V
    if kind == 'train_word_level': assert t.decode(t.encode(text)) == text

@pytest.mark.parametrize('seed', range(3))
def test_any_text_comes_back(seed):
    "With bytes for what training never saw, decoding undoes encoding, blanks at the ends and line separators included."
    rng = random.Random(seed)
    tokenizer = Tokenizer.train([number_speller('en')(n) for n in range(300)], 320)
    alphabet = [chr(c) for c in (*range(32, 127), *range(0xa0, 0x250), *range(0x4e00, 0x4e40), 0x1f600, 0x200d, 0x2028)]
    texts = [''.join(rng.choices(alphabet, k=rng.randrange(30))) for _ in range(200)] + ['', ' ', 'a  b', ' a', 'a ']
    ids = tokenizer.encode(texts)
    assert tokenizer.decode(ids) == texts
    assert all(3 < i < tokenizer.vocab_size for row in ids for i in row)               # no special token

GERMAN = [number_speller('de')(n) for n in range(1000)]
LEAST = 4 + len(set(''.join(GERMAN)) | {'▁'})                 # special tokens, characters, the mark of a space
UNSEEN = ['', ' ', '  two  spaces ', 'Füße', 'ΑΩ я 你好', '😀👩\u200d👩', 'a\x85b\u2028c\x0b\x1c\x00', '\ufeff', '<s> </s> <pad> <0x41>']

@pytest.fixture(scope='module')
def german(): return Tokenizer.train(GERMAN, 200, byte_fallback=False)

def test_a_vocabulary_that_does_not_suit_the_text_is_refused():
    "The error names the size that does; that size works."
    for size, fallback, message in (9999, False, 'vocab_size=9999 is too large for this text: use at most 687'), (LEAST - 1, False, f'use at least {LEAST}'), \
                                   (200, True, f'use at least {LEAST + 256}'):
        with pytest.raises(ValueError, match=message): _train_bpe(GERMAN, size, fallback)
    with pytest.raises(ValueError, match='no text'): _train_bpe([], 200, False)
    for size in LEAST, 687: assert Tokenizer(_train_bpe(GERMAN, size, False)).vocab_size == size

def test_the_same_text_gives_the_same_model():
    "Byte for byte."
    assert _train_bpe(GERMAN, 687, False) == _train_bpe(GERMAN, 687, False)

def test_a_larger_vocabulary_makes_no_sequence_longer():
    "And English ends at one token for each word, hyphen and comma."
    corpus = load_corpus('numbers')
    text = [*corpus['train']['source'], *corpus['train']['target']]
    tokenizers = [Tokenizer.train(text, V, byte_fallback=False) for V in (40, 60, 100, 200, 400, 800)]
    for side in 'source', 'target':
        tokens = [sum(map(len, t.encode(corpus['test'][side]))) for t in tokenizers]
        assert tokens == sorted(tokens, reverse=True)
        if side == 'source': assert tokens[-1] == sum(len(re.findall('[a-z]+|[-,]', s)) for s in corpus['test'][side])

def test_decoding_skips_the_special_tokens(german):
    "pad, bos and eos, with and without bytes."
    assert (german.pad_id, german.unk_id, german.bos_id, german.eos_id, german.vocab_size) == (0, 1, 2, 3, 200)
    for t, text in (german, GERMAN), (Tokenizer.train(GERMAN, 500), UNSEEN):
        assert t.decode([[t.bos_id, *ids, t.eos_id, t.pad_id, t.pad_id] for ids in t.encode(text)]) == text

def test_the_mark_of_a_space_comes_back_as_a_space(german):
    "U+2581 is the one character that is lost; without bytes an unseen character is unk; a line of 22 kB is learnt from."
    assert Tokenizer.train(GERMAN, 500).decode(Tokenizer.train(GERMAN, 500).encode(['a▁b'])) == ['a b']
    assert german.encode(['😀'])[0][-1] == german.unk_id
    lines = ['a short line', ' '.join(f'{n} zebras' for n in range(2000))]
    assert Tokenizer.train(lines, 60, False).encode(['zebra'])[0].count(1) == 0

def test_a_copy_tokenises_alike(german, tmp_path):
    "From disk, and from another process."
    german.save(tmp_path)
    for copy in Tokenizer.load(tmp_path), pickle.loads(pickle.dumps(german)): assert copy.encode(GERMAN) == german.encode(GERMAN)

def test_a_file_that_is_no_tokenizer_is_refused(german, tmp_path):
    "Also one without a pad token, and a string where a list of sentences belongs."
    with pytest.raises(FileNotFoundError, match='absent a run directory?'): Tokenizer.load(tmp_path / 'absent')
    with pytest.raises(ValueError, match='not a SentencePiece model'): Tokenizer(b'something else')
    with pytest.raises(ValueError, match='lacks one of the tokens pad'): Tokenizer(_train_bpe(GERMAN, 100, False, pad_id=-1))
    with pytest.raises(TypeError, match='a list of sentences'): german.encode('einundzwanzig')

def test_training_text_is_spread_evenly():
    "A small corpus is used whole, a larger one in equal steps."
    train = load_corpus('numbers')['train']
    assert sorted(_sample_training_text(train)) == sorted([*train['source'], *train['target']])
    steps = train.select(range(0, 20_000, 2500))
    assert [*_sample_training_text(train, 8)] == [*steps['source'], *steps['target']]

def test_sizes_of_word_and_character_tokenizers():
    "Too few rows for the words are refused; no text is refused."
    with pytest.raises(ValueError, match='use at least 7'): Tokenizer.train_word_level(['a b c'], 6)
    with pytest.raises(ValueError, match='no text'): Tokenizer.train_char_level([], 12)
