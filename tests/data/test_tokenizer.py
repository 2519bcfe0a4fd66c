"Unused tokens, two vocabularies, any text."
import random
import shutil
from importlib.util import find_spec

import pytest
from helpers import EN_DE, SMALL_OVERRIDES, cli_args, run_in_process, number_lines, assert_success, assert_user_error, write_files

from annotated_transformer.data.number_names import number_speller
from annotated_transformer.data.tokenizer import Tokenizer
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
