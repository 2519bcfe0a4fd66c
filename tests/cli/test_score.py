"transformer_score."
import math

import pytest
from helpers import run_in_process, assert_success, assert_user_error, write_files
from processes import run_forked

from annotated_transformer.data.number_names import number_speller
from annotated_transformer.inference.translator import Translator


def test_score(trained, tmp_path):
    "In a process of its own: what the search reports of its own translations, and a perplexity of them all."
    t = Translator.from_pretrained(trained, device='cpu')
    sources = list(map(number_speller('en'), range(40)))
    found = [best[0] for best in t.n_best(sources, beam=1, alpha=0.)]
    write_files(tmp_path, src='\n'.join(sources), ref='\n'.join(text for text, _ in found))
    result = assert_success(run_forked('score', trained, '--src', tmp_path / 'src', '--ref', tmp_path / 'ref'))
    rows = [tuple(map(float, line.split('\t'))) for line in result.stdout.splitlines()]
    assert len(rows) == 40
    for (log_prob, n), (text, score) in zip(rows, found):
        assert abs(log_prob - score) < 1e-3 and n == len(t.tokenizer.encode([text])[0]) + 1
    perplexity = float(result.stderr.split('perplexity: ')[1])
    assert abs(perplexity - math.exp(-sum(p for p, _ in rows) / sum(n for _, n in rows))) < 1e-2

@pytest.mark.parametrize('files, said', [
    (dict(src='a\nb\n', ref='a\n'), 'ref has 1'), (dict(src='', ref='a\n'), 'empty'), (dict(src='a\n'), 'ref'),
    (dict(src='a\n', ref='seven ' * 200), 'every line is longer than max_len')])
def test_bad_pairs(trained, capfd, tmp_path, files, said):
    write_files(tmp_path, **files)
    assert_user_error(run_in_process(capfd, 'score', trained, '--src', tmp_path / 'src', '--ref', tmp_path / 'ref'), said)
