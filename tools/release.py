"""The archive of a released model and its card, made of what the repository holds: the same bytes on every machine.

    python tools/release.py            writes the card and dist/multi30k-en-de.zip, prints the checksum
    python tools/release.py --check    says what is not up to date
"""
import argparse
import hashlib
import io
import json
import sys
from pathlib import Path
from zipfile import ZipFile, ZipInfo

ROOT = Path(__file__).resolve().parents[1]
NAME, FOLDER = 'multi30k-en-de', ROOT / 'nbs/results/multi30k_en_de'
FILES = 'README.md', 'config.json', 'model.safetensors', 'tokenizer.model'

def card():
    "The model card: data, scores, limits; every number from a record."
    def record(name): return json.loads((ROOT / f'nbs/results/{name}.json').read_text(encoding='utf-8'))
    seeds, page, config = record('multi30k_en_de_seeds'), record('browser'), json.loads((FOLDER / 'config.json').read_text())
    model, key = config['model'], 'lower-cased tokenised BLEU'
    run = next(r for r in seeds['runs'] if r['seed'] == config['seed'])
    return f'''---
language: [{config["source_lang"]}, {config["target_lang"]}]
license: other
datasets: [multi30k]
pipeline_tag: translation
---
# {NAME}

A Transformer that translates English captions of photographs into German. It is the recipe `multi30k_tiny` of
[annotated_transformer](https://github.com/annotated-transformer/annotated_transformer), seed {config["seed"]}, the mean of the last
{config["checkpoints"]["average_checkpoints"]} checkpoints, in half precision: {model["N"]} layers, d_model {model["d_model"]}, d_ff {model["d_ff"]}, {model["h"]} heads, {model["vocab_size"]:,} byte pairs.

```python
from annotated_transformer.inference.translator import Translator
Translator.from_pretrained('{NAME}').translate(['A man walks his dog.'])
```

**Data.** The 29,000 training captions of Multi30k, lower-cased and tokenised as Moses does it. Multi30k derives from Flickr30k: it is
provided for non-commercial research and education, and the images are under the Flickr terms of use. These weights are for the same use.

**Scores** on test_2016_flickr, beam 4:

| | |
|---|---|
| lower-cased tokenised BLEU | {run["scores"][key]:.2f}; {len(seeds["runs"])} seeds: mean {seeds["mean"]:.2f}; published for this recipe: {seeds["published"][key]} ({seeds["published"]["source"]}) |
| sacreBLEU | {run["scores"]["sacreBLEU"]:.2f}, 95 % interval {run["scores"]["95 % interval"]} (`{run["scores"]["signature"]}`) |
| in whole numbers of eight bits, as in the browser | {page["beams"]["4"]["bleu"]["page"]:.2f} lower-cased tokenised BLEU |

**Limits.** It writes lower-case. It has read descriptions of pictures and nothing else: of any other text it makes such a description.
It repeats what captions say of people, by looks, age and gender. It must not be used where a wrong translation does harm.
'''

def archive():
    "The bytes of the archive: stored, since weights do not shrink, with one date for all files."
    out = io.BytesIO()
    with ZipFile(out, 'w') as z:
        for name in FILES: z.writestr(ZipInfo(name, (2026, 1, 1, 0, 0, 0)), (FOLDER / name).read_bytes())
    return out.getvalue()

def faults():
    "What is not up to date: the card, the checksum in the package."
    from annotated_transformer.inference.released_models import _CHECKSUMS
    found = []
    if not (FOLDER / 'README.md').exists() or (FOLDER / 'README.md').read_text(encoding='utf-8') != card(): found.append(f'{FOLDER.relative_to(ROOT)}/README.md: run `python tools/release.py`')
    elif (checksum := hashlib.sha256(archive()).hexdigest()) != _CHECKSUMS[NAME]: found.append(f'released_models: the checksum of {NAME} is {checksum}')
    return found

if __name__ == '__main__':
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument('--check', action='store_true', help='write nothing')
    if p.parse_args().check: sys.exit('\n'.join(faults()))
    (FOLDER / 'README.md').write_text(card(), encoding='utf-8')
    (ROOT / 'dist').mkdir(exist_ok=True)
    (ROOT / f'dist/{NAME}.zip').write_bytes(archive())
    print(f'dist/{NAME}.zip: {len(archive()) / 1e6:.1f} MB, SHA-256 {hashlib.sha256(archive()).hexdigest()}')
