"""IWSLT 2014, German to English, TED talks, prepared as fairseq's script does it, for the recipe `iwslt14`. Not trained in full here.

    python experiments/iwslt14.py
    transformer_train --recipe iwslt14 --dataset text --source_lang de --target_lang en --data_dir data/iwslt14 --output_dir runs/iwslt14
    transformer_evaluate runs/iwslt14 --beam 5 --tokenize none

The first command downloads the archive (20 MB) from the address that fairseq uses, or reads --archive, and writes train, valid and test:
one sentence a line, lower-cased Moses tokens. Such text the model translates, too. `accelerate launch -m annotated_transformer.training`
in place of `transformer_train` trains on several GPUs; `--max_steps 20` is a trial. The text is not part of this repository: TED talks are
under CC BY-NC-ND 4.0.

1. Training text: the lines without the tags of titles and descriptions; addresses, keywords and numbers of talks go. Pairs with an empty
   side, a side of more than 175 tokens, or one more than 1.5 times as long as the other go, too. Every 23rd of the rest validates.
2. Test: dev2010, the TEDX talks of dev2012, and tst2010 to tst2012, one after the other.

Expected are the counts below, and 34.64 BLEU, lower-cased and tokenised, as Liang et al. (2021, R-Drop) report for fairseq's model.
The vocabulary differs: SentencePiece's, in place of subword-nmt's.
"""
import argparse, io, re, tarfile, zlib
from pathlib import Path
from sacremoses import MosesTokenizer
from torch.hub import download_url_to_file
from tqdm import tqdm
from annotated_transformer.cli.arguments import _exit_with_usage_error
from annotated_transformer.cli.main import _exit_on_user_error
from annotated_transformer.utils.io import atomic_write_text
from annotated_transformer.utils.validation import UserError

URL = 'https://dl.fbaipublicfiles.com/fairseq/data/iwslt14/de-en.tgz'
LANGS, TESTS = ('de', 'en'), ('TED.dev2010', 'TEDX.dev2012', 'TED.tst2010', 'TED.tst2011', 'TED.tst2012')
EXPECTED = dict(train=160239, valid=7283, test=6750)             # pairs, by fairseq's script
MAX_TOKENS, MAX_RATIO, VALID_EVERY = 175, 1.5, 23

p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter, usage='%(prog)s [OPTIONS]')
p.error = _exit_with_usage_error
p.add_argument('--archive', help='de-en.tgz, if you have it')
p.add_argument('--out', default='data/iwslt14', help='folder for the six files (default: %(default)s)')

def read_lines(archive, name):
    "A text file of the archive. Raises UserError if it is not there."
    try: return [*io.TextIOWrapper(archive.extractfile(f'de-en/{name}'), 'utf-8', newline='\n')]
    except KeyError: raise UserError(f'{archive.name}: no file de-en/{name}; the archive of IWSLT 2014, German and English, has one') from None

def training_lines(lines):
    "The text of a training file: what is said about a talk goes, but for its title and description."
    return [re.sub('</?(title|description)>', '', line).strip() for line in lines if not re.search('<(url|talkid|keywords)>', line)]

def test_lines(lines):
    "The segments of a test file."
    return [found[1].replace('’', "'") for line in lines if (found := re.match(r'\s*<seg id="\d+">\s*(.*?)\s*</seg>', line))]

def is_kept(lengths):
    "Whether a pair with so many tokens on each side is trained on."
    return 1 <= min(lengths) and max(lengths) <= MAX_TOKENS and max(lengths) <= MAX_RATIO * min(lengths)

def parallel(archive, names, extract):
    "Pairs of a file in both languages. Raises UserError if their lengths differ."
    sides = [extract(read_lines(archive, name)) for name in names]
    if len(sides[0]) != len(sides[1]): raise UserError(f'{archive.name}: {names[0]} has {len(sides[0]):,} lines of text, {names[1]} {len(sides[1]):,}')
    return [*zip(*sides)]

def prepare(archive):
    "train, valid and test: lists of pairs of tokens."
    tokenizers = [MosesTokenizer(lang) for lang in LANGS]
    def tokenize(pairs):      # before lower-casing: a full stop inside a line is split off by the capital after it
        return [tuple(t.tokenize(text, return_str=True).lower() for t, text in zip(tokenizers, pair)) for pair in tqdm(pairs, 'Moses tokens', unit=' pairs')]
    pairs = parallel(archive, [f'train.tags.de-en.{lang}' for lang in LANGS], training_lines)
    kept = [pair for pair in tokenize(pairs) if is_kept([len(tokens.split()) for tokens in pair])]
    test = [pair for name in TESTS for pair in parallel(archive, [f'IWSLT14.{name}.de-en.{lang}.xml' for lang in LANGS], test_lines)]
    return dict(train=[pair for i, pair in enumerate(kept, 1) if i % VALID_EVERY], valid=kept[VALID_EVERY - 1::VALID_EVERY], test=tokenize(test))

def main(a):
    (out := Path(a.out)).mkdir(parents=True, exist_ok=True)
    path = Path(a.archive or out / 'de-en.tgz')
    if not path.exists():
        if a.archive: raise UserError(f'{path} does not exist')
        try: download_url_to_file(URL, str(path))
        except OSError as e: raise UserError(f'{URL} cannot be downloaded ({getattr(e, "reason", e)}): give a copy as --archive') from None
    try:
        with tarfile.open(path) as archive: splits = prepare(archive)
    except (tarfile.TarError, EOFError, zlib.error) as e: raise UserError(f'{path} is no whole archive de-en.tgz ({e}): delete it, or give a copy as --archive') from None
    for name, pairs in splits.items():
        for lang, lines in zip(LANGS, zip(*pairs)): atomic_write_text(out / f'{name}.{lang}', ''.join(line + '\n' for line in lines))
        print(f'{name}: {len(pairs):,} pairs ({EXPECTED[name]:,} expected)')
    print(f'next: transformer_train --recipe iwslt14 --dataset text --source_lang de --target_lang en --data_dir {out} --output_dir runs/iwslt14')

if __name__ == '__main__':
    with _exit_on_user_error(): main(p.parse_args())
