"""Section 6.1: what the beam and the length penalty are worth, and why, for the stored model of captions (seed 0 of `multi30k_tiny`).

Every setting translates the 1,014 validation captions, none of which the training saw. Recorded are BLEU (lower-cased, tokenised), its brevity
penalty and its four precisions, the lengths, the mean log-probability of the translations (by the model, without penalty), and the
paired bootstrap against the paper's setting, a beam of 4 and α = 0.6.

Predicted, when only the scores of seven settings with a beam of 1, 5 or 10 were known: at α = 0 and at 0.6 the translations are shorter
than the references, and BLEU rises with α because its brevity penalty does, not its precisions. From α = 1.5 on they are as long, and
BLEU falls again. At α = 0 a beam of 64 is at least half a point below a beam of 4, though its sentences are more probable; at α = 0.6
it is within half a point.

    python experiments/search_settings.py --data data/multi30k --out nbs/results/search_multi30k.json
"""
import argparse, json
from pathlib import Path
from statistics import mean
from sacrebleu.metrics import BLEU
from annotated_transformer.data.moses import moses_lc
from annotated_transformer.data.text_files import read_parallel
from annotated_transformer.inference.metrics import paired_bootstrap
from annotated_transformer.inference.translator import Translator
from recording import ResultCache, provenance

p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
p.add_argument('--model', default='nbs/results/multi30k_en_de', help='a trained model')
p.add_argument('--data', required=True, help='folder of Multi30k')
p.add_argument('--runs', default='runs/search_settings', help='folder of the parts: an interrupted command goes on')
p.add_argument('--out', help='the record, a JSON file')
BEAMS, ALPHAS, PAPER = (1, 2, 4, 8, 16, 32, 64), (0., .3, .6, 1., 1.5, 2., 3.), (4, .6)
SETTINGS = [PAPER, *((beam, alpha) for alpha in (.6, 0.) for beam in BEAMS if (beam, alpha) != PAPER),
            *((4, alpha) for alpha in ALPHAS if alpha not in (0., .6))]

def translate(translator, ids, beam, alpha):
    "The best hypothesis of each source: its tokens as text, and the mean log-probability."
    found = translator.map_in_batches(ids, lambda batch: translator.search(batch, beam, alpha), 8192 // beam)
    best = [hypotheses[0] for hypotheses in found]
    return dict(lines=translator.tokenizer.decode([h.ids for h in best]), log_prob=mean(h.log_prob for h in best),
                pieces=mean(len(h.ids) + 1 for h in best))

def main(a):
    translator = Translator.from_pretrained(a.model)
    source, target = (translator.config[f'{side}_lang'] for side in ('source', 'target'))
    sources, references = map(list, zip(*read_parallel(*(Path(a.data) / f'val.{lang}.gz' for lang in (source, target)))))
    ids, references = translator.encode(sources), moses_lc(references, target)
    cache = ResultCache(a.runs, dict(model=Path(a.model).name))
    lines = lambda beam, alpha: cache.get_or_compute(f'{beam}_{alpha}', lambda: translate(translator, ids, beam, alpha))
    rows, paper = [], lines(*PAPER)['lines']
    for beam, alpha in SETTINGS:
        made = lines(beam, alpha)
        score = BLEU(tokenize='none', smooth_method='none', force=True).corpus_score(made['lines'], [references])
        difference, p_value = paired_bootstrap(made['lines'], paper, references, tokenize='none')
        rows.append(dict(beam=beam, alpha=alpha, bleu=score.score, brevity_penalty=score.bp, precisions=score.precisions, length=score.sys_len,
                         reference_length=score.ref_len, log_prob=made['log_prob'], pieces=made['pieces'], difference=difference, p=p_value))
        print(f'beam {beam}, α {alpha}: BLEU {score.score:.2f} ({difference:+.2f}, p = {p_value:.3f}), length {score.sys_len / score.ref_len:.3f}', flush=True)
    record = provenance('torch', 'sentencepiece', 'sacrebleu', 'sacremoses') | dict(model=Path(a.model).name, split='validation', sentences=len(sources), settings=rows)
    if a.out: Path(a.out).write_text(json.dumps(record, indent=1, ensure_ascii=False) + '\n')

if __name__ == '__main__': main(p.parse_args())
