"Scores of a test set, and of validation sentences during training."
import pytest
import torch
from datasets import load_from_disk

from annotated_transformer.inference.evaluation import eval_bleu, evaluate, load_test_split
from annotated_transformer.inference.metrics import _bleu_tokenizer, _make_bleu_metric
from annotated_transformer.inference.translator import Translator
from annotated_transformer.run_directory import RunDirectory


def test_validation_bleu_is_that_of_the_translator(own):
    "Of the same sentences and weights, translated greedily; three of them are appended to samples.txt."
    translator = Translator.from_pretrained(own, device='cpu')
    with torch.no_grad(): score = eval_bleu(20, translator.models[0], own, 7)
    rows = load_from_disk(RunDirectory(own).data / 'valid')[:20]
    sources, references = (translator.tokenizer.decode(rows[side]) for side in ('src', 'tgt'))
    metric = _make_bleu_metric(references, tokenize=_bleu_tokenizer('de', translator.config['dataset']))
    assert score == dict(valid_bleu=pytest.approx(metric.corpus_score(translator.translate(sources, beam=1, alpha=0.), [references]).score))
    assert (own / 'samples.txt').read_text().count('step 7\n') == min(3, len(sources))

def test_exact_matches_are_counted(trained):
    "Of the test split: its own count, and the translations are those of `translate`."
    translator, (sources, references) = Translator.from_pretrained(trained, device='cpu'), load_test_split(trained)
    scores, hypotheses = evaluate(translator, sources, references, tokenize='char')
    assert hypotheses == translator.translate(sources)
    matches = sum(h == r for h, r in zip(hypotheses, references))
    assert scores['exact match'] == f'{100 * matches / len(sources):.1f} % ({matches}/{len(sources)})' and 'tok:char' in scores['signature']
