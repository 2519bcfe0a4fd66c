"""The archives of the released models and their cards, made of what the repository holds: the same bytes on every machine.

    python tools/release.py            writes the cards and dist/NAME.zip, prints the checksums
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
MODELS = {'multi30k-en-de': 'multi30k_en_de', 'numbers-en-de': 'numbers_en_de'}     # name: folder in nbs/results
FILES = 'README.md', 'config.json', 'model.safetensors', 'tokenizer.model'

def record(name): return json.loads((ROOT / f'nbs/results/{name}.json').read_text(encoding='utf-8'))
def folder(name): return ROOT / 'nbs/results' / MODELS[name]

def numbers_card(name, config):
    "Of the demo's model; its score is that of the demo."
    model = config['model']
    return f'''---
language: [en, de]
license: apache-2.0
pipeline_tag: translation
---
# {name}

A Transformer that translates English number names below a million into German ones: the model that `make demo` of
[annotated_transformer](https://github.com/annotated-transformer/annotated_transformer) trains in minutes on a CPU, in half precision. {model["N"]} layers,
d_model {model["d_model"]}, d_ff {model["d_ff"]}, {model["h"]} heads, {model["vocab_size"]:,} byte pairs.

```python
from annotated_transformer.inference.translator import Translator
Translator.from_pretrained('{name}').translate(['twenty-one'])
```

**Data.** Names that the package makes itself. **Score.** `make demo` prints the share of 500 held-out numbers that are exactly right.
**Limits.** It knows nothing but number names.
'''

def captions_card(name, config):
    "Of the published recipe: data, scores, limits; every number from a record."
    seeds, page = record('multi30k_en_de_seeds'), record('browser')
    model, key = config['model'], 'lower-cased tokenised BLEU'
    run = next(r for r in seeds['runs'] if r['seed'] == config['seed'])
    return f'''---
language: [{config["source_lang"]}, {config["target_lang"]}]
license: other
datasets: [multi30k]
pipeline_tag: translation
---
# {name}

A Transformer that translates English captions of photographs into German. It is the recipe `multi30k_tiny` of
[annotated_transformer](https://github.com/annotated-transformer/annotated_transformer), seed {config["seed"]}, the mean of the last
{config["checkpoints"]["average_checkpoints"]} checkpoints, in half precision: {model["N"]} layers, d_model {model["d_model"]}, d_ff {model["d_ff"]}, {model["h"]} heads, {model["vocab_size"]:,} byte pairs.

```python
from annotated_transformer.inference.translator import Translator
Translator.from_pretrained('{name}').translate(['A man walks his dog.'])
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

def card(name):
    "A model card, as a repository of models shows it."
    return (captions_card if name.startswith('multi30k') else numbers_card)(name, json.loads((folder(name) / 'config.json').read_text(encoding='utf-8')))

def archive(name):
    "The bytes of an archive: stored, since weights do not shrink, with one date for all files."
    out = io.BytesIO()
    with ZipFile(out, 'w') as z:
        for file in FILES: z.writestr(ZipInfo(file, (2026, 1, 1, 0, 0, 0)), (folder(name) / file).read_bytes())
    return out.getvalue()

def checksum(name): return hashlib.sha256(archive(name)).hexdigest()

def faults():
    "What is not up to date: a card, a checksum in the package."
    from annotated_transformer.inference.released_models import _CHECKSUMS
    found = [f'the package knows {sorted(_CHECKSUMS)}, tools/release.py {sorted(MODELS)}'] if sorted(_CHECKSUMS) != sorted(MODELS) else []
    for name in MODELS:
        file = folder(name) / 'README.md'
        if not file.exists() or file.read_text(encoding='utf-8') != card(name): found.append(f'{file.relative_to(ROOT)}: run `python tools/release.py`')
        elif checksum(name) != _CHECKSUMS.get(name): found.append(f'released_models: the checksum of {name} is {checksum(name)}')
    return found

if __name__ == '__main__':
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument('--check', action='store_true', help='write nothing')
    if p.parse_args().check: sys.exit('\n'.join(faults()))
    (ROOT / 'dist').mkdir(exist_ok=True)
    for name in MODELS:
        (folder(name) / 'README.md').write_text(card(name), encoding='utf-8')
        (ROOT / f'dist/{name}.zip').write_bytes(archive(name))
        print(f'dist/{name}.zip: {len(archive(name)) / 1e6:.1f} MB, SHA-256 {checksum(name)}')
