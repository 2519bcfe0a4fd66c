"""Section 6.3 at the size of NLTK's sample of the Penn Treebank: the Transformer as a parser, from words, with tags, told the next word.

Each run is trained, parses the development files with the search constrained and free, and is written down in a file of its own; an
interrupted command goes on where it was. Several processes may share the work by --only; --out writes the record of what is there,
and keeps the runs that it contains already.
The tags that are predicted come from NLTK's averaged perceptron (pip install nltk), for training files from one that did not see them.

Predicted before the runs that write tags, as the authors' code does (F1 of one seed, constrained and free): with pre-norm and less
dropout 60 and 35, beside 39 and 14 with XX; as the recipe stands 30 and 5, beside 19 and 1. A tag has to be read off its word, so
writing tags should teach the decoder where it is in the sentence; still less than to be told, which gives 77 to 80.
The first such run came to 45 and 15. Predicted before two more seeds of it: 42 to 48, and 11 to 19.
Its rate, 0.002, was chosen with the next word. Predicted before runs at a third and at three times of it (one seed each, constrained):
pre-norm 36 and 50; post-norm, where 0.002 is predicted at 30, 22 and 17, the last no better than a tree that always branches to the
right. So no rate brings a decoder that finds the words itself within 20 F1 of the grammar.
Predicted before two more seeds of pre-norm with tags, five in all, and two more of each other rate, three in all (constrained, mean):
pre-norm 45 (five seeds between 42 and 49), a third of the rate 42, three times 43; post-norm at a third 34, at three times 14. The claim
C6.3c, that the Transformer parses better than the better grammar (75.9 F1), is decided by the five seeds with a margin of 2.3 F1:
contradicted is expected.

    python experiments/parsing.py --data data/treebank --out nbs/results/parsing.json
"""
import argparse, json, os, random, re, time
from collections import Counter
from functools import cache, partial
from pathlib import Path
from typing import NamedTuple
import torch
from datasets import Dataset, DatasetDict
from annotated_transformer.run_directory import RunDirectory
from annotated_transformer.tasks.parsing.parser import Parser
from annotated_transformer.recipe import get_recipe, recipe_to_dict, with_overrides
from annotated_transformer.training.trainer import train
from recording import ResultCache, provenance, read_arguments
from annotated_transformer.tasks.parsing.treebank import (
    _replace_rare_words, _build_vocab, _make_parsing_dataset, _NLTK_SPLIT, _format_source, read_treebank)
from annotated_transformer.tasks.parsing.bracket_scores import _bracket_counts, _bracket_spans, score_trees
from annotated_transformer.tasks.parsing.trees import Tree, linearize, delinearize

CANDIDATES = {   # settings of the small next-word recipe: changes, and are the constituents of the trees training sentences, too?
    'half as long': (dict(max_steps=2000), False), 'as first written': (dict(max_steps=4000), False), 'constituents, half as long': (dict(max_steps=2000), True),
    'cosine, half as long': (dict(max_steps=2000, lr_scheduler_type='cosine'), False), 'cosine, three quarters': (dict(max_steps=3000, lr_scheduler_type='cosine'), False),
    'small batches': (dict(max_tokens=1024, max_steps=6000, lr_scheduler_type='cosine', peak_lr=1.2e-3, warmup_steps=1000, save_every='500 steps'), False)}
BASELINE_CANDIDATES = {     # a quarter of the steps without the next word: does any of these learn?
    'as it is': {}, 'pre-norm': dict(norm='pre'), 'less dropout': dict(P_drop=0.1, P_attn=0.0), 'pre-norm, less dropout': dict(norm='pre', P_drop=0.1, P_attn=0.0),
    'lower rate': dict(peak_lr=7e-4), 'pre-norm, less dropout, small batches': dict(norm='pre', P_drop=0.1, P_attn=0.0, max_tokens=1024, peak_lr=1e-3, warmup_steps=1000)}
class Arm(NamedTuple):
    source_tags: str|None = None   # what tags the parser reads: None, 'predicted' or 'gold'
    next_word: bool = False        # is the decoder told the next word?
    share: int = 1                 # one of how many training trees
    seeds: int = 1
    changes: dict = {}             # to the recipe
    writes_tags: bool = False      # else XX for every word

PRE_NORM = BASELINE_CANDIDATES['pre-norm, less dropout']
ARMS = {
    'words, next word': Arm(next_word=True, seeds=3), 'predicted tags, next word': Arm('predicted', True, seeds=3), 'gold tags, next word': Arm('gold', True, seeds=3),
    'words, next word, half': Arm(next_word=True, share=2), 'words, next word, a quarter': Arm(next_word=True, share=4),
    # three seeds were planned of this one, with tags and smaller treebanks, too, until it hardly learned anything
    'words': Arm(), 'words, pre-norm, less dropout': Arm(changes=PRE_NORM), 'words, next word, pre-norm, less dropout': Arm(next_word=True, changes=PRE_NORM),
    'words, writes tags, pre-norm, less dropout': Arm(seeds=5, changes=PRE_NORM | dict(vocab_size=128), writes_tags=True), 'words, writes tags': Arm(seeds=3, changes=dict(vocab_size=128), writes_tags=True)}
for name in 'words, writes tags', 'words, writes tags, pre-norm, less dropout':
    for rate, peak_lr in ('low rate', 7e-4), ('high rate', 6e-3): ARMS[f'{name}, {rate}'] = ARMS[name]._replace(seeds=3, changes=ARMS[name].changes | dict(peak_lr=peak_lr))
BEST_SETTING = 'as first written'
EXAMPLE_SENTENCE = 'The model reads a sentence with attention .'.split()

p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
p.add_argument('--data', type=Path, required=True, help='a folder with the .mrg files, or with the .tar.gz of them')
p.add_argument('--only', nargs='*', default=list(ARMS), choices=ARMS, metavar='ARM', help=f'arms to run: {"; ".join(ARMS)}; none with the bare option')
p.add_argument('--seeds', type=int, default=5, help='seeds of each arm, at most')
p.add_argument('--beam', type=int, default=21)
p.add_argument('--choose', nargs='*', choices=[*CANDIDATES, *BASELINE_CANDIDATES], metavar='CHOICE', help=f'try settings on the validation files, of the next-word model: {"; ".join(CANDIDATES)}; of the plain one: {"; ".join(BASELINE_CANDIDATES)}; all if none is named')
p.add_argument('--on', choices=('test', 'valid'), default='test', help='split to parse; valid: to choose settings')
p.add_argument('--runs', type=Path, default=Path('runs/parsing'), help='folder of the runs')
p.add_argument('--fit', type=Path, metavar='RUN', help='only score this finished run on every twelfth of its training trees, and add that to --out')
p.add_argument('--out', type=Path, help='the record, a JSON file, of all runs that are there')

def score_training_trees(run, trees, beam):
    "Scores of a parser on some of the trees that it was trained on."
    parser, gold = Parser.from_pretrained(run), trees[::12]
    return dict(run=run.name) | {way: score_trees(parser.parse([t.words for t in gold], beam=beam, constrained=way == 'constrained'), gold) for way in ('constrained', 'free')}

def train_tagger(trees):
    "A tagger trained on these trees."
    from nltk.tag.perceptron import PerceptronTagger
    random.seed(0)
    tagger = PerceptronTagger(load=False)
    tagger.train([list(zip(t.words, t.tags)) for t in trees])
    return tagger

def predict_tags(trees):
    "Split → tags of each sentence; of the training sentences by a tagger trained on nine tenths without them."
    tags = {split: [None] * len(some) for split, some in trees.items()}
    def tag(tagger, split, i): tags[split][i] = [tag for _, tag in tagger.tag(trees[split][i].words)]
    for fold in range(10):
        tagger = train_tagger([t for i, t in enumerate(trees['train']) if i % 10 != fold])
        for i in range(fold, len(trees['train']), 10): tag(tagger, 'train', i)
    tagger = train_tagger(trees['train'])
    for split in ('valid', 'test'):
        for i in range(len(trees[split])): tag(tagger, split, i)
    return tags

def replace_tags(tree, tags):
    "The tree with other part-of-speech tags."
    tags = iter(tags)
    def copy(node): return Tree(next(tags), word=node.word) if node.word else Tree(node.label, tuple(map(copy, node.children)))
    return copy(tree)

def count_by_category(predicted, gold):
    "Brackets matched, in gold, predicted, by label and by the number of words (to the power of two below)."
    tallies = {'label': {}, 'words': {}}
    for tree, gold_tree in zip(predicted, gold):
        gold_spans = _bracket_spans(gold_tree)
        spans_ = _bracket_spans(tree, gold_tree.tags) if tree else Counter()
        for i, spans in enumerate((gold_spans & spans_, gold_spans, spans_)):
            for (label, begin, end), n in spans.items():
                for kind, key in ('label', label), ('words', str(1 << (end - begin).bit_length() - 1)):
                    tallies[kind].setdefault(key, [0, 0, 0])[i] += n
    return tallies

def trace_attention(parser, writes_tags):
    "The tree of the example sentence, and the decoder's attention while it writes it: to the words, to its own tokens (layers, heads, rows)."
    tree, = parser.parse([EXAMPLE_SENTENCE], beam=parser.beam)
    tokens = linearize(tree, writes_tags)
    a = parser.attention(' '.join(EXAMPLE_SENTENCE), ' '.join(tokens))
    def rounded(weights): return [[[[round(w, 3) for w in row] for row in head] for head in layer] for layer in weights.tolist()]
    return dict(tokens=tokens, tree=str(tree), words=rounded(a['memory']), own=rounded(a['decoder']))

def constituents(tree, min_words=5):
    "The parts of a tree that have so many words; of parts that are the same words, the outermost."
    for node in tree.children:
        if not node.word:
            if min_words <= len(node.words) < len(tree.words): yield node
            yield from constituents(node, min_words)

def train_parser(run, trees, tagged_trees, arm, seed, a, setting=BEST_SETTING):
    "The parser, and how it was trained. `tagged_trees`: with the tags that the parser reads; `setting`: a key of CANDIDATES or BASELINE_CANDIDATES."
    changes, parts = CANDIDATES[setting] if setting in CANDIDATES else (BASELINE_CANDIDATES[setting] | dict(max_steps=4000 if 'small' in setting else 1000), False)
    tags, next_word, share, _, arm_changes, writes_tags = ARMS[arm]
    splits = dict(tagged_trees, train=tagged_trees['train'][::share])
    pairs = _make_parsing_dataset(splits, tagged=tags is not None)
    if parts:
        vocab, rows = _build_vocab(word for tree in splits['train'] for word in tree.words), pairs['train'].to_list()
        rows += [dict(source=_format_source(_replace_rare_words(part.words, vocab), part.tags if tags else None), target=' '.join(linearize(part)))
                 for tree in splits['train'] for part in constituents(tree)]
        pairs['train'] = Dataset.from_list(rows, features=pairs['train'].features)
    if writes_tags: pairs = {split: rows.remove_columns('target').add_column('target', [' '.join(linearize(tree, tags=True)) for tree in splits[split]]) for split, rows in pairs.items()}
    recipe = get_recipe('parsing_small_next_word' if next_word else 'parsing_small', **changes | arm_changes | a.changes | dict(seed=seed))
    if share > 1: recipe = with_overrides(recipe, max_steps=recipe.schedule.max_steps // 2)        # half as many for fewer trees
    source = 'words' if tags is None else 'tagged'
    corpus = DatasetDict({split: rows.rename_columns(dict(source=source, target='trees')) for split, rows in pairs.items()})
    start, new = time.time(), not run.exists()
    train(recipe, corpus, run, resume=True)
    minutes, parsers, valid = (time.time() - start) / 60 if new else None, {}, {}       # None if the run was interrupted
    for weights in ('average', 'best'):                     # which of the two parses the validation files better
        parsers[weights] = Parser.from_pretrained(run, weights=weights)
        valid_tags = None if tags is None else [t.tags for t in tagged_trees['valid']]
        valid[weights] = score_trees(parsers[weights].parse([t.words for t in trees['valid']], valid_tags, beam=1), trees['valid'])['F1']
    lines = RunDirectory(run).metrics()
    return parsers[max(valid, key=valid.get)], dict(
        precision=os.environ.get('ACCELERATE_MIXED_PRECISION', 'no'), minutes=minutes, valid=valid, tokens_per_second=[m['tokens_per_s'] for m in lines if 'tokens_per_s' in m][-1:],
        curve=[(m['step'], m['valid_loss']) for m in lines if 'valid_loss' in m], trees=len(splits['train']), recipe=recipe_to_dict(RunDirectory(run).recipe))

def train_and_evaluate(run, trees, tagged_trees, arm, seed, a):
    "Train, parse and score against `trees`: the record of a run."
    parser, training = train_parser(run, trees, tagged_trees, arm, seed, a)
    tags, gold = ARMS[arm].source_tags, trees[a.on]
    parser.beam, predicted, result = a.beam, {}, {}
    for way, constrained, beam in ('constrained', True, a.beam), ('free', False, a.beam), ('constrained, greedy', True, 1), ('constrained, beam 5', True, 5):
        start = time.process_time()
        predicted[way] = parser.parse([t.words for t in gold], None if tags is None else [t.tags for t in tagged_trees[a.on]], beam=beam, constrained=constrained)
        seconds = time.process_time() - start
        result[way] = dict(beam=beam, sentences_per_second=len(gold) / seconds, all=score_trees(predicted[way], gold), counts=_bracket_counts(predicted[way], gold).tolist(),
                           at_most_40=score_trees(predicted[way], gold, max_words=40))
    return result | training | dict(kinds=count_by_category(predicted['constrained'], gold), looked=trace_attention(parser, ARMS[arm].writes_tags) if tags is None else None)

def classify_tree_error(line, n):
    "What is wrong with tokens that should be a tree over n words: the number of words, the brackets, or nothing."
    n_words = sum(token[0] not in '()' for token in line)        # XX, or tags
    errors = [] if n_words == n else ['too few words' if n_words < n else 'too many words']
    try: delinearize(line, ['XX'] * n_words)
    except ValueError as e:
        errors.append('ends too early' if 'at the end' in str(e) else 'closes another bracket than the innermost' if ' is open' in str(e) else 'other brackets')
    return ' and '.join(errors) or 'tree'

def count_tree_errors(run, valid, trees, a):
    "How many lines of an unconstrained search are trees, or have which error."
    parser = Parser.from_pretrained(run, weights=max(valid, key=valid.get))
    ids = parser.encode([_format_source(t.words) for t in trees])
    results = parser.map_in_batches(ids, partial(parser.search, beam=a.beam, alpha=.3, constrained=False), 16384 // a.beam, False)
    return Counter(classify_tree_error(parser.tokenizer.decode([best.ids])[0].split(), len(tree.words)) for tree, (best, *_) in zip(trees, results))

def write_record(record, path):
    "JSON, a list of numbers in one line."
    text = re.sub(r'\[\s+(-?[\d.e-]+(?:,\s+-?[\d.e-]+)*)\s+\]', lambda m: '[' + re.sub(r'\s+', ' ', m[1]) + ']', json.dumps(record, indent=1))
    path.write_text(text + '\n')

def main(a):
    torch.set_num_threads(1)
    parts = ResultCache(a.runs / 'parts', dict(changes=a.changes, beam=a.beam, on=a.on))
    once, trees = parts.get_or_compute, read_treebank(a.data, _NLTK_SPLIT)
    known = json.loads(a.out.read_text()) if a.out and a.out.exists() else dict(runs={}, choices={}, plain={})
    if a.fit:
        known['training_trees'] = score_training_trees(a.fit, trees['train'], a.beam) | dict(made=provenance('torch', 'accelerate'))
        print({way: known['training_trees'][way]['F1'] for way in ('constrained', 'free')})
        if a.out: write_record(known, a.out)
        return
    @cache
    def tagged():
        tags = once('tags', lambda: predict_tags(trees), quiet=True)
        return {split: [replace_tags(t, new) for t, new in zip(some, tags[split])] for split, some in trees.items()}
    def dashed(name): return re.sub('[^a-z]+', '-', name)
    def read(arm, seed):
        key = f'{dashed(arm)}_{seed}'
        def work():
            result = train_and_evaluate(a.runs / key, trees, tagged() if ARMS[arm].source_tags == 'predicted' else trees, arm, seed, a)
            print(f"{arm}, seed {seed}: F1 {result['constrained']['all']['F1']:.2f}, free {result['free']['all']['F1']:.2f} with {result['free']['all']['invalid']} invalid", flush=True)
            return result | dict(made=provenance('torch', 'accelerate'))
        result, run, lines = once(key, work), a.runs / key, f'{key}_wrong'
        if seed or ARMS[arm].source_tags or not ((run / 'model.safetensors').exists() or parts.has(lines)): return result
        return result | dict(lines=once(lines, lambda: count_tree_errors(run, result['valid'], trees[a.on], a)))
    def choice(name):
        key, arm = (f'choice_{dashed(name)}', 'words, next word') if name in CANDIDATES else (f'plain_{dashed(name)}', 'words')
        return once(key, lambda: train_parser(a.runs / key, trees, trees, arm, 0, a, name)[1])
    if a.choose is not None:
        for name in a.choose or [*CANDIDATES, *BASELINE_CANDIDATES]: print(name, choice(name)['valid'], flush=True)
        return
    for seed in range(a.seeds):                                     # the first of each arm, then the second …
        for arm in a.only:
            if len(known['runs'].get(arm, [])) <= seed < ARMS[arm].seeds: read(arm, seed)
    if not a.out: return
    def runs_of(arm):
        old = known['runs'].get(arm, [])
        return old + [read(arm, seed) for seed in range(len(old), ARMS[arm].seeds) if parts.has(f'{dashed(arm)}_{seed}')]
    results = {arm: runs_of(arm) for arm in ARMS}
    made = {key: known[key] for key in ('command', 'commit', 'machine', 'versions') if key in known} or provenance('torch', 'accelerate', 'sentencepiece', *['nltk'] * parts.has('tags'))
    record = made | dict(split={s: len(t) for s, t in trees.items()}, runs={arm: seeds for arm, seeds in results.items() if seeds},
        choices=known['choices'] | {name: choice(name) for name in CANDIDATES if parts.has(f'choice_{dashed(name)}')},
        plain=known['plain'] | {name: choice(name) for name in BASELINE_CANDIDATES if parts.has(f'plain_{dashed(name)}')})
    train_words, test_words = (Counter(word for t in trees[split] for word in t.words) for split in ('train', 'test'))
    vocab, replaced, frequencies = _build_vocab(train_words.elements()), Counter(), {}
    for word, n in test_words.items(): replaced['word' if word in vocab else 'signature' if _replace_rare_words([word], vocab) != ['*'] else '*'] += n
    for n in train_words.values(): frequencies.setdefault(1 << n.bit_length() - 1, []).append(n)              # by the power of two below
    record['lengths'] = [len(t.words) for t in trees['test']]
    record['words'] = dict(different=len(train_words), once=sum(n == 1 for n in train_words.values()), rare=100 * sum(n for word, n in test_words.items() if train_words[word] < 2) / test_words.total(),
                           known=len(vocab), test={kind: 100 * n / test_words.total() for kind, n in replaced.items()}, occurrences={n: (len(counts), sum(counts)) for n, counts in sorted(frequencies.items())})
    if parts.has('tags'):
        for split in ('train', 'test'):
            correct = [tag == gold for tree, gold_tree in zip(tagged()[split], trees[split]) for tag, gold in zip(tree.tags, gold_tree.tags)]
            record.setdefault('tags_right', {})[split] = 100 * sum(correct) / len(correct)
    record |= {key: known[key] for key in ('tags_right', 'training_trees') if key in known and key not in record}
    for arm, results in record['runs'].items():
        settings = {json.dumps([r['precision'], r['recipe'] | dict(seed=None)]) for r in results}
        if len(settings) > 1: raise SystemExit(f'{arm}: the seeds were trained with different settings: delete the parts of some')
    write_record(record, a.out)
    for arm, results in record['runs'].items(): print(f'{arm:<32}', ' '.join(f"{r['constrained']['all']['F1']:.2f}" for r in results))

if __name__ == '__main__': main(read_arguments(p, 'parsing_small'))
