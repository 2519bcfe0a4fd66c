"Texts and trees at the edges of what the tokenizer, the engines and the scores take."
from importlib.util import find_spec
import pytest
from annotated_transformer.inference.metrics import significance
from annotated_transformer.data.tokenizer import Tokenizer, cut_text, joined
from annotated_transformer.inference.translator import Translator
from annotated_transformer.tasks.parsing.trees import read_trees
from conftest import SMALL, changed, in_here, names, write

def weak(capfd, folder, positions):
    "A run of few steps, whose translations do not end, with few positions."
    write(folder, train_en=names('en'), train_de=names('de'))
    settings = changed(SMALL, f"steps=3 max_len=20 positions={positions} save_every='3 steps'")
    result = in_here(capfd, 'train', '--recipe', 'demo', '--corpus', 'text_en_de', '--data_dir', folder, '--out', folder / 'run', '--set', settings)
    assert result.returncode == 0, result.stderr
    return folder / 'run'

@pytest.mark.parametrize('positions', ['sinusoidal', 'learned'])
def test_a_run_of_blanks_between_words_is_cut(capfd, tmp_path, positions):
    "No part is longer than max_len, however many blanks stand between two words; both engines translate it."
    run, text = weak(capfd, tmp_path, positions), 'nine' + ' ' * 45 + 'eleven.' + ' ' * 30 + 'six'
    t = Translator.from_pretrained(run)
    assert max(map(len, t.encode(t.split_long(text, 20)))) <= 20
    assert t.translate([text])[0]
    if find_spec('ctranslate2'):
        in_here(capfd, 'export', run)
        result = in_here(capfd, 'translate', run, '--engine', 'ctranslate2', stdin=text + '\n')
        assert result.returncode == 0 and result.stdout.count('\n') == 1, result.stderr

def test_cut_text_loses_nothing_and_has_no_part_of_blanks():
    count = lambda texts: [len(text.strip()) + 1 for text in texts]           # as encode counts: ends are bare
    for text in 'b' * 25 + '.  ' + 'cc', '  ' + 'd' * 30 + ' ' * 50, 'e' + ' ' * 40 + 'f  g' + '\u3000' * 9 + 'h':
        parts = cut_text(text, 10, count)
        assert ''.join(parts) == text and max(count(parts)) <= 10 and all(map(str.strip, parts)), parts

def test_a_blank_only_where_the_source_had_one():
    assert joined(['x_', 'y ', 'z'], ['1_', '2', '3'], 'en', 'fr') == '1_2 3'   # no letter at the end, and no blank behind it
    assert joined(['雨。', '雪。'], ['雨。', '雪。'], 'qa', 'qb') == '雨。雪。'     # of languages that nobody knows

@pytest.mark.parametrize('V', [9, 10, 25])
@pytest.mark.parametrize('kind', ['of_words', 'of_characters'])
def test_text_with_the_names_of_unused_tokens(kind, V):
    text = ['w<unused1> <unused0> w', 'w <unused2>']
    t = getattr(Tokenizer, kind)(text, V)
    assert t.vocab_size == V
    if kind == 'of_words': assert t.decode(t.encode(text)) == text

@pytest.mark.parametrize('text', ['( (ROOT {}))', '(TOP (S1 {}))', '((S1 (ROOT {})))', '(ROOT {})'])
def test_roots_that_wrap_a_root(text):
    tree = '(S (NP (N fish)) (VP (V swim)))'
    assert str(read_trees(text.format(tree))[0]) == tree

def test_significance_of_nothing():
    with pytest.raises(ValueError, match='no sentences'): significance([], [], [])

@pytest.mark.skipif(not find_spec('ctranslate2'), reason='needs ctranslate2')
def test_the_log_probability_does_not_depend_on_the_penalty(capfd, tmp_path):
    "Greedy search finds the same with and without a penalty, also where the limit cuts it off: so log_prob must be the same."
    from annotated_transformer.export.engines import CTranslate2
    run = weak(capfd, tmp_path, 'sinusoidal')
    in_here(capfd, 'export', run)
    engine = CTranslate2.from_pretrained(run, device='cpu')
    without, with_ = ([h.log_prob for h, in engine.search(engine.encode(['eighty', 'three']), 1, alpha)] for alpha in (0., .8))
    assert with_ == pytest.approx(without, rel=1e-4)
