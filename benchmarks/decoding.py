"""How fast is beam search? Ours against CTranslate2 and Hugging Face's Marian `generate`, with the same weights.

All translate the test split of a run, the longest sentences first, with the same beam, limit and threads; words are cut into
tokens before the clock starts. Each engine has the batch size, of those given, with which it is fastest. Rounds are interleaved, so that a busy moment hits all engines; `speed_over_ours` compares runs
of one round. The peers divide a log-probability by length^α, so most of their translations are ours, not all; `same_as_ours_alpha_0`
counts those of a search without penalty.

    python benchmarks/decoding.py runs/multi30k
    python benchmarks/decoding.py runs/multi30k --threads 2 --compile --out decoding.json
"""
import argparse, json, sys, time
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
import torch
from torch.nn.utils.rnn import pad_sequence
from annotated_transformer.cpu import _OneDNNLinear, _replace_modules
from annotated_transformer.inference.beam_search import beam_search
from annotated_transformer.model.seq2seq import build_model
from annotated_transformer.inference.evaluation import load_test_split
from annotated_transformer.inference.translator import Translator
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / 'experiments'))
from recording import provenance

class Ours:
    "`beam_search` in batches of sentences of like length."
    def __init__(self, run, translator, a):
        self.models, t = translator.models, translator.tokenizer
        self.special, self.pad_id = dict(bos_id=t.bos_id, eos_id=t.eos_id), t.pad_id

    def __call__(self, ids, beam, alpha, limit):
        batches = (pad_sequence(ids[i:i + self.batch], True, self.pad_id) for i in range(0, len(ids), self.batch))
        return [hs[0].ids for src in batches for hs in beam_search(self.models, src, beam, alpha, n_best=1, **self.special)]

class Compiled(Ours):
    "The same with one step of the decoder compiled."
    def __init__(self, run, translator, a):
        if not a.compile: raise ImportError('not asked for: --compile')
        super().__init__(run, Translator.from_pretrained(run, device='cpu'), a)
        for m in self.models: m.decode_step = torch.compile(m.decode_step, dynamic=True)

class Reordered(Ours):
    "The same with keys and values copied to the new places of their prefixes at every step, as most libraries do it."
    def __init__(self, run, translator, a):
        super().__init__(run, translator, a)
        plain = build_model(translator.models[0].architecture, translator.models[0].config, self.pad_id)
        plain.load_state_dict(translator.models[0].state_dict())
        if any(isinstance(m, _OneDNNLinear) for m in translator.models[0].modules()): _replace_modules(plain, torch.nn.Linear, _OneDNNLinear)
        self.models = [plain.eval()]

class CTranslate2:
    "CTranslate2 with the weights in 32 bits, or in 8."
    def __init__(self, run, translator, a, compute_type='float32'):
        import ctranslate2
        from annotated_transformer.export.ctranslate2 import to_ctranslate2
        t = translator.tokenizer
        with TemporaryDirectory() as folder:
            to_ctranslate2(run, folder, None if compute_type == 'float32' else compute_type)
            self.engine = ctranslate2.Translator(folder, intra_threads=a.threads, inter_threads=1, compute_type=compute_type)
        self.t, self.never = t, [t.convert_ids_to_tokens([i]) for i in (t.pad_id, t.bos_id)]

    def __call__(self, ids, beam, alpha, limit):
        out = self.engine.translate_batch([self.t.convert_ids_to_tokens(row[:-1]) for row in ids], max_batch_size=self.batch, beam_size=beam, length_penalty=alpha,
                                          max_decoding_length=limit, suppress_sequences=self.never)
        return [self.t.sp.piece_to_id(o.hypotheses[0]) for o in out]

class Int8(CTranslate2):
    "The same with weights in 8 bits."
    def __init__(self, run, translator, a): super().__init__(run, translator, a, 'int8')

class Marian:
    "Hugging Face's MarianMTModel and its `generate`."
    def __init__(self, run, translator, a):
        from transformers import MarianMTModel
        from annotated_transformer.export.transformers import to_transformers
        self.pad_id = translator.tokenizer.pad_id
        with TemporaryDirectory() as folder:
            try: to_transformers(run, folder)
            except ValueError as e: raise ImportError(e) from e
            self.model = MarianMTModel.from_pretrained(folder)

    def __call__(self, ids, beam, alpha, limit):
        out = []
        for i in range(0, len(ids), self.batch):
            src = pad_sequence(ids[i:i + self.batch], True, self.pad_id)
            written = self.model.generate(src, attention_mask=(src != self.pad_id).long(), num_beams=beam, length_penalty=alpha, max_length=src.size(1) + 51)
            eos = self.model.config.eos_token_id
            out += [row[:row.index(eos)] if eos in row else row for row in written[:, 1:].tolist()]
        return out

def installed(package):
    try: return version(package)
    except PackageNotFoundError: return None

engines = {'ours': Ours, 'ours, reordered': Reordered, 'ours, compiled': Compiled, 'CTranslate2 float32': CTranslate2, 'CTranslate2 int8': Int8, 'HF Marian': Marian}
p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
p.add_argument('run', help='run directory that training wrote')
p.add_argument('--sentences', type=int, default=1000, help='of the test split, the first ones')
p.add_argument('--beam', type=int, default=4)
p.add_argument('--alpha', type=float, default=.6, help='length penalty')
p.add_argument('--batch', type=int, nargs='+', default=[50, 100, 200], help='sentences searched together: each engine gets the one it is fastest with')
p.add_argument('--compile', action='store_true', help='also ours with torch.compile, which takes minutes to warm up')
p.add_argument('--threads', type=int, default=1)
p.add_argument('--rounds', type=int, default=3, help='timed rounds, after one that warms up')
p.add_argument('--cpu-time', action='store_true', help='count processor seconds, on a machine that others use too; only with --threads 1')
p.add_argument('--out', help='write the results to this JSON file, too')

def main(a):
    if a.cpu_time and a.threads > 1: sys.exit('error: --cpu-time needs --threads 1')
    torch.set_num_threads(a.threads)
    translator, clock = Translator.from_pretrained(a.run, device='cpu'), time.process_time if a.cpu_time else time.perf_counter
    ids = sorted(translator.encode(load_test_split(a.run)[0][:a.sentences]), key=lambda row: -len(row))
    limit, ready = len(ids[0]) + 50, {}
    for name, engine in engines.items():
        try: ready[name] = engine(a.run, translator, a)
        except ImportError as e: print(f"{name} is left out ({e})", file=sys.stderr)
    def timed(engine, batch, alpha):
        engine.batch, start = batch, clock()
        return engine(ids, a.beam, alpha, limit), clock() - start

    times, written, batches, plain = {name: [] for name in ready}, {}, {}, {}
    for name, engine in ready.items():
        tried = {batch: timed(engine, batch, 0.) for batch in [a.batch[0], *a.batch]}      # the first warms up
        batches[name] = min(tried, key=lambda batch: tried[batch][1])
        plain[name] = tried[batches[name]][0]
    for _ in range(a.rounds):
        for name, engine in ready.items():
            written[name], seconds = timed(engine, batches[name], a.alpha)
            times[name].append(seconds)

    same = lambda xs, ys: sum(x == y for x, y in zip(xs, ys, strict=True)) / len(xs)
    def row(name): return dict(
        batch=batches[name], sentences_per_s=len(ids) / median(times[name]), speed_over_ours=median(o / t for o, t in zip(times['ours'], times[name])),
        same_as_ours=same(written[name], written['ours']), same_as_ours_alpha_0=same(plain[name], plain['ours']), pieces=sum(len(y) + 1 for y in written[name]) / len(ids))
    results = provenance('torch') | dict(threads=a.threads, sentences=len(ids), source_pieces=sum(map(len, ids)) / len(ids),
                   versions={name: installed(name) for name in ('torch', 'ctranslate2', 'transformers')}, engines={name: row(name) for name in ready})
    print(json.dumps(results, indent=1))
    if a.out:
        out = Path(a.out)      # what was added by hand stays: scores, notes, an earlier record
        old = json.loads(out.read_text(encoding='utf-8')) if out.exists() else {}
        out.write_text(json.dumps({k: v for k, v in old.items() if k in ('BLEU', 'BLEU_command', 'note', 'earlier')} | results, indent=1, ensure_ascii=False) + '\n', encoding='utf-8')
    for name in ready:
        if name != 'ours': print(f"ours does {1 / results['engines'][name]['speed_over_ours']:.2f} times the sentences of {name} in the same time")

if __name__ == '__main__': main(p.parse_args())
