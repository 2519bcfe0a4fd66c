"Quarto runs this before it renders, in _proc: the translator of the first page as a JavaScript file, made of nbs/results/multi30k_en_de."
from pathlib import Path

from annotated_transformer.web.translator_page import _model_script

target = Path('caption_model.js')
if not target.exists(): target.write_text(_model_script(Path(__file__).parents[1] / 'nbs/results/multi30k_en_de', ['A dog runs.']), encoding='utf-8')
