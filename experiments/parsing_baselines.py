"""Section 6.3 in numbers: what grammars get from NLTK's sample of the Penn Treebank, beside which a Transformer will stand.

Trained on wsj_0001-0159, scored on wsj_0160-0179: branching to the right; the treebank's own grammar (Charniak 1996); the
same with each label naming its parent's, its long rules forgetting all but two sisters (Johnson 1998, Klein and Manning
2003). Each parse is the most probable one (CKY, exact). What is finished is kept in --out; it holds counts and no sentences.

    python experiments/parsing_baselines.py --data data/treebank --out nbs/results/parsing_baselines.json

If the environment variable EVALB names that program, its scores of the same trees are recorded too.
"""
import argparse, json, os, platform, re, subprocess, sys, tempfile, time
from collections import Counter, defaultdict
from importlib.metadata import version
from pathlib import Path
import numpy as np
from annotated_transformer.tasks.parsing.treebank import _word_signature, read_treebank
from annotated_transformer.tasks.parsing.bracket_scores import _bracket_counts, score_trees
from annotated_transformer.tasks.parsing.trees import Tree, linearize, delinearize

def right_branching(words, tags):
    "Every word the left part of a VP that holds the rest, S around all: no grammar at all."
    *leaves, tree = [Tree(tag, word=word) for word, tag in zip(words, tags)]
    for leaf in reversed(leaves): tree = Tree('VP', (leaf, tree))
    return Tree('S', tree.children or (tree,))

EVALB_PARAMS = 'DEBUG 0\nMAX_ERROR 100000\nCUTOFF_LEN 40\nLABELED 1\nDELETE_LABEL_FOR_LENGTH -NONE-\nEQ_LABEL ADVP PRT\n' + ''.join(
    f'DELETE_LABEL {tag}\n' for tag in ('TOP', '-NONE-', ',', ':', '``', "''", '.'))

def binarize(label, children, horizontal):
    """The rules of one constituent, at most two symbols on the right. What is still to come is a symbol that begins with @: if
    `horizontal` is None it says which parts these are, so that a long rule stays what it is; else it knows the last so many sisters."""
    left = label
    for i in range(1, len(children) - 1):
        rest = '@' + ' '.join(children[i:]) if horizontal is None else f'@{label}|' + ' '.join(children[max(0, i - horizontal):i])
        yield left, (children[i - 1], rest)
        left = rest
    yield left, tuple(children[-2:])

class Grammar:
    "Rules with their log probabilities, relative frequencies in `trees`, and tags of words; symbols are numbers."
    def __init__(self, trees, parents=False, horizontal=None):
        rules, self.word_tags, self.rare_tags, self.tags = Counter(), defaultdict(Counter), defaultdict(Counter), Counter()
        for tree in trees:
            rules['ROOT', (tree.label + '^ROOT' * parents,)] += 1
            for node, parent in walk_with_parents(tree):
                if node.word: self.word_tags[node.word][node.label] += 1; continue
                children = [c.label + ('' if c.word or not parents else f'^{node.label}') for c in node.children]
                for rule in binarize(node.label + f'^{parent}' * parents, children, horizontal): rules[rule] += 1
        for word, tags in self.word_tags.items():
            self.tags.update(tags)
            if tags.total() == 1: self.rare_tags[_word_signature(word)].update(tags), self.rare_tags['anything'].update(tags)
        symbols = sorted({s for left, right in rules for s in (left, *right)} | {*self.tags})
        self.symbols, self.index, total = symbols, {s: i for i, s in enumerate(symbols)}, Counter()
        for (left, _), n in rules.items(): total[left] += n
        def arrays(size):
            rows = sorted((self.index[left], *[self.index[s] for s in right], np.log(n / total[left]))
                            for (left, right), n in rules.items() if len(right) == size)
            *numbers, logp = zip(*rows)
            return [np.array(column) for column in numbers] + [np.array(logp)]
        self.one, self.two = arrays(1), arrays(2)          # [left, right, log p] and [left, first, second, log p]

    def leaves(self, words, tags=None):
        """(n, symbols): log p(word | tag), up to a constant for each word; 0 for the gold tag if tags are given. The tags of a
        word are those it occurs with and, as one more occurrence, those of words with its signature that occur once."""
        scores, n = np.full((len(words), len(self.symbols)), -np.inf), self.tags.total()
        for row, word, gold_tag in zip(scores, words, tags or [None] * len(words)):
            if gold_tag:
                if gold_tag in self.index: row[self.index[gold_tag]] = 0.
                continue
            counts, rare = self.word_tags.get(word, Counter()), self.rare_tags.get(_word_signature(word)) or self.rare_tags['anything']
            for tag in {*counts, *rare}:
                prob = (counts[tag] + rare[tag] / max(rare.total(), 1)) / (counts.total() + 1)         # p(tag | word)
                row[self.index[tag]] = np.log(prob * n / self.tags[tag])
        return scores

def walk_with_parents(tree, parent='ROOT'):
    "Each node and the label of its parent, depth first."
    yield tree, parent
    for child in tree.children: yield from walk_with_parents(child, tree.label)

def cky_chart(grammar, leaves):
    "(n, n + 1, symbols): the log probability of the best tree of each symbol over each span. CKY, a cell at a time."
    n, size = leaves.shape
    best = np.full((n, n + 1, size), -np.inf)
    (a1, b1, p1), (a2, b2, c2, p2) = grammar.one, grammar.two
    for width in range(1, n + 1):
        for i in range(n - width + 1):
            cell, j = best[i, i + width], i + width
            if width == 1: cell[:] = leaves[i]
            else:
                left, right = best[i, i + 1:j], best[i + 1:j, j]                  # (splits, symbols)
                in_left, in_right = left.max(0) > -np.inf, right.max(0) > -np.inf
                use = np.flatnonzero(in_left[b2] & in_right[c2])
                np.maximum.at(cell, a2[use], (left[:, b2[use]] + right[:, c2[use]]).max(0) + p2[use])
            while True:                                                           # chains, until nothing is better
                longer = cell.copy()
                np.maximum.at(longer, a1, cell[b1] + p1)
                if (longer == cell).all(): break
                cell[:] = longer
    return best

def backtrace(grammar, best, leaves, words, i, j, symbol):
    "The children of the best tree of a symbol over a span; the rules that led to it are computed again."
    (a1, b1, p1), (a2, b2, c2, p2) = grammar.one, grammar.two
    name = grammar.symbols[symbol]
    if j == i + 1 and leaves[i, symbol] > -np.inf: return [Tree(name, word=words[i])]
    ones, twos = [slice(*np.searchsorted(a, [symbol, symbol + 1])) for a in (a1, a2)]
    chains = best[i, j, b1[ones]] + p1[ones]
    pairs = best[i, i + 1:j][:, b2[twos]] + best[i + 1:j, j][:, c2[twos]] + p2[twos]   # (splits, rules)
    if pairs.size and pairs.max() >= chains.max(initial=-np.inf):
        split, rule = np.unravel_index(pairs.argmax(), pairs.shape)
        k, rule = i + 1 + split, twos.start + rule
        parts = backtrace(grammar, best, leaves, words, i, k, b2[rule]) + backtrace(grammar, best, leaves, words, k, j, c2[rule])
    else: parts = backtrace(grammar, best, leaves, words, i, j, b1[ones.start + chains.argmax()])
    return parts if name[0] == '@' or name == 'ROOT' else [Tree(name.split('^')[0], tuple(parts))]

def parse(grammar, words, tags=None):
    "The most probable tree and its log probability; None if the grammar has no tree for the sentence."
    leaves = grammar.leaves(words, tags)
    best, root = cky_chart(grammar, leaves), grammar.index['ROOT']
    if best[0, len(words), root] == -np.inf: return None, -np.inf
    return backtrace(grammar, best, leaves, words, 0, len(words), root)[0], best[0, len(words), root]

def evalb(binary, predicted, gold):
    "EVALB's scores of the same trees, with the rules of COLLINS.prm and gold tags: for all, for sentences of at most 40 words."
    with tempfile.TemporaryDirectory() as folder:
        def write(name, text): (Path(folder) / name).write_text(text)
        write('prm', EVALB_PARAMS)
        write('gold', ''.join(f'(TOP {t})\n' for t in gold))
        write('test', ''.join(f'(TOP {t})\n' if t else '\n' for t in predicted))
        output = subprocess.run([binary, '-p', 'prm', 'gold', 'test'], cwd=folder, capture_output=True, text=True).stdout
    names = {'Bracketing FMeasure': 'F1', 'Bracketing Recall': 'recall', 'Bracketing Precision': 'precision', 'Complete match': 'exact',
             'Number of Valid sentence': 'sentences'}
    return [{names[key.strip()]: float(value) for key, value in re.findall(r'^(.+?)= +(\S+)$', part, re.MULTILINE) if key.strip() in names}
            for part in re.split(r'^-- .*$', output, flags=re.MULTILINE)[1:]]

def replace_tags(tree, tags):
    "A tree with other tags: EVALB deletes words by their tags, so it gets the gold ones."
    tags = iter(tags)
    def copy(node): return Tree(next(tags), word=node.word) if node.word else Tree(node.label, tuple(map(copy, node.children)))
    return copy(tree)

PARSERS = {'right-branching': dict(trees=0), 'treebank grammar': {}, 'parents, two sisters': dict(parents=True, horizontal=2),
           'treebank grammar, given tags': dict(gold_tags=True), 'parents, two sisters, given tags': dict(parents=True, horizontal=2, gold_tags=True),
           'parents, two sisters, 425 trees': dict(parents=True, horizontal=2, trees=425),
           'parents, two sisters, 850 trees': dict(parents=True, horizontal=2, trees=850),
           'parents, two sisters, 1,700 trees': dict(parents=True, horizontal=2, trees=1700)}

def run(train, gold, trees=None, gold_tags=False, **settings):
    "The scores of one parser, trained on the first so many `trees`, with gold tags or tags that the grammar predicts."
    start, failed, hits, predicted = time.process_time(), 0, 0, []
    train = train[:trees]
    grammar = Grammar(train, **settings) if train else None
    for tree in gold:
        best = parse(grammar, tree.words, tree.tags if gold_tags else None)[0] if grammar else right_branching(tree.words, tree.tags)
        failed += best is None
        best = best or right_branching(tree.words, tree.tags)
        hits += sum(a == b for a, b in zip(best.tags, tree.tags))
        predicted.append(replace_tags(best, tree.tags))
    result = dict(trees=len(train), failed=failed, tags=100 * hits / sum(len(t.words) for t in gold), all=score_trees(predicted, gold),
                  at_most_40=score_trees(predicted, gold, max_words=40), counts=_bracket_counts(predicted, gold).tolist())
    if grammar: result |= dict(symbols=len(grammar.symbols), rules=len(grammar.one[0]) + len(grammar.two[0]))
    if binary := os.environ.get('EVALB'): result['EVALB'] = evalb(binary, predicted, gold)
    return result | dict(minutes=(time.process_time() - start) / 60)

def corpus_statistics(data):
    "Counts of the data: trees, words, tokens, and how many trees survive being linearised and read back."
    all_trees, dev = [tree for trees in data.values() for tree in trees], data['development']
    back = sum(delinearize(linearize(t), t.words, t.tags) == t == delinearize(linearize(t, tags=True), t.words) for t in all_trees)
    vocab, tokens = {word for t in data['train'] for word in t.words}, [len(linearize(t)) for t in all_trees]
    unseen = sum(word not in vocab for t in dev for word in t.words)
    return {name: len(trees) for name, trees in data.items()} | dict(
        words=sum(len(t.words) for t in all_trees), tokens=sum(tokens), most_words=max(len(t.words) for t in all_trees), most_tokens=max(tokens), there_and_back=back,
        labels=len({node.label for t in all_trees for kind, node in t.walk() if kind == 'open'}), tags=len({tag for t in all_trees for tag in t.tags}),
        unseen_words=100 * unseen / sum(len(t.words) for t in dev))

def main():
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument('--data', type=Path, default=Path('data/treebank'), help='a folder with the .mrg files, or with the .tar.gz of them')
    p.add_argument('--out', type=Path, default=Path('nbs/results/parsing_baselines.json'), help='the record; parsers that it contains are not run again')
    args = p.parse_args()
    data = read_treebank(args.data)
    commit = subprocess.run(['git', 'rev-parse', '--short', 'HEAD'], capture_output=True, text=True).stdout.strip()
    record = json.loads(args.out.read_text()) if args.out.exists() else dict(
        command='python ' + ' '.join(sys.argv), commit=commit, machine=f'{platform.machine()}, one thread',
        versions=dict(python=platform.python_version(), numpy=version('numpy')), data=corpus_statistics(data), runs={})
    for name, settings in PARSERS.items():
        if name in record['runs']: continue
        record['runs'][name] = result = run(data['train'], data['development'], **settings)
        print(f'{name}: F1 {result["all"]["F1"]:.2f}, {result["failed"]} failed, {result["minutes"]:.1f} minutes', flush=True)
        text = json.dumps(record, indent=1)
        args.out.write_text(re.sub(r'\[\s+(-?\d+(?:,\s+-?\d+)*)\s+\]', lambda m: '[' + re.sub(r'\s+', ' ', m[1]) + ']', text) + '\n')

if __name__ == '__main__': main()
