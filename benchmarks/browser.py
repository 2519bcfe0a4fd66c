"""Is the translator of the page the same as in Python, and how fast is it?

The model of `nbs/results/multi30k_en_de` goes into JavaScript in whole numbers of eight bits and runs in node, one sentence at a time.
Python has the same weights, dequantised, and the weights as they were trained. Compared are the tokens of each sentence, its greedy
translation and that of beam search, BLEU on the references with a paired bootstrap of what quantisation costs, and, in JavaScript,
milliseconds of processor time per sentence.

    python benchmarks/browser.py --src test_2016_flickr.en --ref test_2016_flickr.de --out nbs/results/browser.json
"""
import argparse
import json
import platform
import subprocess
from importlib.metadata import version
from pathlib import Path

from annotated_transformer.data.text_files import read_lines
from annotated_transformer.inference.metrics import paired_bootstrap, score_translations
from annotated_transformer.inference.translator import Translator
from annotated_transformer.utils.io import atomic_write_text, project_path
from annotated_transformer.web.browser import _MODEL_JS, _quantize_model, _serialize_model

PROGRAM = r'''
const {data, sentences, beams} = JSON.parse(require('fs').readFileSync(0)), m = load(data, data.base64)
const drain = g => { for (;;) { const {value, done} = g.next(); if (done) return value } }
const one = (text, beam) => {
  const begun = process.cpuUsage(), ids = tokenise(m, preprocess(m, text)), y = drain(beamSearch(m, [...ids, m.eos], beam, .6))[0]
  return {tokens: ids, ids: y.ids, text: postprocess(m, detokenise(m, y.ids)), ms: (({user, system}) => (user + system) / 1000)(process.cpuUsage(begun))}
}
const out = {}
for (const beam of beams) out[beam] = sentences.map((s, i) => (i % 100 || process.stderr.write(`beam ${beam}: ${i} of ${sentences.length}\n`), one(s, beam)))
process.stdout.write(JSON.stringify(out))'''

def in_node(translator, sentences, beams, bits=8, sample=100):
    "Of each beam size: tokens, ids, text and milliseconds of each sentence, computed by the page's JavaScript."
    given = json.dumps(dict(data=_serialize_model(translator, sentences[:sample], bits), sentences=sentences, beams=beams))
    return json.loads(subprocess.run(['node', '-e', ''.join(_MODEL_JS) + PROGRAM], input=given, stdout=subprocess.PIPE, text=True, check=True).stdout)

def processor():
    "The processor's name, where the system tells it."
    info = Path('/proc/cpuinfo')
    return next((line.partition(':')[2].strip() for line in info.read_text().splitlines() if line.startswith('model name')), '') if info.exists() else platform.processor()

def same(a, b): return sum(x == y for x, y in zip(a, b, strict=True))

def main(a):
    translator = Translator.from_pretrained(a.run_dir, device='cpu')
    trained, sentences = translator.models[0], [*read_lines(a.src)][:a.limit]
    references = [*read_lines(a.ref)][:a.limit]
    def bleu(texts): return score_translations(texts, references)['lower-cased tokenised BLEU']
    page = in_node(translator, sentences, [1, 4])
    result = dict(command='browser.py --src test_2016_flickr.en --ref test_2016_flickr.de', sentences=len(sentences), bits=8, processor=processor(), node=subprocess.check_output(['node', '--version'], text=True).strip(),
                  versions={name: version(name) for name in ('torch', 'sacrebleu', 'sacremoses')}, beams={})
    tokens = [ids[:-1].tolist() for ids in translator.encode(sentences)]
    for beam in 1, 4:
        quantised = (setattr(translator, 'models', [_quantize_model(trained, 8)]), translator.translate(sentences, beam=beam))[1]
        translator.models = [trained]
        whole = translator.translate(sentences, beam=beam)
        texts, ms = [y['text'] for y in page[str(beam)]], sorted(y['ms'] for y in page[str(beam)])
        difference, p_value = paired_bootstrap(texts, whole, references, lowercase=True)
        result['beams'][beam] = dict(
            same_tokens=same([y['tokens'] for y in page[str(beam)]], tokens), same_as_quantised=same(texts, quantised), same_as_trained=same(texts, whole),
            bleu=dict(page=bleu(texts), quantised=bleu(quantised), trained=bleu(whole)), sacrebleu_page_minus_trained=difference, p_value=p_value, median_cpu_ms=ms[len(ms) // 2], cpu_ms_95=ms[len(ms) * 95 // 100], longest_cpu_ms=ms[-1])
    print(json.dumps(result, indent=1))
    if a.out: atomic_write_text(Path(a.out), json.dumps(result, indent=1) + '\n')

if __name__ == '__main__':
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument('--src', required=True, help='file of English captions')
    p.add_argument('--ref', required=True, help='file of their German translations')
    p.add_argument('--run_dir', default=project_path('nbs/results/multi30k_en_de'), help='the model')
    p.add_argument('--limit', type=int, help='take only so many sentences')
    p.add_argument('--out', help='write the result to this JSON file, too')
    main(p.parse_args())
