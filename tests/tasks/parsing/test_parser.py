"A parser and its command, with a model of a few steps: the constraint makes trees of whatever it writes."
import io
import tarfile
from contextlib import redirect_stderr, redirect_stdout

import pytest
from datasets import DatasetDict

from annotated_transformer.cli.parse import _escape_ptb_tokens, transformer_parse
from annotated_transformer.recipe import get_recipe
from annotated_transformer.tasks.parsing.bracket_scores import score_trees
from annotated_transformer.tasks.parsing.parser import Parser, _load_gold_trees
from annotated_transformer.tasks.parsing.treebank import _make_parsing_dataset
from annotated_transformer.tasks.parsing.trees import Tree, read_trees
from annotated_transformer.training.trainer import train

SETTINGS = dict(vocab_size=20, src_vocab_size=40, N=1, d_model=32, d_ff=64, P_drop=0., P_attn=0., max_steps=2, max_tokens=512, warmup_steps=2,
                save_every='2 steps', average_checkpoints=1)

GOLD = read_trees('\n'.join(f'(S (NP (D a) (N {noun})) (VP (V {verb})))' for noun in ('tree', 'head', 'model') for verb in ('reads', 'sees', 'knows')))

@pytest.fixture(scope='module')
def run_dir(tmp_path_factory):
    "A run directory of a parser that has learned next to nothing."
    folder = tmp_path_factory.mktemp('parser')
    pairs = _make_parsing_dataset(dict(train=GOLD, valid=GOLD[:2], test=GOLD[:2]))
    data = DatasetDict({name: split.rename_columns(dict(source='words', target='trees')) for name, split in pairs.items()})
    with redirect_stderr(io.StringIO()): train(get_recipe('parsing_small', **SETTINGS), data, folder / 'run')
    return folder / 'run'

@pytest.fixture
def parser(run_dir): return Parser.from_pretrained(run_dir)

def parse_command(run_dir, **options):
    "What transformer_parse writes to its two streams."
    out, err = io.TextIOWrapper(io.BytesIO(), encoding='utf-8'), io.StringIO()
    with redirect_stdout(out), redirect_stderr(err): transformer_parse(str(run_dir), beam=2, **{key: str(path) for key, path in options.items()})
    out.flush()
    return out.buffer.getvalue().decode(), err.getvalue()

@pytest.mark.parametrize('sentences, tags, message', [
    ([['a', 'tree']], [['D', 'N']], 'give no tags'), ([['a', 'tree'], []], None, '2: it has no words'),
    ([['a'] * 1024], None, 'sentence 1: more than max_len=1024'), (['a tree'], None, 'give a list of words'),
    ([['a', 'tree'], ['a tree']], None, "sentence 2: 'a tree' is not a word"), ([['(']], None, 'write -LRB-'), ([['']], None, "'' is not a word")])
def test_what_cannot_be_parsed_is_refused(parser, sentences, tags, message):
    "The message names the sentence and the reason."
    with pytest.raises(ValueError, match=message.replace('(', r'\(')): parser.parse(sentences, tags)

@pytest.mark.parametrize('tags', [None, [], [['D']], [['D', 'N'], ['D']]])
def test_a_model_that_reads_tags_needs_one_for_each_word(parser, tags):
    "None, too few and too many are refused."
    parser.config = parser.config | dict(source_lang='tagged')
    with pytest.raises(ValueError, match='tag'): parser.parse([['a', 'tree']], tags)

def test_unknown_words_are_replaced_one_by_one(parser):
    "Also neighbours, and a word that looks like a token of the vocabulary."
    assert parser.preprocess(['a yak ▁(S reads'], 'source') == ['a * * reads']
    assert parser.parse([['a', 'yak', 'lama', 'reads']], beam=2)[0].words == ['a', 'yak', 'lama', 'reads']

def test_a_free_search_may_find_no_tree(parser):
    "Of an untrained model it does not."
    words = [t.words for t in GOLD]
    assert None in parser.parse(words, beam=2, constrained=False) and None not in parser.parse(words, beam=2)

@pytest.mark.parametrize('options, message', [(dict(input='a', gold='b'), 'both'), (dict(output='a'), 'needs --gold')])
def test_options_that_exclude_each_other(run_dir, options, message):
    "Refused before the model is loaded."
    with pytest.raises(ValueError, match=message): transformer_parse(str(run_dir), **options)

@pytest.mark.parametrize('name, content, message', [('latin.txt', '(NP (NN r\xf4le))', 'latin.txt, line 1: not UTF-8'), ('none.txt', '\n', 'contains no trees')])
def test_files_without_gold_trees(tmp_path, name, content, message):
    "The message names the file."
    (tmp_path / name).write_bytes(content.encode('latin-1'))
    with pytest.raises(ValueError, match=message): _load_gold_trees(tmp_path / name)

def test_gold_trees_of_a_folder_and_of_an_archive(run_dir, tmp_path):
    "Only the test files; an output may not replace one of them."
    (tmp_path / 'wsj').mkdir()
    for number, text in {1: '(NP (NN tree))', 160: '(NP (DT a) (NN tree))'}.items(): (tmp_path / f'wsj/wsj_{number:04}.mrg').write_text(text)
    with tarfile.open(tmp_path / 'wsj.tar.gz', 'w:gz') as archive: archive.add(tmp_path / 'wsj')
    for path in tmp_path / 'wsj', tmp_path / 'wsj.tar.gz': assert [t.words for t in _load_gold_trees(path)] == [['a', 'tree']]
    with pytest.raises(ValueError, match='an input'): parse_command(run_dir, gold=tmp_path / 'wsj', output=tmp_path / 'wsj/wsj_0160.mrg')

def test_scores_of_the_command_are_those_of_the_parser(parser, run_dir, tmp_path):
    "Trees into a file, scores to the output."
    (tmp_path / 'gold.txt').write_text('\n'.join(map(str, GOLD)))
    out, _ = parse_command(run_dir, gold=tmp_path / 'gold.txt', output=tmp_path / 'trees.txt')
    trees = parser.parse([t.words for t in GOLD], beam=2)
    assert read_trees((tmp_path / 'trees.txt').read_text()) == trees
    assert f"F1: {score_trees(trees, GOLD)['F1']:.2f}\n" in out

def test_the_command_searches_freely_if_told_so(parser, run_dir, tmp_path):
    "What is no tree leaves its line blank."
    (tmp_path / 'lines.txt').write_text('\n'.join(' '.join(t.words) for t in GOLD))
    out, _ = parse_command(run_dir, input=tmp_path / 'lines.txt', unconstrained=True)
    free = parser.parse([t.words for t in GOLD], beam=2, constrained=False)
    assert out == ''.join(f'{tree or ""}\n' for tree in free) and None in free

def test_a_sentence_that_is_too_long_counts_as_invalid(run_dir, tmp_path):
    "A message names it; a file of punctuation alone has nothing to score."
    long = Tree('S', tuple(Tree('NN', word='tree') for _ in range(1024)))
    (tmp_path / 'long.txt').write_text(f'{long}\n{GOLD[0]}')
    out, err = parse_command(run_dir, gold=tmp_path / 'long.txt')
    assert 'sentence 1, no tree: more than max_len' in err and 'invalid: 1' in out
    (tmp_path / 'dots.txt').write_text('(S (. .))')
    with pytest.raises(ValueError, match='is left to score'): parse_command(run_dir, gold=tmp_path / 'dots.txt')

def test_a_line_out_for_each_line_in(run_dir, tmp_path):
    "Brackets and slashes are escaped; an empty line and one that cannot be parsed stay empty."
    (tmp_path / 'lines.txt').write_text('the ( deep ) tree sees\n\na head knows often\nsmile :(\nthe 1/2 tree\\/s sees')
    out, err = parse_command(run_dir, input=tmp_path / 'lines.txt')
    lines = out.split('\n')
    assert "line 4, no tree: ':(' is not a word" in err
    assert (len(lines), lines[1], lines[3], lines[5]) == (6, '', '', '')
    assert [read_trees(lines[i])[0].words for i in (0, 2, 4)] == [
        'the -LRB- deep -RRB- tree sees'.split(), ['a', 'head', 'knows', 'often'], ['the', r'1\/2', r'tree\/s', 'sees']]

def test_quotation_marks_are_those_of_the_treebank():
    "And brackets by name, slash and star after a backslash."
    assert _escape_ptb_tokens(['"', 'Go', '"', ',', '“', 'he', '”', '(', "n't"]) == ['``', 'Go', "''", ',', '``', 'he', "''", '-LRB-', "n't"]
    assert _escape_ptb_tokens(['(', ')', '{', '*', r'\/', '"', 'so', '"', '”']) == ['-LRB-', '-RRB-', '-LCB-', r'\*', r'\/', '``', 'so', "''", "''"]
