"""Section 6.3 at the size of NLTK's sample of the Penn Treebank: the Transformer as a parser, from words, with tags, told the next word.

Each run is trained, parses the development files with the search constrained and free, and is written down in a file of its own; an
interrupted command goes on where it was. Several processes may share the work by --only; --out writes the record of what is there.
The tags that are predicted come from NLTK's averaged perceptron (pip install nltk), for training files from one that did not see them.

    python experiments/parsing.py --data data/treebank --out nbs/results/parsing.json
"""
import argparse, json, os, random, re, time
from collections import Counter
from functools import cache, partial
from pathlib import Path
import torch
from datasets import Dataset, DatasetDict
from annotated_transformer.run_directory import RunDirectory
from annotated_transformer.tasks.parsing.parser import Parser
from annotated_transformer.recipe import get_recipe, recipe_to_dict, with_overrides
from annotated_transformer.training.trainer import train
from recording import ResultCache, provenance, read_arguments
from annotated_transformer.tasks.parsing.treebank import (
    _replace_rare_words, _build_vocab, _make_parsing_dataset, _NLTK_SPLIT, _format_source, read_treebank)
from annotated_transformer.tasks.parsing.trees import (
    Tree, _bracket_counts, _bracket_spans, linearize, score_trees, delinearize)

CANDIDATES = {   # how the small recipe could be, with the next word told: changes, and are the constituents of the trees sentences, too?
    'half as long': (dict(max_steps=2000), False), 'as first written': (dict(max_steps=4000), False), 'constituents, half as long': (dict(max_steps=2000), True),
    'cosine, half as long': (dict(max_steps=2000, lr_scheduler_type='cosine'), False), 'cosine, three quarters': (dict(max_steps=3000, lr_scheduler_type='cosine'), False),
    'small batches': (dict(max_tokens=1024, max_steps=6000, lr_scheduler_type='cosine', peak_lr=1.2e-3, warmup_steps=1000, save_every='500 steps'), False)}
BASELINE_CANDIDATES = {     # a quarter of the updates without being told: does any of these get going?
    'as it is': {}, 'pre-norm': dict(norm='pre'), 'less dropout': dict(P_drop=0.1, P_attn=0.0), 'pre-norm, less dropout': dict(norm='pre', P_drop=0.1, P_attn=0.0),
    'lower rate': dict(peak_lr=7e-4), 'pre-norm, less dropout, small batches': dict(norm='pre', P_drop=0.1, P_attn=0.0, max_tokens=1024, peak_lr=1e-3, warmup_steps=1000)}
ARMS = {   # name: tags in the source, is the next word told, share of the training trees, seeds, changes to the recipe
    'words, next word': (None, True, 1, 3, {}), 'predicted tags, next word': ('predicted', True, 1, 3, {}), 'gold tags, next word': ('gold', True, 1, 3, {}),
    'words, next word, half': (None, True, 2, 1, {}), 'words, next word, a quarter': (None, True, 4, 1, {}),
    # three seeds were planned of this one, with tags and smaller treebanks, too, until it hardly learned anything
    'words': (None, False, 1, 1, {}), 'words, pre-norm, less dropout': (None, False, 1, 1, BASELINE_CANDIDATES['pre-norm, less dropout']),
    'words, next word, pre-norm, less dropout': (None, True, 1, 1, BASELINE_CANDIDATES['pre-norm, less dropout'])}
BEST_SETTING = 'as first written'
EXAMPLE_SENTENCE = 'The model reads a sentence with attention .'.split()

p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
p.add_argument('--data', type=Path, required=True, help='a folder with the .mrg files, or with the .tar.gz of them')
p.add_argument('--only', nargs='*', default=list(ARMS), choices=ARMS, metavar='ARM', help=f'arms to work at: {"; ".join(ARMS)}; none with the bare option')
p.add_argument('--seeds', type=int, default=3, help='at most so many of each arm')
p.add_argument('--beam', type=int, default=21)
p.add_argument('--choose', nargs='*', choices=[*CANDIDATES, *BASELINE_CANDIDATES], metavar='CHOICE', help=f'try settings on the validation files, with the next word told: {"; ".join(CANDIDATES)}; without: {"; ".join(BASELINE_CANDIDATES)}; all if none is named')
p.add_argument('--on', choices=('test', 'valid'), default='test', help='what is parsed; valid: to choose settings by')
p.add_argument('--runs', type=Path, default=Path('runs/parsing'), help='folder of the runs')
p.add_argument('--out', type=Path, help='the record, a JSON file, of all runs that are there')

def train_tagger(trees):
    "A tagger that has learned from these trees."
    from nltk.tag.perceptron import PerceptronTagger
    random.seed(0)
    tagger = PerceptronTagger(load=False)
    tagger.train([list(zip(t.words, t.tags)) for t in trees])
    return tagger

def predict_tags(trees):
    "Split → tags of each sentence; of the training sentences by a tagger that learned from nine tenths without them."
    found = {split: [None] * len(some) for split, some in trees.items()}
    def tag(tagger, split, i): found[split][i] = [tag for _, tag in tagger.tag(trees[split][i].words)]
    for fold in range(10):
        tagger = train_tagger([t for i, t in enumerate(trees['train']) if i % 10 != fold])
        for i in range(fold, len(trees['train']), 10): tag(tagger, 'train', i)
    tagger = train_tagger(trees['train'])
    for split in ('valid', 'test'):
        for i in range(len(trees[split])): tag(tagger, split, i)
    return found

def replace_tags(tree, tags):
    tags = iter(tags)
    def again(node): return Tree(next(tags), word=node.word) if node.word else Tree(node.label, tuple(map(again, node.children)))
    return again(tree)

def count_by_category(found, gold):
    "Brackets matched, in gold, predicted, by label and by the number of words (to the power of two below)."
    tallies = {'label': {}, 'words': {}}
    for ours, right in zip(found, gold):
        wanted = _bracket_spans(right)
        guessed = _bracket_spans(ours, right.tags) if ours else Counter()
        for i, spans in enumerate((wanted & guessed, wanted, guessed)):
            for (label, begin, end), n in spans.items():
                for kind, key in ('label', label), ('words', str(1 << (end - begin).bit_length() - 1)):
                    tallies[kind].setdefault(key, [0, 0, 0])[i] += n
    return tallies

def trace_attention(parser):
    "The tree of a sentence of ours, and where the decoder looks while it writes it: at the words, at its own tokens (layers, heads, rows)."
    tree, = parser.parse([EXAMPLE_SENTENCE], beam=parser.beam)
    tokens = linearize(tree)
    a = parser.attention(' '.join(EXAMPLE_SENTENCE), ' '.join(tokens))
    kept = lambda weights: [[[[round(w, 3) for w in row] for row in head] for head in layer] for layer in weights.tolist()]
    return dict(tokens=tokens, tree=str(tree), words=kept(a['memory']), own=kept(a['decoder']))

def constituents(tree, least=5):
    "The parts of a tree that have so many words; of parts that are the same words, the outermost."
    for node in tree.children:
        if not node.word:
            if least <= len(node.words) < len(tree.words): yield node
            yield from constituents(node, least)

def train_parser(run, trees, given, arm, seed, a, how=BEST_SETTING):
    "The parser and how it was trained. `given`: the trees with the tags that the parser sees; `how`: one of CHOICES."
    changes, parts = CANDIDATES[how] if how in CANDIDATES else (BASELINE_CANDIDATES[how] | dict(max_steps=4000 if 'small' in how else 1000), False)
    tags, next_word, share, _, own = ARMS[arm]
    learned = dict(given, train=given['train'][::share])
    pairs = _make_parsing_dataset(learned, tagged=tags is not None)
    if parts:
        known, rows = _build_vocab(word for tree in learned['train'] for word in tree.words), pairs['train'].to_list()
        rows += [dict(source=_format_source(_replace_rare_words(part.words, known), part.tags if tags else None), target=' '.join(linearize(part)))
                 for tree in learned['train'] for part in constituents(tree)]
        pairs['train'] = Dataset.from_list(rows, features=pairs['train'].features)
    recipe = get_recipe('parsing_small_next_word' if next_word else 'parsing_small', **changes | own | a.changes | dict(seed=seed))
    if share > 1: recipe = with_overrides(recipe, max_steps=recipe.schedule.max_steps // 2)        # half as many for fewer trees
    source = 'words' if tags is None else 'tagged'
    corpus = DatasetDict({split: rows.rename_columns(dict(source=source, target='trees')) for split, rows in pairs.items()})
    start, new = time.time(), not run.exists()
    train(recipe, corpus, run, resume=True)
    minutes, parsers, chosen = (time.time() - start) / 60 if new else None, {}, {}       # not known of a run that was interrupted
    for weights in ('average', 'best'):                     # which of the two parses the validation files better
        parsers[weights] = Parser.from_pretrained(run, weights=weights)
        given_tags = None if tags is None else [t.tags for t in given['valid']]
        chosen[weights] = score_trees(parsers[weights].parse([t.words for t in trees['valid']], given_tags, beam=1), trees['valid'])['F1']
    lines = RunDirectory(run).metrics()
    return parsers[max(chosen, key=chosen.get)], dict(
        precision=os.environ.get('ACCELERATE_MIXED_PRECISION', 'no'), minutes=minutes, valid=chosen, tokens_per_second=[m['tokens_per_s'] for m in lines if 'tokens_per_s' in m][-1:],
        curve=[(m['step'], m['valid_loss']) for m in lines if 'valid_loss' in m], trees=len(learned['train']), recipe=recipe_to_dict(RunDirectory(run).recipe))

def train_and_evaluate(run, trees, given, arm, seed, a):
    "Train and parse; what came of it. `trees` are as they are, by which it is scored."
    parser, told = train_parser(run, trees, given, arm, seed, a)
    tags, gold = ARMS[arm][0], trees[a.on]
    parser.beam, found, result = a.beam, {}, {}
    for way, constrained, beam in ('constrained', True, a.beam), ('free', False, a.beam), ('constrained, greedy', True, 1), ('constrained, beam 5', True, 5):
        parser.constrained, start = constrained, time.process_time()
        found[way] = parser.parse([t.words for t in gold], None if tags is None else [t.tags for t in given[a.on]], beam=beam)
        seconds = time.process_time() - start
        result[way] = dict(beam=beam, sentences_per_second=len(gold) / seconds, all=score_trees(found[way], gold), counts=_bracket_counts(found[way], gold).tolist(),
                           at_most_40=score_trees(found[way], gold, max_words=40))
    parser.constrained = True
    return result | told | dict(kinds=count_by_category(found['constrained'], gold), looked=trace_attention(parser) if tags is None else None)

def classify_tree_error(line, n):
    "With a line that should be a tree over so many words: their number, the brackets, or nothing."
    written = line.count('XX')
    wrong = [] if written == n else ['too few words' if written < n else 'too many words']
    try: delinearize(line, ['XX'] * written)
    except ValueError as e:
        wrong.append('ends too early' if 'at the end' in str(e) else 'closes another bracket than the innermost' if ' is open' in str(e) else 'other brackets')
    return ' and '.join(wrong) or 'tree'

def count_tree_errors(run, valid, given, a):
    "What the free search writes: trees, or lines that are none because of … (how many)."
    parser = Parser.from_pretrained(run, weights=max(valid, key=valid.get))
    parser.constrained = False
    ids = parser.encode([_format_source(t.words) for t in given])
    found = parser.map_in_batches(ids, partial(parser.search, beam=a.beam, alpha=.3), 16384 // a.beam, False)
    return Counter(classify_tree_error(parser.tokenizer.decode([best.ids])[0].split(), len(tree.words)) for tree, (best, *_) in zip(given, found))

def main(a):
    torch.set_num_threads(1)
    parts = ResultCache(a.runs / 'parts', dict(changes=a.changes, beam=a.beam, on=a.on))
    once, trees = parts.get_or_compute, read_treebank(a.data, _NLTK_SPLIT)
    @cache
    def tagged():
        tags = once('tags', lambda: predict_tags(trees), quiet=True)
        return {split: [replace_tags(t, new) for t, new in zip(some, tags[split])] for split, some in trees.items()}
    def dashed(name): return re.sub('[^a-z]+', '-', name)
    def read(arm, seed):
        key = f'{dashed(arm)}_{seed}'
        def work():
            made = train_and_evaluate(a.runs / key, trees, tagged() if ARMS[arm][0] == 'predicted' else trees, arm, seed, a)
            print(f"{arm}, seed {seed}: F1 {made['constrained']['all']['F1']:.2f}, free {made['free']['all']['F1']:.2f} with {made['free']['all']['invalid']} invalid", flush=True)
            return made
        made, run, lines = once(key, work), a.runs / key, f'{key}_wrong'
        if seed or ARMS[arm][0] or not ((run / 'model.safetensors').exists() or parts.has(lines)): return made
        return made | dict(lines=once(lines, lambda: count_tree_errors(run, made['valid'], trees[a.on], a)))
    def choice(name):
        key, arm = (f'choice_{dashed(name)}', 'words, next word') if name in CANDIDATES else (f'plain_{dashed(name)}', 'words')
        return once(key, lambda: train_parser(a.runs / key, trees, trees, arm, 0, a, name)[1])
    if a.choose is not None:
        for name in a.choose or [*CANDIDATES, *BASELINE_CANDIDATES]: print(name, choice(name)['valid'], flush=True)
        return
    for seed in range(a.seeds):                                     # the first of each arm, then the second …
        for arm in a.only:
            if seed < ARMS[arm][3]: read(arm, seed)
    if not a.out: return
    made = {arm: [read(arm, seed) for seed in range(n) if parts.has(f'{dashed(arm)}_{seed}')] for arm, (*_, n, _) in ARMS.items()}
    record = provenance('torch', 'accelerate', 'sentencepiece', 'nltk') | dict(split={s: len(t) for s, t in trees.items()}, runs={arm: found for arm, found in made.items() if found},
        choices={name: choice(name) for name in CANDIDATES if parts.has(f'choice_{dashed(name)}')},
        plain={name: choice(name) for name in BASELINE_CANDIDATES if parts.has(f'plain_{dashed(name)}')})
    seen, asked = (Counter(word for t in trees[split] for word in t.words) for split in ('train', 'test'))
    spelled, kept, often = _build_vocab(seen.elements()), Counter(), {}
    for word, n in asked.items(): kept['word' if word in spelled else 'signature' if _replace_rare_words([word], spelled) != ['*'] else '*'] += n
    for n in seen.values(): often.setdefault(1 << n.bit_length() - 1, []).append(n)              # by the power of two below
    record['lengths'] = [len(t.words) for t in trees['test']]
    record['words'] = dict(different=len(seen), once=sum(n == 1 for n in seen.values()), rare=100 * sum(n for word, n in asked.items() if seen[word] < 2) / asked.total(),
                           known=len(spelled), test={how: 100 * n / asked.total() for how, n in kept.items()}, occurrences={n: (len(found), sum(found)) for n, found in sorted(often.items())})
    if parts.has('tags'):
        for split in ('train', 'test'):
            right = [tag == gold for ours, t in zip(tagged()[split], trees[split]) for tag, gold in zip(ours.tags, t.tags)]
            record.setdefault('tags_right', {})[split] = 100 * sum(right) / len(right)
    for arm, found in record['runs'].items():
        how = {json.dumps([r['precision'], r['recipe'] | dict(seed=None)]) for r in found}
        if len(how) > 1: raise SystemExit(f'{arm}: the seeds were not trained in one way; remove the parts of some')
    text = re.sub(r'\[\s+(-?[\d.e-]+(?:,\s+-?[\d.e-]+)*)\s+\]', lambda m: '[' + re.sub(r'\s+', ' ', m[1]) + ']', json.dumps(record, indent=1))
    a.out.write_text(text + '\n')
    for arm, found in record['runs'].items(): print(f'{arm:<32}', ' '.join(f"{r['constrained']['all']['F1']:.2f}" for r in found))

if __name__ == '__main__': main(read_arguments(p, 'parsing_small'))
