"A graph of a Transformer, and of nothing else."
from importlib.util import find_spec

import pytest

from annotated_transformer.export import onnx


def test_another_architecture_is_refused(classifier, tmp_path, monkeypatch):
    monkeypatch.setattr(onnx, '_import_optional', lambda library: None)        # refused before a library is used
    with pytest.raises(ValueError, match="not 'transformer'"): onnx.to_onnx(classifier[0], tmp_path / 'out.onnx')
    assert not (tmp_path / 'out.onnx').exists()

@pytest.mark.skipif(bool(find_spec('onnx')), reason='onnx is installed')
def test_without_the_library_one_line_says_how_to_install_it(trained, tmp_path):
    with pytest.raises(ValueError, match=r"onnx is not installed: pip install 'annotated_transformer\[export\]'"): onnx.to_onnx(trained, tmp_path / 'out.onnx')
