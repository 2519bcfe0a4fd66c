import math
from collections import Counter


def ngrams(tokens, n):
    return Counter(tuple(tokens[i:i + n]) for i in range(len(tokens) - n + 1))


def bleu(hypotheses, references):
    log_precision = 0.
    for n in range(1, 5):
        matches = total = 0
        for hyp, ref in zip(hypotheses, references):
            matches += (ngrams(hyp, n) & ngrams(ref, n)).total()
            total += ngrams(hyp, n).total()
        if not matches:
            return 0.
        log_precision += math.log(matches / total) / 4
    c, r = sum(map(len, hypotheses)), sum(map(len, references))
    return 100 * math.exp(log_precision + min(0., 1 - r / c))
