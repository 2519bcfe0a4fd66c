"The whole model on one page: the page's code is the example's, the model is PyTorch's and the book's, its data and score are others'."
import ast
import importlib.util
import json
import math
import random
import subprocess
import sys
from pathlib import Path

import pytest
import sacrebleu
import torch
from torch import nn
from torch.testing import assert_close

from annotated_transformer.data.number_names import number_speller
from annotated_transformer.model import transformer
from annotated_transformer.model.config import TransformerConfig

ROOT = Path(__file__).resolve().parents[1]
EXAMPLE, PAGE = ROOT / 'examples' / 'whole_model.py', ROOT / 'nbs' / '01_whole_model.ipynb'

def load_example():
    spec = importlib.util.spec_from_file_location('whole_model', EXAMPLE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module

example = load_example()

def definitions(text):
    "The source of each class, function and constant of a program, by name."
    nodes = {getattr(n, 'name', None) or ast.unparse(n.targets[0]): n for n in ast.parse(text).body if isinstance(n, ast.ClassDef | ast.FunctionDef | ast.Assign)}
    return {name: ast.get_source_segment(text, n) for name, n in nodes.items()}

def page_definitions():
    cells = [''.join(c['source']) for c in json.loads(PAGE.read_text(encoding='utf-8'))['cells'] if c['cell_type'] == 'code']
    return {name: source for text in cells if not any(line.lstrip().startswith(('!', '%')) for line in text.splitlines()) for name, source in definitions(text).items()}

MODEL = ('positional_encoding', 'Embedding', 'attention', 'subsequent_mask', 'MultiHeadAttention', 'FeedForward', 'AddNorm',
         'EncoderLayer', 'DecoderLayer', 'Transformer')
OTHERS = 'ALPHABET', 'to_ids', 'to_texts', 'train', 'random_batches', 'translate'

@pytest.mark.parametrize('name', [*MODEL, *OTHERS])
def test_page_and_example_are_the_same_code(name):
    "Each class and function of the page stands in the file, letter for letter."
    assert page_definitions()[name] == definitions(EXAMPLE.read_text(encoding='utf-8'))[name]

def test_sizes():
    "What the page says of its length: 90 lines of model, 15 of training; and the file has 250 at most."
    lines = {name: sum(bool(line.strip()) for line in source.splitlines()) for name, source in page_definitions().items()}
    assert sum(lines[name] for name in MODEL) <= 90 and lines['train'] <= 15
    assert len(EXAMPLE.read_text(encoding='utf-8').splitlines()) <= 250

@pytest.fixture
def double():
    "The model in double precision, without dropout; padded source ids and target ids."
    torch.manual_seed(0)
    torch.set_default_dtype(torch.float64)
    model = example.Transformer(20, d_model=16, h=4, d_ff=32, N=2, P_drop=0.).eval()
    for p in model.parameters():
        if p.dim() == 1: nn.init.normal_(p)                        # biases and norms, too
    src, tgt = torch.randint(1, 20, (3, 7)), torch.randint(1, 20, (3, 6))
    src[1, 4:] = src[2, 1:] = example.PAD
    yield model, src, tgt
    torch.set_default_dtype(torch.float32)

def logits_and_gradients(logits, inputs):
    weight = torch.randn(logits.shape, generator=torch.Generator().manual_seed(1))
    return logits, *torch.autograd.grad((logits * weight).sum(), inputs)

def test_equals_the_books_model(double):
    "With copied weights: logits, and the gradient of every parameter."
    ours, src, tgt = double
    theirs = transformer.Transformer(TransformerConfig(vocab_size=20, N=2, d_model=16, d_ff=32, h=4, P_drop=0.)).eval()
    def rename(name): return name.replace('embed.', 'src_embed.').replace('encoder.', 'encoder.layers.').replace('decoder.', 'decoder.layers.')
    theirs.load_state_dict({rename(name): p for name, p in ours.state_dict().items()} | {
        name: ours.embed.weight for name in ('tgt_embed.weight', 'output_projection.weight')})
    for position in theirs.src_position, theirs.tgt_position: position.table = example.positional_encoding(20, 16)
    names, parameters = zip(*ours.named_parameters())
    copies = dict(theirs.named_parameters())
    assert len(copies) == len(names)
    for a, b in zip(logits_and_gradients(ours(src, tgt), parameters),
                    logits_and_gradients(theirs(src, tgt), [copies[rename(name)] for name in names]), strict=True): assert_close(a, b)

def test_equals_pytorchs_model(double):
    "With copied weights, between embedding and logits: PyTorch's layers, whose projections have biases of zero."
    ours, src, tgt = double
    settings = dict(d_model=16, nhead=4, dim_feedforward=32, dropout=0., batch_first=True)
    encoder = nn.TransformerEncoder(nn.TransformerEncoderLayer(**settings), 2, enable_nested_tensor=False)
    decoder = nn.TransformerDecoder(nn.TransformerDecoderLayer(**settings), 2)
    theirs = nn.Transformer(16, 4, custom_encoder=encoder, custom_decoder=decoder, batch_first=True).eval()
    def copy(a, b): b.load_state_dict(a.state_dict())
    with torch.no_grad():
        for a, b in zip([*ours.encoder, *ours.decoder], [*encoder.layers, *decoder.layers], strict=True):
            for x, y in [(a.self_attn, b.self_attn)] + ([(a.cross_attn, b.multihead_attn)] if hasattr(a, 'cross_attn') else []):
                y.in_proj_weight.copy_(torch.cat([x.W_Q.weight, x.W_K.weight, x.W_V.weight]))
                y.out_proj.weight.copy_(x.W_O.weight)
                y.in_proj_bias.zero_(); y.out_proj.bias.zero_()
            copy(a.feed_forward.W_1, b.linear1); copy(a.feed_forward.W_2, b.linear2)
            for i, add_norm in enumerate(a.add_norm, 1): copy(add_norm.norm, getattr(b, f'norm{i}'))
    pad = src == example.PAD
    out = theirs(ours.embed(src), ours.embed(tgt), tgt_mask=~example.subsequent_mask(6), src_key_padding_mask=pad, memory_key_padding_mask=pad)
    for a, b in zip(*(logits_and_gradients(x, [ours.embed.weight]) for x in (ours(src, tgt), out @ ours.embed.weight.T)), strict=True): assert_close(a, b)

def test_number_names():
    "English and German names below 100,000 are those of num2words."
    numbers = [*range(1200), *range(1200, 100_000, 89)]
    for lang, name in ('en', example.english), ('de', example.german):
        assert [*map(name, numbers)] == [*map(number_speller(lang), numbers)]

def test_letters():
    "All names can be written in the alphabet; ids become the same texts again."
    texts = [name(n) for n in (0, 1, 21, 4711, 99_999) for name in (example.english, example.german)]
    assert example.to_texts(example.to_ids(texts)) == texts and example.ALPHABET[:3] == '.^$'

def test_bleu():
    "Equal to sacreBLEU's, with and without the brevity penalty."
    references = [f'the name is {example.english(n)} in English'.split() for n in range(100, 400, 7)]
    rng = random.Random(0)
    outputs = [[word for word in reference if rng.random() < .9] for reference in references]
    for a, b in (outputs, references), (references, outputs):
        theirs = sacrebleu.corpus_bleu([' '.join(x) for x in a], [[' '.join(y) for y in b]], tokenize='none', force=True)
        assert math.isclose(example.bleu(a, b), theirs.score, rel_tol=1e-9)
    assert example.bleu(['abcde'], ['vwxyz']) == 0

def test_beam_of_one_is_greedy():
    "A beam of one hypothesis writes what greedy decoding does."
    torch.manual_seed(0)
    model = example.Transformer(len(example.ALPHABET), d_model=16, h=2, d_ff=32, N=1)
    with torch.no_grad(): model.embed.weight[example.EOS] *= 3     # so that texts end
    for text in 'one', 'twenty-one': assert example.beam_search(model, text, beam=1, max_len=20) == example.translate(model, [text], max_len=20)[0]

def test_beam_finds_the_best():
    "Premature ends are as probable as any other wrong letter; the search does not stop at a number of them."
    class Peaked(example.Transformer):
        def decode(self, tgt, memory, memory_mask):
            "Smoothed like a trained model: nine tenths on the next letter of abc$, the rest on all letters evenly."
            p = torch.full((len(tgt), tgt.size(1), len(example.ALPHABET)), .1 / len(example.ALPHABET))
            p[:, -1, example.ALPHABET.index('abc$'[min(tgt.size(1) - 1, 3)])] += .9
            return p.log()
    model = Peaked(len(example.ALPHABET), d_model=16, h=2, d_ff=32, N=1)
    for beam in 1, 4, 30: assert example.beam_search(model, 'one', beam=beam, max_len=20) == 'abc'

def test_example_runs():
    "A short training prints its loss and both scores."
    result = subprocess.run([sys.executable, EXAMPLE, '--steps', '20', '--max_number', '99', '--held_out', '5', '--N', '1'], capture_output=True, text=True, timeout=300)
    assert result.returncode == 0, result.stderr
    assert 'step   20  loss' in result.stdout and 'greedy: exact match' in result.stdout and 'beam 4: exact match' in result.stdout
