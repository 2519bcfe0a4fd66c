"Text in, text out: the committed translator, long text."
from importlib.util import find_spec

import pytest
import torch
from helpers import train_undertrained_run, run_in_process
from pages import ROOT

from annotated_transformer.data.long_texts import _split_long_text
from annotated_transformer.inference.translator import Translator

def test_the_committed_translator_opens():
    "The averaged weights of `multi30k_tiny`, seed 0, in half precision: opened in single, and they translate."
    translator = Translator.from_pretrained(ROOT / 'nbs/results/multi30k_en_de')
    assert translator.models[0].src_embed.weight.dtype == torch.float32
    assert translator.translate(['A man in an orange hat starring at something.'], beam=5) == ['ein mann mit einem orangefarbenen hut starrt auf etwas.']

@pytest.mark.parametrize('positions', ['sinusoidal', 'learned'])
def test_a_run_of_blanks_between_words_is_cut(capfd, tmp_path, positions):
    "No part is longer than max_len, however many blanks stand between two words; both engines translate it."
    run, text = train_undertrained_run(capfd, tmp_path, positions), 'nine' + ' ' * 45 + 'eleven.' + ' ' * 30 + 'six'
    t = Translator.from_pretrained(run)
    assert max(map(len, t.encode(t.split_long(text, 20)))) <= 20
    assert t.translate([text])[0]
    if find_spec('ctranslate2'):
        run_in_process(capfd, 'export', run)
        result = run_in_process(capfd, 'translate', run, '--engine', 'ctranslate2', stdin=text + '\n')
        assert result.returncode == 0 and result.stdout.count('\n') == 1, result.stderr

def test_cut_text_loses_nothing_and_has_no_part_of_blanks():
    count = lambda texts: [len(text.strip()) + 1 for text in texts]           # as encode counts: ends are bare
    for text in 'b' * 25 + '.  ' + 'cc', '  ' + 'd' * 30 + ' ' * 50, 'e' + ' ' * 40 + 'f  g' + '\u3000' * 9 + 'h':
        parts = _split_long_text(text, 10, count)
        assert ''.join(parts) == text and max(count(parts)) <= 10 and all(map(str.strip, parts)), parts

def test_one_sentence_is_not_a_list(trained):
    "Or each of its characters would be translated."
    with pytest.raises(ValueError, match='give a list of sentences'): Translator.from_pretrained(trained, device='cpu').translate('twenty-one')
