"The corpora of news: the form of their files, what is cut off where files are missing, and what is said of a line that is wrong."
import pytest

from annotated_transformer.data.corpora import load_corpus
from annotated_transformer.utils.validation import UserError

SUBJECTS = '股市 基金 银行 黄金 油价', '球队 主场 门将 教练 联赛', '大学 高考 学生 老师 考研'
ENDS = '今日公布消息 最新情况 引起关注 再创新高 明天开始'.split()
SPLITS = 'train', 'valid', 'test'

@pytest.fixture
def thucnews(tmp_path):
    (folder := tmp_path / 'thu').mkdir()
    (folder / 'class.txt').write_text('finance\nsports\neducation')
    (folder / 'train.txt').write_text(''.join(f'{year}年{subject}{end}\t{k}\n' for year in range(2009, 2012) for end in ENDS
                                              for k, words in enumerate(SUBJECTS) for subject in words.split()))
    return folder

@pytest.fixture
def ag_news(tmp_path):
    (folder := tmp_path / 'ag').mkdir()
    (folder / 'classes.txt').write_text('World\nSci/Tech\n')
    (folder / 'train.csv').write_text('\n'.join(['"2","Atoms, ""small""","Seen \\in a lab"', '"1","Peace","Talks go on"'] * 8))
    return folder

def sizes(corpus): return [len(corpus[split]) for split in SPLITS]

def test_title_and_description_are_one_text(ag_news):
    articles = load_corpus('ag_news', ag_news)
    assert {(row['source'], row['target']) for row in articles['train']} == {
        ('Atoms, "small" Seen \\in a lab', 'Sci/Tech'), ('Peace Talks go on', 'World')}
    assert sizes(articles) == [11, 1, 4]

def test_what_is_missing_is_cut_off_and_the_splits_have_no_text_in_common(thucnews):
    news = load_corpus('thucnews', thucnews)
    assert sizes(news) == [168, 12, 45]
    assert not {*news['test']['source'], *news['valid']['source']} & {*news['train']['source']}
    (thucnews / 'dev.txt').write_text('联赛开始\t1\n' * 2)
    assert sizes(load_corpus('thucnews', thucnews)) == [210, 15, 2]
    (thucnews / 'test.txt').write_text('联赛开始\t1\n' * 3)
    assert sizes(load_corpus('thucnews', thucnews)) == [225, 2, 3]

def test_classes_that_take_turns_are_in_every_split(thucnews):
    (thucnews / 'class.txt').write_text('a\nb\nc\nd\ne')
    (thucnews / 'train.txt').write_text(''.join(f'文{i}\t{i % 5}\n' for i in range(100)))
    five = load_corpus('thucnews', thucnews)
    assert {*five['train']['target']} == {*five['test']['target']} == {*'abcde'}

@pytest.mark.parametrize('name, line, why', [
    ('train.txt', '没有标签\n', 'train.txt, line 226: no tab before the class'),
    *[('train.txt', f'球队\t{k}\n', f"line 226: class '{k}' must be a number from 0 to 2") for k in ('3', '-1', 'x', '')],
    ('train.txt', ' \t1\n', 'line 226: no text'),
    ('class.txt', '\nsports', "class.txt, line 4: 'sports' must be one word"),
    ('class.txt', '\nreal estate', "line 4: 'real estate' must be one word"),
    ('class.txt', '\nsociety', 'train.txt: too few examples of class society, 0')])
def test_a_wrong_line_of_headlines_is_named(thucnews, name, line, why):
    with (thucnews / name).open('a') as f: f.write(line)
    with pytest.raises(UserError) as e: load_corpus('thucnews', thucnews)
    assert why in str(e.value)

@pytest.mark.parametrize('line, why', [
    ('\n"1","only a title"', 'line 17: 2 columns'),
    ('\n"1","a","never closed' + ' and on' * 20_000, 'a quotation mark missing?'),
    ('\n"1","two","li\nnes"\n"0","a","b"', 'line 19: class'),
    ('\n"0","a","b"', "line 17: class '0' must be")])
def test_a_wrong_line_of_articles_is_named(ag_news, line, why):
    with (ag_news / 'train.csv').open('a') as f: f.write(line)
    with pytest.raises(UserError) as e: load_corpus('ag_news', ag_news)
    assert why in str(e.value)

def test_a_folder_of_the_other_corpus(thucnews):
    with pytest.raises(FileNotFoundError, match='contains no classes.txt'): load_corpus('ag_news', thucnews)
