"Long texts are cut and joined, with blanks where the language has them."
from annotated_transformer.data.long_texts import _join_translations, _split_long_text, _split_sentences


def test_text_without_blanks_is_cut_and_joined_without_them():
    text = '我们在公园里散步。他读了一本书。今天很冷。'
    parts = _split_long_text(text, 9, lambda ts: [*map(len, ts)])
    assert ''.join(parts) == text and _join_translations(parts, parts, 'zh', 'zh') == text
    english = 'We walked.  He read a book. It is cold.'
    assert ''.join(_split_sentences(english)) == english and _join_translations(_split_sentences(english), ['一。', '二。', '三。'], 'en', 'zh') == '一。二。三。'
    for code in 'zh-CN', 'zho_Hans', 'ZH', 'cmn', 'yue': assert _join_translations(parts, ['We walk.', 'He reads.', 'Cold.'], code, 'en') == 'We walk. He reads. Cold.'
    assert _join_translations(['a b. ', 'c'], ['一。', '二'], 'eng', 'zho') == '一。二'

def test_a_blank_only_where_the_source_had_one():
    assert _join_translations(['x_', 'y ', 'z'], ['1_', '2', '3'], 'en', 'fr') == '1_2 3'   # no letter at the end, and no blank behind it
    assert _join_translations(['雨。', '雪。'], ['雨。', '雪。'], 'qa', 'qb') == '雨。雪。'     # of languages that nobody knows
