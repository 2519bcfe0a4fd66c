"The parser whose decoder is conditioned on the next unread word."
import io
from contextlib import redirect_stderr
from dataclasses import replace

import pytest
import torch
from torch.testing import assert_close

from annotated_transformer.cli.train import transformer_train
from annotated_transformer.data.tokenizer import Tokenizer
from annotated_transformer.inference.beam_search import beam_search
from annotated_transformer.model.config import TransformerConfig
from annotated_transformer.model.seq2seq import incremental_logits
from annotated_transformer.model.transformer import Transformer
from annotated_transformer.recipe import flatten_recipe, get_recipe
from annotated_transformer.tasks.parsing.next_word import NextWord, _NextWordConfig
from annotated_transformer.tasks.parsing.parser import Parser
from annotated_transformer.tasks.parsing.trees import linearize, read_trees

TREE, = read_trees('(S (NP (DT The) (NN model)) (VP (VBZ reads) (NP (DT a) (NN sentence))) (. .))')
LINE = ' '.join(linearize(TREE))
SMALL = dict(N=2, d_model=32, d_ff=64, h=2)

def make_model(tokens_per_word=1):
    torch.manual_seed(0)
    return NextWord(_NextWordConfig(20, **SMALL, word_id=4, tokens_per_word=tokens_per_word)).eval()

def make_batch():
    "Sources of nine, six and four tokens, and targets in which 4 is a word."
    torch.manual_seed(1)
    src, tgt = torch.randint(5, 20, (3, 9)), torch.randint(3, 7, (3, 12))
    src[1, 6:] = src[2, 4:] = 0
    return src, tgt

def test_the_unread_word_is_counted_from_the_target():
    "One word is read at each XX; after the last one, <eos> is unread."
    tokenizer = Tokenizer.train_word_level([LINE] * 2, 16)
    config = _NextWordConfig(16).with_tokenizer(tokenizer, 'words')
    ids, source = torch.tensor(tokenizer.encode([LINE])), TREE.words + ['</s>']
    n = (ids == config.word_id).cumsum(1)[0]
    assert [source[i] for i, token in zip(n, LINE.split()) if token == 'XX'] == source[1:]
    assert (config.tokens_per_word, config.with_tokenizer(tokenizer, 'tagged').tokens_per_word) == (1, 2)

def test_the_embedding_is_that_of_the_unread_word():
    "With padding, beyond the end, and with two tokens for a word."
    model, memory, mask = make_model(), torch.randn(2, 5, 32), torch.ones(2, 1, 1, 5, dtype=torch.bool)
    mask[1, ..., 3:] = False
    assert_close(model.next_word_embedding(memory, torch.tensor([[0, 3], [2, 9]]), mask), model.next_word_proj(memory[[[0, 0], [1, 1]], [[0, 3], [2, 2]]]))
    model.config = replace(model.config, tokens_per_word=2)
    assert_close(model.next_word_embedding(memory, torch.tensor([[1], [3]]), mask), model.next_word_proj(memory[[[0], [1]], [[2], [2]]]))

def test_without_its_matrix_the_variant_is_the_transformer():
    "The same weights, the projection at zero."
    model, plain, (src, tgt) = make_model(), Transformer(TransformerConfig(20, **SMALL)).eval(), make_batch()
    plain.load_state_dict(model.state_dict(), strict=False)
    with torch.no_grad():
        assert (model(src, tgt) - plain(src, tgt)).abs().max() > .01
        model.next_word_proj.weight.zero_()
        assert_close(model(src, tgt), plain(src, tgt))

def test_token_by_token_and_in_a_batch():
    "As at once; in a beam search, sources of different lengths do not disturb each other."
    model, (src, tgt) = make_model(tokens_per_word=2).double(), make_batch()
    with torch.no_grad(): assert_close(incremental_logits(model, src, tgt), model(src, tgt))
    search = dict(beam=3, max_extra_tokens=4, n_best=2, bos_id=2, eos_id=3)
    for row, length, together in zip(src, (9, 6, 4), beam_search(model, src, **search)):
        alone, = beam_search(model, row[None, :length], **search)
        assert [h.ids for h in together] == [h.ids for h in alone]

@pytest.mark.parametrize('name', ['parsing', 'parsing_small'])
def test_its_recipes_differ_in_the_architecture_only(name):
    "And in the two fields that a run sets."
    plain, variant = (flatten_recipe(get_recipe(n)) for n in (name, f'{name}_next_word'))
    assert variant == plain | dict(architecture='next_word', word_id=None, tokens_per_word=None)

@pytest.mark.parametrize('kind, tokens_per_word', [('words', 1), ('tagged', 2)])
def test_a_run_sets_its_fields_and_a_parser_opens_it(tmp_path, kind, tokens_per_word):
    "Trained from a treebank of four files, resumed, parsed with."
    (tmp_path / 'bank').mkdir()
    for number in 1, 2, 150, 160: (tmp_path / f'bank/wsj_{number:04}.mrg').write_text(f'{TREE}\n' * 2)
    def train(steps, **options):
        with redirect_stderr(io.StringIO()):
            transformer_train('parsing_small_next_word', 'treebank', kind, None, tmp_path / 'bank', tmp_path / 'run', **options,
                              max_steps=steps, N=1, d_model=16, d_ff=16, vocab_size=16, src_vocab_size=32)
    train(2)
    parser = Parser.from_pretrained(tmp_path / 'run')
    tree, = parser.parse([TREE.words], [TREE.tags] if kind == 'tagged' else None, beam=2)
    assert tree.words == TREE.words
    model = parser.config['model']
    assert parser.tokenizer.convert_ids_to_tokens([model['word_id']]) == ['▁XX'] and model['tokens_per_word'] == tokens_per_word
    train(3, resume=True)

def test_what_it_cannot_be_built_from():
    "A target without trees, or a configuration without the two fields."
    for tokenizer in Tokenizer.train_word_level(['a tree'], 16), Tokenizer.train(['a tree'], 269), Tokenizer.train([LINE] * 9, 274):
        with pytest.raises(ValueError, match='preprocessing=words'): _NextWordConfig(16).with_tokenizer(tokenizer, 'en')
    with pytest.raises(ValueError, match='with_tokenizer'): NextWord(_NextWordConfig(20, word_id=4))
