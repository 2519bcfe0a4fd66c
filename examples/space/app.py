"""A Hugging Face Space: the translator of captions, its best translations, and the
attention of its heads. `python app.py` serves it on this machine."""
import gradio as gr
import matplotlib

from annotated_transformer.analysis.attention_maps import plot_attention_lines
from annotated_transformer.inference.translator import Translator

matplotlib.use('Agg')
translator = Translator.from_pretrained('multi30k-en-de', device='cpu')
config = translator.config['model']
KINDS = {'cross-attention': 'memory', 'encoder': 'encoder', 'decoder': 'decoder'}
LAYERS, HEADS = [*range(config['N'])], [*range(config['h'])]
ABOUT = '''# English captions into German
A Transformer trained on the captions of Multi30k and nothing else, from
[annotated_transformer](https://github.com/annotated-transformer/annotated_transformer).
It writes lower-case.'''
EXAMPLES = ['A boy watches his father repair a bicycle.',
            'Three dogs play in the snow.', 'The government lowered the taxes.']

def translate(text, beam):
    "The best translations and their scores."
    if not text.strip(): return []
    best, = translator.n_best([text], n=int(beam), beam=int(beam))
    german = translator.postprocess([translation for translation, _ in best])
    return [[line, round(score, 2)] for line, (_, score) in zip(german, best)]

def attend(text, kind, layer, heads):
    "Lines from each query to the tokens that it attends to, coloured by head."
    if not text.strip() or not heads: return None
    axes = plot_attention_lines(translator, text, KINDS[kind], layer, sorted(heads))
    axes.figure.tight_layout()
    return axes.figure

with gr.Blocks(title='Attention Is All You Need, as running code') as demo:
    gr.Markdown(ABOUT)
    text = gr.Textbox('A woman smiles while she cuts vegetables.', label='English')
    beam = gr.Slider(1, 8, 4, step=1, label='beam size, and translations shown')
    table = gr.Dataframe(headers=['German', 'log-probability / length penalty'],
                         interactive=False)
    with gr.Row():
        kind = gr.Radio([*KINDS], value='cross-attention', label='attention')
        layer = gr.Radio(LAYERS, value=2, label='layer')
        heads = gr.CheckboxGroup(HEADS, value=HEADS, label='heads')
    plot = gr.Plot(label='queries left, keys right')
    for event in text.submit, beam.change, demo.load:
        event(translate, [text, beam], table)
    for event in text.submit, kind.change, layer.change, heads.change, demo.load:
        event(attend, [text, kind, layer, heads], plot)
    gr.Examples(EXAMPLES, text)

if __name__ == '__main__': demo.launch()
