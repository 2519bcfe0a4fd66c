"A graph of a Transformer, and of nothing else."
from importlib.util import find_spec

import pytest
import torch

from annotated_transformer.data.number_names import number_speller
from annotated_transformer.export import onnx
from annotated_transformer.inference.translator import Translator


def test_another_architecture_is_refused(classifier, tmp_path, monkeypatch):
    monkeypatch.setattr(onnx, '_import_optional', lambda library: None)        # refused before a library is used
    with pytest.raises(ValueError, match="not 'transformer'"): onnx.to_onnx(classifier[0], tmp_path / 'out.onnx')
    assert not (tmp_path / 'out.onnx').exists()

@pytest.mark.skipif(bool(find_spec('onnx')), reason='onnx is installed')
def test_without_the_library_one_line_says_how_to_install_it(trained, tmp_path):
    with pytest.raises(ValueError, match=r"onnx is not installed: pip install 'annotated_transformer\[export\]'"): onnx.to_onnx(trained, tmp_path / 'out.onnx')

def test_greedy_search_needs_logits_only(trained):
    "What a user of the graph writes: a function from src and tgt to logits is enough, and a beam of one finds the same."
    translator = Translator.from_pretrained(trained)
    t, logits = translator.tokenizer, translator.models[0]
    def greedy(sentence):
        src, tgt = translator.encode([sentence])[0][None], torch.tensor([[t.bos_id]])
        while tgt[0, -1] != t.eos_id and tgt.size(1) < src.size(1) + 50: tgt = torch.cat([tgt, logits(src, tgt)[:, -1:].argmax(-1)], 1)
        return t.decode([[i for i in tgt[0, 1:].tolist() if i != t.eos_id]])[0]
    sources = [*map(number_speller('en'), range(40))]
    with torch.no_grad(): assert [*map(greedy, sources)] == translator.translate(sources, beam=1)
