"Text in, text out: the committed translator, batches, long text, scores and attention weights."
import math
from importlib.util import find_spec

import pytest
import torch
from helpers import train_undertrained_run, run_in_process
from pages import ROOT
from torch.testing import assert_close

from annotated_transformer.data.long_texts import _split_long_text
from annotated_transformer.data.number_names import number_speller
from annotated_transformer.inference.translator import Translator
from annotated_transformer.model.attention import MultiHeadAttention
from annotated_transformer.model.seq2seq import Seq2SeqModel

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

def number_names(n=40): return [number_speller('en')(i) for i in range(n)]

def test_batches_change_no_translation(trained):
    "Neither the size of a batch nor its other sentences; the order is kept."
    t, names = Translator.from_pretrained(trained, device='cpu'), number_names()
    together = t.translate(names)
    assert together == [t.translate([name])[0] for name in names] == t.translate(names[::-1], max_tokens=200)[::-1]
    assert [best for (best, _), *_ in t.n_best(names, n=3)] == together

def test_an_ideographic_full_stop_ends_a_sentence(trained):
    t = Translator.from_pretrained(trained, device='cpu')
    assert t.translate(['seven\u3002 ten'], split_into_sentences=True) == [' '.join(t.translate(['seven\u3002', 'ten']))]

def test_a_pair_beyond_max_len_scores_nan(trained):
    "The other pairs are scored; the number of tokens is counted in any case."
    (far, n), (near, m) = Translator.from_pretrained(trained, device='cpu').score(['seven'] * 2, ['sieben ' * 200, 'sieben'])
    assert math.isnan(far) and math.isfinite(near) and n > 60 > m

def test_attention_weights_are_distributions_and_are_not_kept(trained):
    t, names = Translator.from_pretrained(trained, device='cpu'), number_names(10)
    before, weights = t.translate(names), t.attention('twenty-one')
    assert weights['memory'].shape[-2:] == (len(weights['target']), len(weights['source']))
    for kind in 'encoder', 'decoder', 'memory': assert_close(weights[kind].sum(-1), torch.ones_like(weights[kind][..., 0]))
    assert not any(m.need_weights for m in t.models[0].modules() if isinstance(m, MultiHeadAttention)) and t.translate(names) == before

class NoAttention(Seq2SeqModel):
    "A bag of words."
    def __init__(self, V):
        super().__init__(None)
        self.embed = torch.nn.Embedding(V, V)

    def forward(self, src, tgt): return self.embed(tgt) + self.embed(src).mean(1, keepdim=True)

def test_a_model_without_attention_has_no_weights(trained):
    t = Translator.from_pretrained(trained, device='cpu')
    t.models = [NoAttention(t.tokenizer.vocab_size)]
    with pytest.raises(ValueError, match='NoAttention has no multi-head attention'): t.attention('seven', 'sieben')
