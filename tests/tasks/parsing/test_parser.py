"What a parser reads."

def test_quotation_marks_are_those_of_the_treebank():
    from annotated_transformer.cli.parse import _escape_ptb_tokens
    assert _escape_ptb_tokens(['"', 'Go', '"', ',', '“', 'he', '”', '(', "n't"]) == ['``', 'Go', "''", ',', '``', 'he', "''", '-LRB-', "n't"]
