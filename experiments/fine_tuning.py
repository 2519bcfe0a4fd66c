"""What does a translator of captions that was trained to its end bring along for everyday sentences, and what does it forget?

The released model of captions (`nbs/results/multi30k_en_de`, 8,000 steps) goes on with sentences of Tatoeba for 100 steps, and beside it a
new model of the same recipe learns them from nothing, in the same steps; three seeds each, pre-trained weights and recipe shared. Each way
has the better of two learning rates, by the validation loss of seed 0. Measured every 20 steps: the validation loss on sentences in nats per
character (vocabularies differ); of the fine-tuned model before and after, since a run keeps its newest checkpoint alone, the loss per token
on captions, its old text; BLEU on both at the end.
Interrupted, it goes on where it was.

Prediction, written before the first run:
1. Fine-tuned is ahead of new at every validation up to step 100 in each seed, and by at least 5 BLEU on sentences at the end.
2. It forgets: within 100 steps the loss on captions rises by at least 0.3 nats per token and BLEU on captions falls by at least 5.
A difference whose sign differs between seeds is undecided.

    python experiments/fine_tuning.py --captions data/multi30k --sentences data/eng-deu.tsv.gz --out nbs/results/fine_tuning.json
"""
import argparse
import gzip
import json
from pathlib import Path

from accelerate import Accelerator
from datasets import load_from_disk

from annotated_transformer.data.corpora import load_corpus
from annotated_transformer.data.preprocessing import load_batches, preprocess_corpus
from annotated_transformer.data.tokenizer import Tokenizer
from annotated_transformer.inference.evaluation import load_test_split
from annotated_transformer.inference.metrics import score_translations
from annotated_transformer.inference.translator import Translator
from annotated_transformer.recipe import with_overrides
from annotated_transformer.run_directory import RunDirectory, load_model
from annotated_transformer.training.train_step import ModelWithLoss, validate
from annotated_transformer.training.trainer import train
from annotated_transformer.utils.io import project_path
from recording import provenance

SETTINGS = dict(max_steps=100, max_tokens=4096, warmup_steps=20, lr_scheduler_type='constant_with_warmup', save_every='20 steps', average_checkpoints=1)
RATES, SEEDS, TEXT = (1e-3, 3e-3), (0, 1, 2), ('text', 'en', 'de')

def nats_per_character(run):
    "Validation loss on the run's own text by step."
    config = RunDirectory(run).config
    batches = load_batches(run / 'data/valid', 4096, config['pad_id'], 0)
    tokens = sum((tgt[:, 1:] != config['pad_id']).sum().item() for _, tgt in (batches[i] for i in range(len(batches))))
    texts = Tokenizer.load(run).decode(load_from_disk(run / 'data/valid')['tgt'])
    return {m['step']: m['valid_loss'] * tokens / sum(len(text) + 1 for text in texts) for m in RunDirectory(run).metrics() if 'valid_loss' in m}

def caption_losses(run, base, captions):
    "Loss per token on captions, of the base and of each checkpoint."
    batches = load_batches(captions / 'valid', 4096, RunDirectory(base).config['pad_id'], 0)
    of = lambda *weights: validate(ModelWithLoss(load_model(*weights)), batches, Accelerator(cpu=True))[0]
    return {0: of(base)} | {int(p.name[-8:]): of(run, p.absolute() / 'model.safetensors') for p in RunDirectory(run).checkpoints()}

def bleu(run, pairs):
    "Lower-cased tokenised BLEU of beam search."
    sources, references = pairs
    return score_translations(Translator.from_pretrained(run, device='cpu').translate(sources, beam=4), references)['lower-cased tokenised BLEU']

def learn(a, base, way, rate, seed, sentences):
    "One run, or what is left of it."
    run = a.runs / f'{way}_{rate:g}_{seed}'
    recipe = with_overrides(RunDirectory(base).recipe, **SETTINGS, peak_lr=rate, seed=seed)
    if not (run / 'model.safetensors').exists(): train(recipe, TEXT, run, sentences, resume=True, finetune_from=base if way == 'tuned' else None)
    return run

def main(a):
    a.runs.mkdir(parents=True, exist_ok=True)
    base, sentences = project_path('nbs/results/multi30k_en_de'), a.runs / 'sentences.tsv'
    if not sentences.exists():
        with gzip.open(a.sentences, 'rt', encoding='utf-8') as f: sentences.write_text(''.join(line for _, line in zip(range(a.pairs), f)), encoding='utf-8')
    captions = a.runs / 'captions'
    if not (captions / 'valid').exists(): preprocess_corpus(RunDirectory(base).recipe.preprocessing_config, ('multi30k', 'en', 'de'), a.captions, captions, tokenizer_dir=base)
    test = load_corpus(('multi30k', 'en', 'de'), a.captions)['test'][:]
    caption_pairs, ways = (test['source'], test['target']), {}
    for way in 'tuned', 'new':
        first = {rate: nats_per_character(learn(a, base, way, rate, SEEDS[0], sentences)) for rate in RATES}
        rate = min(RATES, key=lambda rate: first[rate][SETTINGS['max_steps']])
        runs = [learn(a, base, way, rate, seed, sentences) for seed in SEEDS]
        ways[way] = dict(rates={f'{r:g}': curve[SETTINGS['max_steps']] for r, curve in first.items()}, rate=rate, runs=[
            dict(seed=seed, sentences=nats_per_character(run), bleu_sentences=bleu(run, load_test_split(run)))
            | (dict(captions=caption_losses(run, base, captions), bleu_captions=bleu(run, caption_pairs)) if way == 'tuned' else {})
            for seed, run in zip(SEEDS, runs)])
    before = dict(bleu_captions=bleu(base, caption_pairs), bleu_sentences=bleu(base, load_test_split(a.runs / f'tuned_{RATES[0]:g}_0')))
    record = provenance('torch', 'accelerate', 'sentencepiece', 'sacrebleu') | dict(pairs=a.pairs, settings=SETTINGS, seeds=SEEDS, before=before, ways=ways)
    print(text := json.dumps(record, indent=1))
    if a.out: Path(a.out).write_text(text + '\n')

if __name__ == '__main__':
    p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    p.add_argument('--captions', required=True, help='folder of Multi30k')
    p.add_argument('--sentences', required=True, help='packed file of tab-separated pairs, English and German')
    p.add_argument('--pairs', type=int, default=20_000, help='sentences to take from it (default: 20,000)')
    p.add_argument('--runs', type=Path, default=Path('runs/fine_tuning'), help='folder for the runs')
    p.add_argument('--out', help='write the results to this JSON file')
    main(p.parse_args())
