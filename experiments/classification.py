"""Beyond the paper: what each part of an encoder is worth for the headlines of THUCNews and the articles of AG News, beside linear SVMs.

Each run is trained, labels the test texts and is written down in a file of its own; an interrupted command goes on where it was. Several
processes may share the work by --only; a last command without it writes the record. The linear SVMs are scikit-learn's
(pip install scikit-learn); they learn from the same training texts, and once from all that are not in the test.

    python experiments/classification.py --thucnews data/thucnews --ag_news data/ag_news --out nbs/results/classification.json
"""
import argparse, base64, json
from functools import cache
from pathlib import Path
from statistics import mean
import numpy as np
import torch
from datasets import DatasetDict
from annotated_transformer.tasks.classification.classifier import TextClassifier, accuracy, integrated_gradients
from annotated_transformer.data.corpora import load_corpus
from annotated_transformer.run_directory import RunDirectory
from annotated_transformer.recipe import get_recipe
from annotated_transformer.training.trainer import train
from classification_arms import ClassifierArm  # noqa: F401 (registers it)
from recording import ResultCache, provenance, read_arguments

CUSTOM_ARCHITECTURE = dict(architecture='classifier_arm')     # which `classification_arms` registers
ARMS = {   # name: corpus, recipe, changes, size of the training set (None: all)
    'encoder': ('thucnews', 'classify_small', {}, None), 'bigrams': ('thucnews', 'classify_small', dict(CUSTOM_ARCHITECTURE, bigrams=100000), None),
    'bag': ('thucnews', 'classify_small', dict(N=0, positions='none'), None), 'bag, bigrams': ('thucnews', 'classify_small', dict(CUSTOM_ARCHITECTURE, N=0, positions='none', bigrams=100000), None),
    'no positions': ('thucnews', 'classify_small', dict(positions='none'), None), 'no attention': ('thucnews', 'classify_small', dict(CUSTOM_ARCHITECTURE, attention='none'), None),
    'heads by view': ('thucnews', 'classify_small', dict(CUSTOM_ARCHITECTURE, attention='view'), None), 'first': ('thucnews', 'classify_small', dict(pooling='first'), None),
    'max': ('thucnews', 'classify_small', dict(pooling='max'), None), 'flat': ('thucnews', 'classify_small', dict(CUSTOM_ARCHITECTURE, flat=True), None), 'heads by view, flat': ('thucnews', 'classify_small', dict(CUSTOM_ARCHITECTURE, attention='view', flat=True), None),
    'one layer': ('thucnews', 'classify_small', dict(N=1), None), 'four layers': ('thucnews', 'classify_small', dict(N=4), None),
    **{f'encoder, {n}': ('thucnews', 'classify_small', dict(max_steps=steps), n) for n, steps in ((1000, 400), (5000, 800), (20000, 1500))},
    'bigrams, flat': ('thucnews', 'classify_small', dict(CUSTOM_ARCHITECTURE, bigrams=100000, flat=True), None),   # added after the other results
    'AG News': ('ag_news', 'agnews_bpe', {}, None), 'AG News, bag': ('ag_news', 'agnews_bpe', dict(N=0, positions='none'), None),
    'AG News, bag, bigrams': ('ag_news', 'agnews_bpe', dict(CUSTOM_ARCHITECTURE, N=0, positions='none', bigrams=100000), None)}

ENSEMBLE_ARMS = 'encoder', 'flat', 'bigrams', 'bigrams, flat', 'AG News'   # evaluated as ensembles of their seeds, too
CANDIDATES = {   # other settings of the recipes: one seed each, compared on the validation texts; chosen if better by 0.3 points or more
    'encoder': {'as first written': {}, 'less dropout': dict(P_drop=0.2), 'more dropout': dict(P_drop=0.4), 'smoothing': dict(eps_ls=0.1)},
    'bigrams': {'as first written': {}, 'more dropout': dict(P_drop=0.5), 'smoothing': dict(eps_ls=0.1)},
    'bigrams, flat': {'as first written': {}, 'more dropout': dict(P_drop=0.5)},
    'bag': {'as first written': {}, 'rate 0.006': dict(peak_lr=6e-3), 'rate 0.02': dict(peak_lr=2e-2)},
    'bag, bigrams': {'as first written': {}, 'rate 0.006': dict(peak_lr=6e-3), 'more dropout': dict(P_drop=0.5)},
    'AG News': {'as first written': {}, 'less dropout': dict(P_drop=0.3), 'smoothing': dict(eps_ls=0.1)},
    'AG News, bag': {'as first written': {}, 'rate 0.006': dict(peak_lr=6e-3)},
    'AG News, bag, bigrams': {'as first written': {}, 'rate 0.006': dict(peak_lr=6e-3)}}
BEST_SETTINGS = dict.fromkeys(CANDIDATES, 'as first written') | {'bag, bigrams': 'more dropout', 'AG News, bag, bigrams': 'rate 0.006'}

p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
p.add_argument('--thucnews', type=Path, required=True, help='folder of class.txt, train.txt, dev.txt')
p.add_argument('--ag_news', type=Path, required=True, help='folder of classes.txt, train.csv')
p.add_argument('--only', nargs='+', default=list(ARMS), choices=ARMS, metavar='ARM', help=f'arms to run: {"; ".join(ARMS)}')
p.add_argument('--seeds', type=int, default=3)
p.add_argument('--choose', action='store_true', help='evaluate the candidate settings on the validation texts')
p.add_argument('--runs', type=Path, default=Path('runs/classification'), help='folder of the runs')
p.add_argument('--out', type=Path, help='the record, a JSON file')

@cache
def load_splits(corpus, data_dir, size=None):
    "The splits of a corpus, with the first `size` training texts."
    splits = load_corpus(corpus, data_dir)
    return splits if size is None else DatasetDict(splits, train=splits['train'].select(range(size)))

def pack_bits(correct):
    "A row of booleans as text."
    return base64.b64encode(np.packbits(correct).tobytes()).decode()

def analyze_predictions(predictions, gold):
    "Confusion matrix and reliability of one run."
    names = sorted({*gold})
    confidence, correct = np.array([p for _, p in predictions]), np.array([label == g for (label, _), g in zip(predictions, gold)])
    bins = np.minimum((confidence * 10).astype(int), 9)
    return dict(names=names, confusion=[[sum(g == a and label == b for (label, _), g in zip(predictions, gold)) for b in names] for a in names],
                reliability=[dict(n=int((bins == k).sum()), sure=float(confidence[bins == k].mean()), right=float(correct[bins == k].mean()))
                             for k in range(10) if (bins == k).any()])

def explain_examples(translator, sources, gold, predictions, n=3):
    "The first n headlines that are labelled correctly, and wrongly: attention to each character, and its attribution for the label against the second, or the gold one."
    model, t, rows = translator.models[0], translator.tokenizer, []
    attention = [layer.self_attn for layer in model.encoder.layers]
    for correct in (True, False):
        for text, g, ((label, p), (second, _)) in [row for row in zip(sources, gold, predictions) if (row[2][0][0] == row[1]) == correct][:n]:
            src, other = translator.encode([text])[0][None], second if correct else g
            a, b = (ids[0] for ids in t.encode([label, other]))
            for m in attention: m.need_weights = True
            model.forward_embeddings(model.embed_tokens(src), src)
            weights = [m.attn_weights[0].mean((0, 1)).tolist() for m in attention]                        # of a layer: (h, T, T) → (T,)
            for m in attention: m.need_weights = False
            rows.append(dict(seen=weights, tokens=t.src_tokenizer.convert_ids_to_tokens(src[0].tolist()), label=label, other=other, right=g, p=p, relevance=integrated_gradients(model, src, a, b).tolist()))
    return rows

def train_arm(run, corpus, recipe, changes, seed, a, size=None):
    "Train: the splits, and the accuracy on the validation texts."
    splits = load_splits(corpus, vars(a)[corpus], size)
    columns = dict(source='zh' if corpus == 'thucnews' else 'en', target='label')
    train(get_recipe(recipe, **changes | a.changes | dict(seed=seed)), DatasetDict({k: v.rename_columns(columns) for k, v in splits.items()}), run, resume=True)
    metrics = [m for m in RunDirectory(run).metrics() if 'valid_loss' in m]
    return splits, dict(valid=metrics[-1]['valid_accuracy'], best_valid=max(m['valid_accuracy'] for m in metrics))

def validate_setting(run, arm, choice, a):
    "A setting of an arm, on the validation texts."
    corpus, recipe, changes, _ = ARMS[arm]
    return train_arm(run, corpus, recipe, changes | CANDIDATES[arm][choice], 0, a)[1]

def arm_settings(arm):
    "Corpus, recipe, changes, size, with the best setting."
    corpus, recipe, changes, size = ARMS[arm]
    return corpus, recipe, changes | CANDIDATES[arm][BEST_SETTINGS[arm]] if arm in BEST_SETTINGS else changes, size

def train_and_evaluate(run, arm, seed, a):
    "Train and label the test texts."
    corpus, recipe, changes, size = arm_settings(arm)
    splits, valid = train_arm(run, corpus, recipe, changes, seed, a, size)
    translator, test = TextClassifier.from_pretrained(run), splits['test']
    predictions = translator.classify(test['source'], 2)
    best, gold = [row[0] for row in predictions], list(test['target'])
    correct = [label == g for (label, _), g in zip(best, gold)]
    more = {}
    if seed == 0 and arm in ('encoder', 'bigrams', 'AG News'): more = analyze_predictions(best, gold)
    if seed == 0 and arm == 'encoder': more |= dict(looked=explain_examples(translator, test['source'], gold, predictions))
    return dict(accuracy=accuracy([label for label, _ in best], gold), correct=pack_bits(correct), sure=mean(p for _, p in best),
                parameters=sum(w.numel() for w in translator.models[0].parameters()), learned_from=len(splits['train'])) | valid | more

def evaluate_ensemble(arm, a, folder):
    "The seeds of an arm as an ensemble: the mean of their probabilities."
    corpus, recipe, changes, size = arm_settings(arm)
    runs = [folder(arm, seed) for seed in range(a.seeds)]
    for seed, run in enumerate(runs): splits, _ = train_arm(run, corpus, recipe, changes, seed, a, size)       # if this machine does not have the run
    predictions = [label for (label, _), in TextClassifier.from_pretrained(runs).classify(splits['test']['source'])]
    gold = list(splits['test']['target'])
    return dict(accuracy=accuracy(predictions, gold), correct=pack_bits([p == g for p, g in zip(predictions, gold)]))

def evaluate_linear_svm(corpus, a, size=None, ngrams=(1, 2), everything=False):
    "TF-IDF of characters, or of words, and a support vector machine."
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.pipeline import make_pipeline
    from sklearn.svm import LinearSVC
    splits = load_splits(corpus, vars(a)[corpus], size)
    parts = [splits['train'], splits['valid']] if everything else [splits['train']]
    sources, labels = (sum((list(part[side]) for part in parts), []) for side in ('source', 'target'))
    kind = 'char' if corpus == 'thucnews' else 'word'
    machine = make_pipeline(TfidfVectorizer(analyzer=kind, ngram_range=ngrams, lowercase=kind == 'word'), LinearSVC(random_state=0))
    predictions = list(machine.fit(sources, labels).predict(list(splits['test']['source'])))
    gold = list(splits['test']['target'])
    return dict(accuracy=accuracy(predictions, gold), correct=pack_bits([p == g for p, g in zip(predictions, gold)]), learned_from=len(sources))

def main(a):
    torch.set_num_threads(1)
    once = ResultCache(a.runs / 'parts', a.changes).get_or_compute
    place = lambda *words: '_'.join(map(str, words)).replace(', ', '_').replace(' ', '-')
    choice = lambda arm, name: once(place('choice', arm, name), lambda: validate_setting(a.runs / place('choice', arm, name), arm, name, a))
    if a.choose: return [choice(arm, name) for arm in a.only for name in CANDIDATES.get(arm, ())]
    folder = lambda arm, seed: a.runs / (place('choice', arm, BEST_SETTINGS[arm]) if arm in BEST_SETTINGS and seed == 0 else place(arm, seed))    # already trained with --choose
    read = lambda arm, seed: once(place(arm, seed), lambda: train_and_evaluate(folder(arm, seed), arm, seed, a))
    for seed in range(a.seeds):
        for arm in a.only: read(arm, seed)
    if {*a.only} < {*ARMS}: return
    machines = {'thucnews, singles': ('thucnews', dict(ngrams=(1, 1))), 'thucnews': ('thucnews', {}), 'thucnews, with the validation texts': ('thucnews', dict(everything=True)),
                **{f'thucnews, {n}': ('thucnews', dict(size=n)) for n in (1000, 5000, 20000)}, 'ag_news': ('ag_news', {})}
    svm = {name: once(place('svm', name), lambda corpus=corpus, settings=settings: evaluate_linear_svm(corpus, a, **settings)) for name, (corpus, settings) in machines.items()}
    ensembles = {arm: once(place('together', arm), lambda arm=arm: evaluate_ensemble(arm, a, folder)) for arm in ENSEMBLE_ARMS}
    record = provenance('torch', 'accelerate', 'sentencepiece', 'scikit-learn') | dict(
        runs={arm: [read(arm, seed) for seed in range(a.seeds)] for arm in ARMS}, together=ensembles, svm=svm, choices={arm: {name: choice(arm, name) for name in names} for arm, names in CANDIDATES.items()})
    if a.out: a.out.write_text(json.dumps(record, indent=1, ensure_ascii=False) + '\n')
    for name, seeds in record['runs'].items(): print(f'{name:<24}', ' '.join(f"{r['accuracy']['accuracy']:.2f}" for r in seeds))
    for arm, result in ensembles.items(): print(f'{arm + ", all seeds as one":<40}', f"{result['accuracy']['accuracy']:.2f}")
    for name, result in svm.items(): print(f'{"SVM, " + name:<40}', f"{result['accuracy']['accuracy']:.2f}")

if __name__ == '__main__': main(read_arguments(p, 'classify_small'))
