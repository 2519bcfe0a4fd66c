"What a parser reads."

def test_quotation_marks_are_those_of_the_treebank():
    from annotated_transformer.cli.parse import as_in_treebank
    assert as_in_treebank(['"', 'Go', '"', ',', '“', 'he', '”', '(', "n't"]) == ['``', 'Go', "''", ',', '``', 'he', "''", '-LRB-', "n't"]
