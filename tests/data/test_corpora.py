"""The corpora by name and their fingerprints. What corpora are refused, and what is said of them: columns that hold no text, headers, missing
values that are words, validation and test sentences that were trained on, pairs of which nothing is left."""
import json
import os
from collections import Counter
from inspect import signature
from pkgutil import resolve_name

import datasets
import pytest
from datasets import ClassLabel, Dataset, DatasetDict, Features, Value, load_from_disk
from helpers import SMALL_OVERRIDES, cli_args, run_in_process, number_lines, assert_success, assert_user_error, write_files

from annotated_transformer.data.corpora import _DATASETS, _corpus_fingerprint, _load_multi30k, _load_numbers, _load_wmt14, load_corpus, _resolve_corpus
from annotated_transformer.data.number_names import number_speller, sample_numbers
from annotated_transformer.data.preprocessing import PreprocessingConfig, preprocess_corpus
from annotated_transformer.recipe import get_recipe
from annotated_transformer.training.trainer import train


def splits(n=60, **columns):
    columns = columns or dict(en='en', de='de')
    return DatasetDict(train=Dataset.from_dict({c: list(map(number_speller(lang), range(n))) for c, lang in columns.items()}))

def test_own_splits(tmp_path):
    "A DatasetDict in memory is trained on, and the run goes on in another process' copy of it, but not with another text."
    recipe = get_recipe('demo', **SMALL_OVERRIDES)
    train(recipe, splits(), tmp_path / 'out')
    train(get_recipe('demo', **SMALL_OVERRIDES | dict(max_steps=4)), splits(), tmp_path / 'out', resume=True)
    config = json.loads((tmp_path / 'out/config.json').read_text())
    assert (config['dataset'], config['source_lang'], config['target_lang']) == ('custom', 'en', 'de')
    with pytest.raises(ValueError, match='has changed since'): train(get_recipe('demo', **SMALL_OVERRIDES | dict(max_steps=6)), splits(61), tmp_path / 'out', resume=True)
    with pytest.raises(ValueError, match='the same two columns'): train(recipe, splits(en='en', de='de', fr='fr'), tmp_path / 'other')

def test_hub_data(capfd, tmp_path):
    "A data set in a form of the hub, here from a folder; what is wrong with it, or with its name, is said."
    rows = '\n'.join(json.dumps(dict(translation=dict(en=number_speller('en')(i), de=number_speller('de')(i)))) for i in range(60))
    write_files(tmp_path / 'set', train_jsonl=rows)
    def go(where, target='de'): return run_in_process(capfd, 'train', '--recipe', 'demo', '--dataset', 'hub', '--source_lang', 'en', '--target_lang', target, '--data_dir', where, '--output_dir', tmp_path / 'out', *cli_args(SMALL_OVERRIDES))
    assert_user_error(go(tmp_path / 'set', 'fr'), 'no column fr, there are translation.')
    assert_user_error(go('nobody'), 'nobody is neither a folder nor a data set of the hub')
    assert_user_error(go('no/body@main'), 'no/body@main cannot be read as a data set')
    assert_user_error(run_in_process(capfd, 'train', '--recipe', 'demo', '--dataset', 'hub', '--source_lang', 'en', '--target_lang', 'de', '--output_dir', tmp_path / 'out'), 'dataset hub needs data_dir, OWNER/NAME of the hub')
    assert_success(go(tmp_path / 'set'))

def test_languages_of_any_name(capfd, tmp_path):
    "The ending `zh_CN` and the column `source_text` can be named, and are what the run remembers."
    write_files(tmp_path / 'files', train_en=number_lines('en', 60))
    (tmp_path / 'files/train.zh_CN').write_text(number_lines('de', 60))
    rows = '\n'.join(json.dumps(dict(source_text=number_speller('en')(i), target_text=number_speller('de')(i))) for i in range(60))
    write_files(tmp_path / 'rows', train_jsonl=rows)
    for dataset, source, target in ('text', 'en', 'zh_CN'), ('hub', 'source_text', 'target_text'):
        where = tmp_path / ('files' if dataset == 'text' else 'rows')
        assert_success(run_in_process(capfd, 'train', '--recipe', 'demo', '--dataset', dataset, '--source_lang', source, '--target_lang', target, '--data_dir', where,
                    '--output_dir', tmp_path / dataset, *cli_args(SMALL_OVERRIDES)))
        config = json.loads((tmp_path / dataset / 'config.json').read_text())
        assert (config['dataset'], config['source_lang'], config['target_lang']) == (dataset, source, target)

def test_languages_that_are_not_given():
    assert _resolve_corpus('numbers') == _resolve_corpus(('numbers', 'en', None)) == ('numbers', 'en', 'de')
    assert _resolve_corpus(('treebank', 'tagged', None)) == ('treebank', 'tagged', 'trees')
    for corpus, message in ('text', 'needs source_lang and target_lang'), (('hub', 'en', None), 'needs source_lang'), ('text_en_de', "no data set 'text_en_de'"), (('text', 'en'), 'a name and two languages'):
        with pytest.raises(ValueError, match=message): _resolve_corpus(corpus)
    with pytest.raises(ValueError, match="no names in 'tlh'"): load_corpus(('numbers', 'en', 'tlh'))

@pytest.mark.parametrize('dataset', _DATASETS)
def test_every_reader_is_where_the_table_says(dataset):
    read = resolve_name(f'annotated_transformer.{_DATASETS[dataset][0]}')
    assert list(signature(read).parameters) == ['data_dir', 'src', 'tgt', 'seed']

EN, DE = ([*map(number_speller(lang), range(300))] for lang in ('en', 'de'))

def tsv(folder, rows): return write_files(folder, train_tsv='\n'.join('\t'.join(row) for row in rows))

WRONG = {
    'scores first': (lambda i: (f'{1 + i / 300:.4f}', EN[i], DE[i]), 'first column holds numbers'),
    'negative scores': (lambda i: (f'-{i}.5e-3', EN[i], DE[i]), 'first column holds numbers'),
    'two addresses first': (lambda i: (f'https://a.org/{i}', f'https://b.org/{i}', EN[i], DE[i]), 'first column holds addresses'),
    'ids of letters': (lambda i: (f'doc-{i}', EN[i] + ' men', DE[i] + ' Leute'), 'first column holds ids'),
    'languages': (lambda i: ('eng', EN[i] + ' men', DE[i] + ' Leute'), "first column holds 'eng' in every line"),
}

@pytest.mark.parametrize('kind', WRONG)
def test_a_first_column_that_is_no_text(kind, tmp_path):
    row, why = WRONG[kind]
    with pytest.raises(ValueError, match=f'train.tsv: .*{why}'): load_corpus(('text', 'en', 'de'), tsv(tmp_path, map(row, range(300))))

RIGHT = {'further columns': lambda i: (EN[i] + ' men', DE[i] + ' Leute', f'{i / 300:.3f}'), 'a dictionary with remarks': lambda i: (f'word{i}', f'Wort{i}', 'a remark of several words'),
         'a pair of numerals': lambda i: (str(i), DE[i])}

@pytest.mark.parametrize('kind', RIGHT)
def test_columns_that_are_text(kind, tmp_path):
    rows = [*map(RIGHT[kind], range(300))]
    splits = load_corpus(('text', 'en', 'de'), tsv(tmp_path, rows))
    assert sum(map(len, splits.values())) == 300 and {*splits['train']['target']} <= {row[1] for row in rows}

@pytest.mark.parametrize('head', [('source', 'target'), ('EN', 'DE'), ('Text', 'label'), ('src', 'de')])
def test_a_header_is_no_pair(head, tmp_path):
    with pytest.raises(ValueError, match='line 1: .* are names of columns: delete this line'): load_corpus(('text', 'en', 'de'), tsv(tmp_path, [head, *zip(EN, DE)]))

def folder_of(path, form, rows):
    path.mkdir()
    table = Dataset.from_list(rows)
    {'csv': table.to_csv, 'tsv': lambda f: table.to_csv(f, sep='\t'), 'jsonl': table.to_json, 'parquet': table.to_parquet}[form](str(path / f'train.{form}'))
    return path

@pytest.mark.parametrize('form', ['csv', 'tsv', 'jsonl', 'parquet'])
def test_words_that_pandas_takes_for_missing_values(form, tmp_path):
    odd = [('nothing', 'null'), ('not any', 'NA'), ('no one', 'None'), ('n/a', 'nan')]
    rows = [dict(en=a, de=b) for a, b in odd + [*zip(EN[100:], DE[100:])]]
    splits = load_corpus(('hub', 'en', 'de'), folder_of(tmp_path / 'data', form, rows))
    found = {pair for split in splits.values() for pair in zip(split['source'], split['target'])}
    assert {*odd} <= found and len(found) == len(rows)

@pytest.mark.parametrize('column, kind', [([*range(300)], 'int64'), ([i / 2 for i in range(300)], 'float'), ([[w] for w in DE], 'lists'), ([i > 3 for i in range(300)], 'bool')])
@pytest.mark.parametrize('own', [False, True])
def test_a_column_that_holds_no_text(column, kind, own, tmp_path):
    table = Dataset.from_dict(dict(en=EN, de=column))
    if not own: table.to_parquet(str(write_files(tmp_path / 'data') / 'train.parquet'))
    with pytest.raises(ValueError, match=f'split train: column de contains {kind}.*, not text'):
        load_corpus(DatasetDict(train=table)) if own else load_corpus(('hub', 'en', 'de'), tmp_path / 'data')

def test_classes_are_no_text():
    table = Dataset.from_dict(dict(en=EN, topic=[i % 2 for i in range(300)]), features=Features(en=Value('string'), topic=ClassLabel(names=['a', 'b'])))
    with pytest.raises(ValueError, match='column topic contains int64, not text'): load_corpus(DatasetDict(train=table))

def test_the_cause_of_a_file_that_cannot_be_read(tmp_path):
    write_files(tmp_path / 'data', train_jsonl='{"en": "one", "de": "eins"}\n{"en": "broken \\ud8', )
    with pytest.raises(ValueError) as e: load_corpus(('hub', 'en', 'de'), tmp_path / 'data')
    assert 'An error occurred while generating' not in str(e.value)

@pytest.mark.parametrize('other', ['dev', 'val', 'eval'])
def test_a_split_that_would_not_be_read(other):
    tables = {name: Dataset.from_dict(dict(en=EN, de=DE)) for name in ('train', other)}
    with pytest.raises(ValueError, match=f'split {other} is not read: rename it to validation'): load_corpus(DatasetDict(tables))

def test_own_splits_with_a_column_translation():
    table = Dataset.from_dict(dict(id=[*range(300)], translation=[dict(en=a, de=b) for a, b in zip(EN, DE)]))
    splits = load_corpus(DatasetDict(train=table))
    assert {*zip(splits['train']['source'], splits['train']['target'])} < {*zip(EN, DE)}

def test_one_table_is_no_corpus():
    with pytest.raises(ValueError, match='a DatasetDict with a split train'): load_corpus(Dataset.from_dict(dict(en=EN, de=DE)))

@pytest.mark.parametrize('how', ['files', 'own', 'hub'])
def test_sentences_that_are_trained_on_are_counted(how, tmp_path, capfd):
    parts = dict(train=slice(0, 200), validation=slice(190, 220), test=slice(200, 230))     # 10 of 30 valid sentences are in train, none of test
    if how == 'files':
        names = dict(train='train', validation='valid', test='test')
        write_files(tmp_path, **{f'{names[s]}_{lang}': '\n'.join(text[p]) for s, p in parts.items() for lang, text in dict(en=EN, de=DE).items()})
        load_corpus(('text', 'en', 'de'), tmp_path)
    else:
        tables = DatasetDict({s: Dataset.from_dict(dict(en=EN[p], de=DE[p])) for s, p in parts.items()})
        if how == 'own': load_corpus(tables)
        else:
            for s, table in tables.items(): table.to_parquet(str(write_files(tmp_path) / f'{s}.parquet'))
            load_corpus(('hub', 'en', 'de'), tmp_path)
    said = capfd.readouterr().out
    assert 'valid: 10 of 30 source sentences are in train, too' in said and 'test:' not in said

@pytest.mark.parametrize('text', ['raw', 'moses_lc'])
def test_pairs_of_which_nothing_is_left(text, tmp_path, capfd):
    "Control characters are text to Python and nothing to Moses or SentencePiece."
    folder = write_files(tmp_path / 'data', train_en='\n'.join(EN + ['\x02\x03', 'a word']), train_de='\n'.join(DE + ['ein Wort', '\x01']), valid_en='one', valid_de='eins', test_en='one', test_de='eins')
    preprocess_corpus(PreprocessingConfig(preprocessing=text, vocab_size=120, max_len=100, byte_fallback=False), ('text', 'en', 'de'), folder, tmp_path / 'store')
    ids = load_from_disk(tmp_path / 'store/train')
    assert min(ids['n_src']) > 1 and min(ids['n_tgt']) > 2 and len(ids) in (300, 301, 302)
    assert len(ids) == 302 or f'dropped {302 - len(ids)} of 302 pairs with an empty source or target' in capfd.readouterr().out

WRONG_TOO = {
    'scores second': (lambda i: (EN[i], f'0.{i}', DE[i]), 'second column holds scores'),
    'addresses second': (lambda i: (EN[i], f'https://a.org/{i}', DE[i]), 'second column holds addresses'),
    'addresses without a scheme': (lambda i: (f'www.a.org/{i}', f'www.b.org/{i}', EN[i], DE[i]), 'first column holds addresses'),
    'one address and text': (lambda i: (f'ftp://a.org/{i}', DE[i]), 'first column holds addresses'),
    'both languages': (lambda i: ('en', 'de', EN[i], DE[i]), "first column holds 'en' in every line"),
    'one language, words without blanks': (lambda i: ('zho', f'词{i}', f'word{i}'), "first column holds 'zho' in every line"),
}

@pytest.mark.parametrize('kind', WRONG_TOO)
def test_other_columns_that_are_no_text(kind, tmp_path):
    row, why = WRONG_TOO[kind]
    with pytest.raises(ValueError, match=f'train.tsv: .*{why}'): load_corpus(('text', 'en', 'de'), tsv(tmp_path, map(row, range(300))))

RIGHT_TOO = {'labels of number and a remark': lambda i: (EN[i], str(i % 3), f'id{i}'), 'labels in order': lambda i: (EN[i], 'good' if i > 150 else 'bad', 'a remark'),
             'short sentences and whose they are': lambda i: (('Go.', 'Hi!', 'Run!', 'Stop.')[i // 9] if i < 36 else EN[i], DE[i] + ' !', 'CC-BY 2.0 by some one'),
             'an address in a sentence': lambda i: (f'see http://a.org/{i} for more', DE[i])}

@pytest.mark.parametrize('kind', RIGHT_TOO)
def test_other_columns_that_are_text(kind, tmp_path):
    assert sum(map(len, load_corpus(('text', 'en', 'de'), tsv(tmp_path, map(RIGHT_TOO[kind], range(300)))).values())) == 300

@pytest.mark.parametrize('head', [('English', 'German'), ('en-US', 'de-DE'), ('source_text', 'target_text'), ('"sentence1"', '"sentence2"'), ('score', 'src', 'tgt'), ('id', 'text', 'label')])
def test_other_headers(head, tmp_path):
    with pytest.raises(ValueError, match='line 1: .* are names of columns: delete this line'): load_corpus(('text', 'en', 'de'), tsv(tmp_path, [head, *zip(EN, DE, DE)]))

def test_first_pairs_that_are_no_header(tmp_path):
    for pair in ('en passant', 'en passant'), ('text', 'Text des Buches'), ('a source', 'target'): load_corpus(('text', 'en', 'de'), tsv(tmp_path, [pair, *zip(EN, DE)]))

@pytest.mark.parametrize('split', [[('one', 'eins')], dict(en=EN, de=DE), Dataset.from_dict(dict(en=EN, de=DE)).to_iterable_dataset()])
def test_splits_that_are_no_datasets(split):
    with pytest.raises(ValueError, match='split train must be a Dataset, not a '): load_corpus(dict(train=split))

def test_splits_that_are_not_read_are_named(capfd):
    table = Dataset.from_dict(dict(en=EN, de=DE))
    load_corpus(DatasetDict(train=table, validation=table, test_2017=table, dev=table))
    assert 'ignored splits: test_2017, dev' in capfd.readouterr().out
    for other in 'Dev', 'development':
        with pytest.raises(ValueError, match=f'split {other} is not read: rename it to validation'): load_corpus(DatasetDict({'train': table, other: table}))
    with pytest.raises(ValueError, match='both valid and validation'): load_corpus(DatasetDict(train=table, valid=table, validation=table))

@pytest.mark.parametrize('name', ['a[b]', 'a*', 'a?', 'a::b'])
def test_a_folder_whose_name_is_a_pattern(name, tmp_path):
    for folder in 'a[b]', 'a*', 'a?', 'a::b', 'a_other': folder_of(tmp_path / folder, 'csv', [dict(en=a, de=b) for a, b in zip(EN, DE)])
    with pytest.raises(ValueError, match='the path of a data set must not contain'): load_corpus(('hub', 'en', 'de'), tmp_path / name)

def test_number_names():
    "No number and no name is in two splits; the test split has the training split's mixture of lengths."
    corpus = _load_numbers(None, 'en', 'de')
    assert {name: len(part) for name, part in corpus.items()} == dict(train=20000, valid=500, test=500)
    for side in 'source', 'target': assert len({name for part in corpus.values() for name in part[side]}) == 21000
    assert load_corpus('numbers')['valid'][:] == corpus['valid'][:]
    assert load_corpus(('numbers', 'en', 'fr'), seed=1)['train'][0]['target'] == 'trois cent quarante-deux mille neuf cent quatre-vingts'
    numbers = sample_numbers(0)
    train, test = (Counter(len(str(n)) for n in part) for part in (numbers[:20000], numbers[20500:]))
    assert all(abs(train[d] / 20000 - test[d] / 500) < .06 for d in train)
    with pytest.raises(ValueError, match='leave data_dir out'): load_corpus('numbers', '.')

def test_wmt14_from_a_folder(tmp_path, monkeypatch, capfd):
    "In the hub's schema: odd characters shift no line, a pair with an empty side is dropped, and a missing split is named."
    monkeypatch.setattr(datasets.config, 'HF_DATASETS_CACHE', tmp_path / 'cache')
    lines = '\n'.join(json.dumps(dict(translation=dict(en=s, de=t))) for s, t in (('one\x85\u2028', 'eins ü'), ('', 'zwei'), ('six', 'sechs')))
    for part in _load_wmt14(write_files(tmp_path / 'full', train_jsonl=lines, validation_jsonl=lines, test_jsonl=lines), 'en', 'de').values():
        assert part[:] == dict(source=['one\x85\u2028', 'six'], target=['eins ü', 'sechs'])
    assert 'test: 1 of 3 pairs dropped, one side empty' in capfd.readouterr().out
    with pytest.raises(ValueError, match='no split test'): _load_wmt14(write_files(tmp_path / 'part', train_jsonl=lines, validation_jsonl=lines), 'en', 'de')

def test_multi30k_from_a_folder(tmp_path):
    "Its raw files, in both directions; a missing file is named, and French needs the folder."
    write_files(tmp_path, train_en='A dog.\nA cat.\n', train_fr='Un chien.\nUn chat.\n', val_en='A man.', val_fr='Un homme.')
    with pytest.raises(FileNotFoundError, match='no test_2016_flickr.en and test_2016_flickr.fr'): _load_multi30k(tmp_path, 'en', 'fr')
    for lang, line in dict(en='A boy.', fr='Un enfant.').items(): (tmp_path / f'test_2016_flickr.{lang}').write_text(line)
    assert _load_multi30k(tmp_path, 'en', 'fr')['test'][:] == dict(source=['A boy.'], target=['Un enfant.'])
    for pair in ('en', 'fr'), ('fr', 'en'):
        first = load_corpus(('multi30k', *pair), tmp_path)['train'][0]
        assert [first['source'], first['target']] == [dict(en='A dog.', fr='Un chien.')[lang] for lang in pair]
    with pytest.raises(ValueError, match='pass its data/task1/raw as data_dir'): _load_multi30k(None, 'en', 'fr')

def test_missing_splits_are_held_out(tmp_path):
    "Of the user's files, and of splits in memory."
    write_files(tmp_path, train_en='one\ntwo\nsix\n', train_de='eins\nzwei\nsechs\n')
    assert {name: len(part) for name, part in load_corpus(('text', 'en', 'de'), tmp_path).items()} == dict(train=1, valid=1, test=1)
    assert {name: len(part) for name, part in load_corpus(splits()).items()} == dict(train=54, valid=3, test=3)
    with pytest.raises(ValueError, match='the same two columns'): load_corpus(splits().rename_column('en', 'source').remove_columns('de'))

@pytest.mark.parametrize('corpus, folder, message', [
    ('wmt15', None, "no data set 'wmt15'; known: numbers, mult"), ('text', None, 'text needs source_lang and target_lang'), (('text', 'en', 'de'), None, 'with train.en and train.de'),
    (('text', 'en', 'de'), 'absent', 'absent does not exist'), (('hub', 'en', 'de'), None, 'needs data_dir, OWNER/NAME')])
def test_a_name_or_folder_that_is_missing(corpus, folder, message):
    with pytest.raises((ValueError, FileNotFoundError), match=message): load_corpus(corpus, folder)

PAIR = 'text', 'en', 'de'

def test_fingerprint_of_files(tmp_path):
    "Bytes count; dates, the folder's place and files that are not read do not."
    here, there = (write_files(tmp_path / name, train_en='one\ntwo\n', train_de='eins\nzwei\n') for name in ('a', 'b'))
    fingerprint = _corpus_fingerprint(PAIR, here)
    assert _corpus_fingerprint(PAIR, there) == fingerprint
    (there / 'readme.txt').write_text('new')
    os.utime(there / 'train.en', (0, 0))
    assert _corpus_fingerprint(PAIR, there) == fingerprint
    (there / 'train.en').write_text('one\ntwO\n')
    os.utime(there / 'train.en', (0, 0))
    assert _corpus_fingerprint(PAIR, there) != fingerprint

def test_fingerprint_of_names(tmp_path):
    "Names and languages count, and which file has which bytes; splits in memory by their text, data sets of the hub by their name."
    here = write_files(tmp_path / 'a', train_en='one\ntwo\n', train_de='eins\nzwei\n')
    other = write_files(tmp_path / 'b', train_de='one\ntwo\n', train_en='eins\nzwei\n')
    tsv_folder = write_files(tmp_path / 'c', train_tsv='one\teins\n')
    corpora = [(PAIR, here), (PAIR, other), (('text', 'de', 'en'), here), (PAIR, tsv_folder), ('numbers', None), (('numbers', 'en', 'fr'), None), ('wmt14', here),
               (splits(), None), (splits(61), None), (('hub', 'en', 'de'), 'a/b'), (('hub', 'en', 'de'), 'a/b@1')]
    assert len({_corpus_fingerprint(*args) for args in corpora}) == len(corpora)
    assert _corpus_fingerprint('numbers') == _corpus_fingerprint(('numbers', 'en', 'de'))
    with pytest.raises(ValueError, match="no data set 'wmt15'"): _corpus_fingerprint('wmt15')
    with pytest.raises(FileNotFoundError, match='has no train.fr'): _corpus_fingerprint(('text', 'en', 'fr'), here)
