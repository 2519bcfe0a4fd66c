"""Does a run that was exported to Hugging Face's `transformers` translate there as it does here?

The export is opened as a user would open it. Compared are the ids of the tokenizers, of test captions and of odd lines; the logits, before and after the opened model is saved again; and the
translations of the first test sentences, found greedily, with a beam and no length penalty, and with the defaults of both sides. Our limit of a translation is its source's length and 50 tokens more;
the export's is one for all. Where it says `our limit`, the library is given ours, in batches of sources of one length. For each sentence that differs both translations are scored by our model. The last part varies the exponent of the library's length penalty, which is another one than ours. The code of the model card is run, too.

    python benchmarks/hugging_face.py runs/multi30k_tiny --out nbs/results/hugging_face_multi30k.json

With --out, results of other versions of transformers stay in the file as long as they are of the same weights and sentences: run it once in each environment.
"""
import argparse, json, os, platform, subprocess, sys, time
from collections import Counter
from contextlib import redirect_stdout
from importlib.metadata import version
from io import StringIO
from pathlib import Path
from tempfile import TemporaryDirectory
import torch
import transformers
from annotated_transformer.inference.evaluation import load_test_split
from annotated_transformer.utils.io import _sha256_file
from annotated_transformer.inference.beam_search import length_penalty
from annotated_transformer.export.transformers import to_transformers
from annotated_transformer.data.moses import moses_lc
from annotated_transformer.inference.translator import Translator

UNUSUAL_TEXTS = ['', ' ', '  two  spaces ', 'a ', '\ttab\tand tab', 'no-break\u00a0space', 'thin\u2009space', '\u200bzero width', '\ufeffmark', 'line\u2028separator', 'a\nb', 'a\r', '\x00', '\x85', '😀 smile',
       '👨\u200d👩\u200d👧', '👍🏽', 'naïve Ωmega', '漢字かな', 'e\u0301', 'ﬁ Ⅷ ½', 'İstanbul', '▁', 'a▁b', '</s>', '<pad> a <s>', '<unk>', '<0x0A>', '<0xF0><0x9F>', '>>de<< hello', '&quot; &apos;s',
       '„quotes“ ‘and’ …', '1–2 — 3', 'a' * 500]

def load_marian_tokenizer(translator, folder):
    "transformers' own class for Marian's tokenizers, with our tokens."
    t = translator.tokenizer
    folder.mkdir()
    for name in 'source.spm', 'target.spm': t.save(folder / name)
    (folder / 'vocab.json').write_text(json.dumps({token: i for i, token in enumerate(t.convert_ids_to_tokens(range(t.vocab_size)))}))
    (folder / 'tokenizer_config.json').write_text(json.dumps(dict(source_lang=translator.config['source_lang'], target_lang=translator.config['target_lang'], bos_token='<s>')))
    return transformers.MarianTokenizer.from_pretrained(folder)

def compare_tokenizers(tokenizer, ours, texts):
    "How many lines of each text have other ids than ours, and how many come back from our ids as another text."
    found = {}
    for name, lines in texts.items():
        ids, start = ours.encode(lines), time.process_time()
        theirs, seconds = tokenizer(lines)['input_ids'], time.process_time() - start
        back = tokenizer.batch_decode([row + [ours.eos_id] for row in ids], skip_special_tokens=True)
        which = [line for line, a, b in zip(lines, ids, theirs, strict=True) if a + [ours.eos_id] != b]
        found[name] = dict(lines=len(lines), ids=len(which), texts=sum(a != b for a, b in zip(ours.decode(ids), back, strict=True)), lines_per_s=round(len(lines) / seconds), which=which[:20])
    return found

@torch.no_grad()
def log_prob(translator, source, text):
    "Log-probability of a translation, and its number of tokens with eos."
    t = translator.tokenizer
    tgt = torch.tensor([[t.bos_id] + t.encode([text])[0] + [t.eos_id]])
    after = translator.models[0](translator.encode([source])[0][None], tgt[:, :-1])
    return after.log_softmax(-1).gather(-1, tgt[:, 1:, None]).sum().item(), tgt.size(1) - 1

def explain_difference(scores, alpha, beta):
    "Why two translations differ: both penalties rank them, or one search did not find what it would prefer."
    (p, n), (q, m) = scores
    ours = p / length_penalty(n, alpha) - q / length_penalty(m, alpha)      # above 0: we prefer our own
    theirs = p / n ** beta - q / m ** beta                                  # above 0: they prefer ours, too
    if abs(ours) < 1e-5 or abs(theirs) < 1e-5: return 'equally likely'
    if ours > 0 > theirs: return 'the penalties rank them otherwise'
    return 'our search did not find the better one' if ours < 0 else 'their search did not find the better one'

def main(a):
    torch.set_num_threads(1)
    transformers.logging.set_verbosity_error()
    if hasattr(transformers.utils.logging, 'disable_progress_bar'): transformers.utils.logging.disable_progress_bar()
    translator, (sources, references) = Translator.from_pretrained(a.run, device='cpu'), load_test_split(a.run)
    ours, begun = translator.tokenizer, time.process_time()
    prepare = (lambda lines: moses_lc(lines, translator.config['source_lang'])) if translator.config['preprocessing'] == 'moses_lc' else list
    with TemporaryDirectory() as tmp:
        folder = Path(tmp) / 'export'
        to_transformers(a.run, folder)
        tokenizer, model = transformers.AutoTokenizer.from_pretrained(folder), transformers.AutoModelForSeq2SeqLM.from_pretrained(folder)
        classes = {'tokenizer.json': tokenizer, 'MarianTokenizer': load_marian_tokenizer(translator, Path(tmp) / 'marian')}
        texts = dict(raw=sources[:1000] + references[:1000], prepared=prepare(sources[:1000]), odd=UNUSUAL_TEXTS)
        tokenizers = {name: compare_tokenizers(k, ours, texts) for name, k in classes.items()}

        sources = sources[:a.sentences]
        lines = prepare(sources)
        length, rows = [len(row) for row in translator.encode(sources)], {}
        for i, n in enumerate(length): rows.setdefault(n, []).append(i)
        batches = [same[i:i + a.batch] for _, same in sorted(rows.items()) for i in range(0, len(same), a.batch)]      # sources of one length: one limit for all
        def theirs(our_limit, **search):
            out = [None] * len(lines)
            for rows in batches:
                limit = dict(max_length=length[rows[0]] + 51) if our_limit else {}                                    # bos, 50 tokens more than the source
                batch = tokenizer([lines[i] for i in rows], return_tensors='pt', padding=True)
                for i, text in zip(rows, tokenizer.batch_decode(model.generate(**batch, **search, **limit), skip_special_tokens=True), strict=True): out[i] = text
            return out

        beta, searches = model.generation_config.length_penalty, {}
        for name, our_limit, here, there in (
                ('greedy, our limit', True, dict(beam=1), dict(num_beams=1)), ('greedy', False, dict(beam=1), dict(num_beams=1)),
                ('beam, no penalty, our limit', True, dict(alpha=0.), dict(length_penalty=0.)), ('defaults', False, {}, {})):
            x, y, differ = [found[0][0] for found in translator.n_best(sources, **here)], theirs(our_limit, **there), []
            for source, n, text, other in zip(sources, length, x, y, strict=True):
                if text == other: continue
                scores = [log_prob(translator, source, z) for z in (text, other)]
                greedy = 'a token of the one was as likely as that of the other' if 'greedy' in name else None
                why = 'our limit ends it' if scores[0][1] == n + 50 and other.startswith(text) else greedy or explain_difference(scores, here.get('alpha', .6), there.get('length_penalty', beta))
                differ.append(dict(source=source, ours=text, theirs=other, log_prob=[round(p, 5) for p, _ in scores], tokens=[n for _, n in scores], cause=why))
            searches[name] = dict(same=len(x) - len(differ), causes=dict(Counter(d['cause'] for d in differ)), differ=differ)
            print(name, searches[name]['same'], 'of', len(x), 'are the same', searches[name]['causes'], flush=True)
            if name == 'defaults': by_default = x
        grid = {str(b): sum(x == y for x, y in zip(by_default, theirs(False, length_penalty=b), strict=True)) for b in sorted({*a.penalties, beta})}
        print('same as ours at alpha = 0.6, by length_penalty:', grid, flush=True)

        batch = tokenizer(lines[:a.batch], return_tensors='pt', padding=True)
        start = torch.cat([torch.full((len(batch['input_ids']), 1), ours.bos_id), batch['input_ids']], 1)
        model.save_pretrained(Path(tmp) / 'again')
        with torch.no_grad():
            right = translator.models[0](batch['input_ids'], start)
            logits, again = ((m(**batch, decoder_input_ids=start).logits - right).abs().max().item() for m in (model, type(model).from_pretrained(Path(tmp) / 'again')))
        code = (folder / 'README.md').read_text().split('```')[1].removeprefix('python\n').replace("['…']", repr(sources[:3])).replace("'.'", repr(str(folder)))
        with redirect_stdout(StringIO()) as printed: exec(code, {})
        card = printed.getvalue() == f'{translator.postprocess(theirs(False)[:3])}\n'
    print(f'logits differ by at most {logits:.1e}, after saving and loading {again:.1e}; code of the card: {"as expected" if card else "FAILS"}')

    commit = subprocess.run(['git', 'rev-parse', '--short', 'HEAD'], capture_output=True, text=True).stdout.strip()
    record = dict(
        command=' '.join(['python', *sys.argv]), commit=commit, machine=f'one thread of {os.cpu_count()}, {platform.machine()} CPU', run=dict(model=_sha256_file(Path(a.run) / 'model.safetensors'), corpus=translator.config['corpus'],
        text=translator.config['preprocessing'], updates=checkpoint_step(a.run)), sentences=len(lines), batch=a.batch, length_penalty=beta, transformers={})
    same = lambda old: all(old.get(k) == record[k] for k in ('run', 'sentences', 'length_penalty'))
    if a.out and Path(a.out).exists() and same(old := json.loads(Path(a.out).read_text())): record['transformers'] = old['transformers']
    record['transformers'][transformers.__version__] = dict(
        versions={p: version(p) for p in ('torch', 'tokenizers', 'sentencepiece', 'sacremoses')}, seconds=round(time.process_time() - begun), tokenizers=tokenizers, searches=searches, penalties=grid,
        logits=logits, logits_saved_again=again, card_runs=card)
    if a.out: Path(a.out).write_text(json.dumps(record, indent=1, ensure_ascii=False) + '\n')

def checkpoint_step(run):
    "After which update the weights were saved, where a checkpoint has the same."
    same = [p.parent.name for p in Path(run).glob('checkpoints/step-*/model.safetensors') if _sha256_file(p) == _sha256_file(Path(run) / 'model.safetensors')]
    return int(same[0].removeprefix('step-')) if same else None

p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
p.add_argument('run', help='run directory that training wrote')
p.add_argument('--sentences', type=int, default=500, help='of the test split, the first ones')
p.add_argument('--batch', type=int, default=50, help='sentences translated together by the library')
p.add_argument('--penalties', type=float, nargs='*', default=[0., .2, .3, .4, .5, .6, .8], help='exponents to try beside the one that the export writes')
p.add_argument('--out', help='write the results to this JSON file, too')

if __name__ == '__main__': main(p.parse_args())
