"A classifier: its commands, its log, pooling, probabilities and attributions; what a toy of four models needs to know the winner."
import random
from collections import Counter
from itertools import combinations

import pytest
import torch
from datasets import Dataset, DatasetDict
from helpers import run_in_process, assert_user_error
from torch.testing import assert_close

from annotated_transformer.cli.classify import transformer_classify
from annotated_transformer.model.seq2seq import register_architecture
from annotated_transformer.tasks.classification.classifier import Classifier, ClassifierConfig, TextClassifier, accuracy, integrated_gradients
from annotated_transformer.recipe import get_recipe, with_overrides
from annotated_transformer.run_directory import RunDirectory
from annotated_transformer.training.trainer import train
from annotated_transformer.utils.validation import UserError


@pytest.mark.parametrize('name, args', dict(translate=[], evaluate=[], score=['--src', 'x', '--ref', 'x'], export=[], train=['--eval_bleu_samples', '3']).items())
def test_a_classifier_is_sent_to_its_own_command(name, args, classifier, capfd, tmp_path, monkeypatch):
    (tmp_path / 'x').write_text('rain\n')
    monkeypatch.chdir(tmp_path)
    if name == 'train': assert_user_error(run_in_process(capfd, 'train', '--finetune_from', classifier[0], '--dataset', 'text', '--source_lang', 'en', '--target_lang', 'desk', '--data_dir', classifier[0].parent, '--output_dir', 'y', *args), 'BLEU needs a translation model')
    else: assert_user_error(run_in_process(capfd, name, classifier[0], *args, stdin='rain\n'), 'use transformer_classify', *(['only those are exported'] if name == 'export' else []))

def test_a_classifier_of_noise_logs_the_accuracy_that_counting_gives(tmp_path):
    torch.manual_seed(1)
    texts = [' '.join(f'w{i}' for i in torch.randint(20, (5,)).tolist()) for _ in range(360)]
    labels = [f'l{i}' for i in torch.randint(4, (360,)).tolist()]
    rows = lambda part: Dataset.from_dict(dict(text=texts[part], label=labels[part]))
    splits = DatasetDict(train=rows(slice(0, 200)), valid=rows(slice(200, 340)), test=rows(slice(340, 360)))
    recipe = get_recipe('classify_small', vocab_size=8, src_vocab_size=24, N=1, d_model=16, d_ff=16, h=2, P_drop=0., max_steps=20, warmup_steps=5, max_tokens=512, average_checkpoints=1, save_every='20 steps', preprocessing='words')
    train(recipe, splits, tmp_path / 'run')
    last = [m for m in RunDirectory(tmp_path / 'run').metrics() if 'valid_loss' in m][-1]
    found = TextClassifier.from_pretrained(tmp_path / 'run').classify(splits['valid']['text'], top_k=4)
    right = sum(row[0][0] == label for row, label in zip(found, splits['valid']['label']))
    nats = -sum(torch.tensor(dict(row)[label]).log().item() for row, label in zip(found, splits['valid']['label'])) / 140
    assert abs(last['valid_accuracy'] - right / 140) < 1e-6, Counter(labels)
    assert abs(last['valid_loss'] - nats) < 1e-3 and last['valid_loss'] > 1.2

def small(**changes):
    torch.manual_seed(0)
    return Classifier(ClassifierConfig(**dict(vocab_size=8, src_vocab_size=20, d_model=16, d_ff=32, max_len=12) | changes)).eval()

SRC = torch.tensor([[5, 6, 7, 8, 9, 3]])

@pytest.mark.parametrize('changes', [dict(), dict(pooling='max'), dict(pooling='first'), dict(N=0, positions='none')])
def test_padding_changes_nothing(changes):
    "Every kind of pooling leaves padding out."
    model, wide = small(**changes), torch.cat([SRC, torch.zeros(1, 3, dtype=torch.long)], 1)
    assert_close(model(SRC, SRC[:, :2]), model(wide, SRC[:, :2]))

@pytest.mark.parametrize('pooling, expected', [('mean', [2., -3.]), ('max', [3., -2.]), ('first', [1., -2.])])
def test_pooling_by_hand(pooling, expected):
    "Two tokens and a padded one; with `max` even where all real components are negative."
    z, mask = torch.tensor([[[1., -2.], [3., -4.], [9., 9.]]]), torch.tensor([[[True], [True], [False]]])
    assert small(pooling=pooling, d_model=4, max_len=4).pool(z, mask)[0].tolist() == expected

def test_without_positions_the_order_of_tokens_means_nothing():
    "Only a model with positions tells a text from its reversal."
    bag, model, reverse = small(positions='none'), small(), SRC.flip(1)
    assert_close(bag(SRC), bag(reverse))
    assert (model(SRC) - model(reverse)).abs().max() > .01

def test_one_label_for_a_text_and_no_decoding():
    "The shape of the logits, the label in a target, and `init_state` refused."
    model = small()
    assert model(SRC).shape == (1, 1, 8) and model.labels(torch.tensor([[2, 7, 3, 0]])).tolist() == [[7]]
    with pytest.raises(UserError, match='generates no text'): model.init_state(SRC)

@pytest.mark.parametrize('field, value, message', [('pooling', 'median', 'pooling'), ('h', 3, 'does not divide'), ('N', -1, 'N=-1'), ('positions', 'off', 'positions')])
def test_impossible_configurations_are_refused(field, value, message):
    "The message names the field."
    with pytest.raises(ValueError, match=message): ClassifierConfig(**{field: value})

def test_attributions_of_a_linear_model_are_exact():
    "Without layers one step and 32 give the logit without its bias."
    model = small(N=0, positions='none')
    exact = model(SRC)[0, 0, 5] - model.classifier.bias[5]
    for n_steps in 1, 32: assert_close(integrated_gradients(model, SRC, 5, n_steps=n_steps).sum(), exact)

def test_attributions_add_up():
    "Completeness: many steps sum to the difference of logits from the baseline of zeros; one step does not."
    model = small()
    x = model.embed_tokens(SRC)
    logits, baseline = (model.forward_embeddings(v, SRC)[0] for v in (x, 0 * x))
    total = (logits[5] - logits[6] - baseline[5] + baseline[6]).detach()
    one, many = ((integrated_gradients(model, SRC, 5, 6, n_steps).sum() - total).abs() for n_steps in (1, 500))
    assert many < .01 < one

def test_accuracy():
    "Three of four with Wilson's interval; lists of different length are refused."
    assert accuracy(['a', 'b', 'b', 'b'], ['a', 'b', 'b', 'a']) == {
        'accuracy': 75., 'right': '3 of 4', '95 % interval': '30.06 to 95.44', 'majority-class baseline': 50.}
    with pytest.raises(UserError, match='1 labels for 0 texts'): accuracy(['a'], [])

TEAMS = 'Bears Hawks Lions Sharks'.split()
FORMS = 'W beat L|W too strong for L|L lose to W|L beaten by W|no way past W for L|W win as L fail|L fail as W win|defeat for L against W|victory for W against L'.split('|')
MORE = '|again|today|at home|last night|in the rain'.split('|')

class NoMixing(torch.nn.Module):
    "In place of attention: no token takes anything from another."
    def forward(self, query, key, value, mask=None): return torch.zeros_like(query)

@register_architecture('test_no_mixing')
class NoMixingClassifier(Classifier):
    def make_attention(self, role): return NoMixing()

def report(form, more, winner, loser, front):
    "A line of sports and its label, the winner."
    words = [dict(W=winner, L=loser).get(word, word) for word in form.split()]
    return ' '.join(more.split() + words if front else words + more.split()), winner

@pytest.fixture(scope='module')
def reports():
    "Twins side by side: the same words, the names exchanged, the other winner."
    twins = [[report(form, m, *names, front) for names in ((a, b), (b, a))]
             for a, b in combinations(TEAMS, 2) for form in FORMS for m in MORE for front in (0, 1) if m or not front]
    random.Random(0).shuffle(twins)
    table = lambda pairs: Dataset.from_dict(dict(zip(('report', 'winner'), zip(*sum(pairs, [])))))
    return DatasetDict(test=table(twins[:100]), valid=table(twins[100:150]), train=table(twins[150:]))

@pytest.fixture(scope='module')
def train_reports(reports, tmp_path_factory):
    "Trains a classifier of reports once for each set of changes; gives its folder."
    folder, recipe = tmp_path_factory.mktemp('reports'), get_recipe(
        'classify_small', vocab_size=8, src_vocab_size=48, d_model=32, d_ff=64, P_drop=0., max_len=16, max_steps=300, max_tokens=1024,
        warmup_steps=50, peak_lr=5e-3, save_every='100 steps', average_checkpoints=1, preprocessing='words', overlong='drop')
    def trained(**changes):
        run = folder / ('-'.join(f'{k}={v}' for k, v in changes.items()) or 'encoder')
        if not run.exists(): train(with_overrides(recipe, **changes), reports, run)
        return run
    return trained

BAG = dict(N=0, positions='none')

@pytest.mark.parametrize('changes', [{}, BAG, dict(positions='none'), dict(architecture='test_no_mixing')])
def test_who_won_needs_attention_and_positions(changes, reports, train_reports):
    "Without order a model is never right for both twins; positions without attention help as little; the encoder knows the winner."
    labels = TextClassifier.from_pretrained(train_reports(**changes)).classify(reports['test']['report'])
    right = [row[0][0] == winner for row, winner in zip(labels, reports['test']['winner'])]
    if not changes: assert sum(right) > 180
    elif 'architecture' in changes: assert sum(right) < 160
    else: assert not any(a and b for a, b in zip(right[::2], right[1::2]))

def test_the_winner_speaks_for_the_label_and_the_loser_against_it(reports, train_reports):
    "Integrated gradients do so in nearly all reports, and in more than gradient times input."
    encoder = TextClassifier.from_pretrained(train_reports())
    def as_expected(line, winner, n_steps):
        words = line.split()
        loser, = {*words} & {*TEAMS} - {winner}
        ids, src = [row[0] for row in encoder.tokenizer.encode([winner, loser])], encoder.encode([line])[0][None]
        share = integrated_gradients(encoder.models[0], src, *ids, n_steps=n_steps)
        return bool(share[words.index(winner)] > 0 > share[words.index(loser)])
    one, many = (sum(as_expected(*row.values(), n_steps) for row in reports['test']) for n_steps in (1, 32))
    assert many > max(180, one)

def test_texts_that_are_too_long_are_cut(train_reports):
    "To `max_len` tokens with eos; all labels are there, and nearly all of the probability."
    encoder = TextClassifier.from_pretrained(train_reports())
    labels, = encoder.classify(['Bears beat Hawks ' + 'again ' * 50], 9)
    assert sorted(name for name, _ in labels) == TEAMS and abs(sum(p for _, p in labels) - 1) < .02
    assert [labels] == encoder.classify(['Bears beat Hawks' + ' again' * 12], 9)

def test_an_ensemble_averages_probabilities(train_reports):
    "Of an encoder and a bag of words."
    encoder, bag = (TextClassifier.from_pretrained(train_reports(**changes)) for changes in ({}, BAG))
    both = TextClassifier([*encoder.models, *bag.models], encoder.tokenizer, encoder.config)
    ensemble, *each = (dict(t.classify(['Bears beat Hawks'], 4)[0])['Bears'] for t in (both, encoder, bag))
    assert abs(ensemble - sum(each) / 2) < 1e-6

def test_what_a_classifier_refuses(train_reports):
    "Empty texts, no labels, translation; the command neither two sources nor no labels."
    run = train_reports()
    encoder = TextClassifier.from_pretrained(run)
    with pytest.raises(UserError, match='text 2 is empty'): encoder.classify(['Bears win', ' '])
    with pytest.raises(UserError, match='top_k=0'): encoder.classify(['Bears win'], 0)
    with pytest.raises(UserError, match='generates no text'): encoder.translate(['Bears lose to Hawks today'])
    with pytest.raises(UserError, match='not both'): transformer_classify(str(run), input='a', evaluate=True)
    with pytest.raises(UserError, match='top_k=0'): transformer_classify(str(run), input='a', top_k=0)

def test_the_command_evaluates_the_test_split(reports, train_reports, capsys):
    "It counts the right labels as `classify` gives them."
    run = train_reports()
    labels = TextClassifier.from_pretrained(run).classify(reports['test']['report'])
    right = sum(row[0][0] == winner for row, winner in zip(labels, reports['test']['winner']))
    capsys.readouterr()
    transformer_classify(str(run), evaluate=True)
    assert capsys.readouterr().out.splitlines()[1] == f'right: {right} of 200'
