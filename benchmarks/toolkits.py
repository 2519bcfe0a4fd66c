"""How many tokens does a whole training loop learn from in a second? Ours against JoeyNMT and transformers' Seq2SeqTrainer.

All train the model of recipe multi30k_tiny on Multi30k, English to German, cut into the same tokens, with the same schedule of the
learning rate. Each runs its own loop, with its own batches, loss and optimizer, in a process of its own; only how an update begins
and ends is watched. The processes work in turns, a few updates at a time, so that a busy moment hits all, and the first update of
each turn is not counted. Counted are real tokens of the target, padding left out.

Where the differences come from is measured by changing our loop in one thing after the other towards theirs, each step keeping those
before it; what is left at the end is `rest`.

    python benchmarks/toolkits.py data/multi30k --joeynmt joey/bin/python --out nbs/results/toolkits_cpu.json
    python benchmarks/toolkits.py data/multi30k --updates 6 --rounds 1 --no-steps        # a short one, without JoeyNMT

JoeyNMT wants an environment of its own: `python -m venv joey; joey/bin/pip install joeynmt==2.3.0
sentencepiece==0.2.0 importlib-metadata torch==VERSION`, the version of PyTorch being that of here. All processes together need some 12 GB.
"""
# The part that runs under JoeyNMT's Python may import nothing of ours: whatever is not there is imported where it is needed.
import argparse, ctypes, json, math, os, platform, resource, subprocess, sys, tempfile, time
from importlib.metadata import version
from pathlib import Path
from statistics import geometric_mean, mean

RECIPE, CORPUS = 'multi30k_tiny', ('multi30k', 'en', 'de')
JOEY_SEED = 42          # its own default
WARMUP = 200            # updates in which the learning rate grows: a tenth of the recipe's, so that few updates show that all learn

class WorkerMonitor:
    "In the process of a toolkit: watches its updates, and lets it go on only when it is its turn."
    def __init__(self, said):
        import torch
        from torch.optim.optimizer import register_optimizer_step_post_hook
        torch.set_num_threads(said['threads'])
        self.say, self.clock, self.warmup, self.updates = os.fdopen(os.dup(1), 'w'), getattr(time, said['clock']), said['warmup'], said['updates']
        os.dup2(2, 1)                                    # what the toolkit prints goes to its log
        self.due, self.batches, self.ends, self.losses = self.warmup, [], [], []
        register_optimizer_step_post_hook(lambda *_: self.ends.append(self.clock()))

    def begin(self, real_src, real_tgt, src_shape, tgt_shape):
        "An update is about to compute: perhaps it must wait for the next turn."
        if len(self.ends) == self.due: self.report()
        self.batches.append((real_src, real_tgt, math.prod(src_shape), math.prod(tgt_shape), tgt_shape[0]))

    def report(self):
        drop = len(self.ends) - self.updates if self.due != self.warmup else 0      # updates of a turn that do not count
        counted = self.batches[drop:]
        total = {k: sum(x) for k, x in zip(('real_src', 'real_tgt', 'cells_src', 'cells_tgt', 'sentences'), zip(*counted))}
        total |= dict(seconds=self.ends[-1] - self.ends[drop - 1] if drop else None, updates=len(counted),
                      losses=[float(x) for x in self.losses], memory_MB=resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024,
                      versions={m: version(m) for m in ('annotated_transformer', 'joeynmt', 'transformers', 'torch', 'accelerate', 'sentencepiece') if m in sys.modules})
        print(json.dumps(total), file=self.say, flush=True)
        try: ctypes.CDLL(None).malloc_trim(0)            # others need the memory now
        except (AttributeError, OSError): pass           # not glibc
        if not sys.stdin.readline(): os._exit(0)         # the measurement is over
        self.due, self.batches, self.ends, self.losses = self.updates + 1, [], [], []

def train_ours(turns, said):
    "`transformer_train` as it is, but for what `steps` change in it."
    from annotated_transformer.training import trainer as training
    from annotated_transformer.recipe import get_recipe
    changes = dict(max_steps=1000000, save_every='1000000 steps', warmup_steps=WARMUP)       # as in the other two, nothing is validated or saved
    for step in said['steps']: changes |= ablations[step](training) or {}
    train_step = training.train_step
    def watched(model, optimizer, src, tgt, *args):
        turns.begin((src != 0).sum().item(), (tgt[:, 1:] != 0).sum().item(), src.shape, tgt[:, 1:].shape)
        loss, n, norm = train_step(model, optimizer, src, tgt, *args)
        turns.losses.append((loss / n).item())
        return loss, n, norm
    replace(training, 'train_step', watched)
    training.train(get_recipe(RECIPE, **changes), CORPUS, said['out'], said['data'])

def entropy(eps_ls, V):
    "Of JoeyNMT's smoothed targets: what its loss leaves out, so that losses can be compared."
    return -(1 - eps_ls) * math.log(1 - eps_ls) - eps_ls * math.log(eps_ls / (V - 2))

def train_joeynmt(turns, said):
    "`python -m joeynmt train` with the options of the Transformer that it ships for IWSLT14, at our sizes."
    import yaml
    from joeynmt import training
    from joeynmt.config import load_config
    from joeynmt.helpers import make_model_dir
    from joeynmt.helpers_for_ddp import get_logger
    folder, out = Path(said['folder']), Path(said['out'])
    side = lambda lang: dict(lang=lang, level='bpe', tokenizer_type='sentencepiece', voc_file=f'{folder}/vocab.txt', tokenizer_cfg=dict(model_file=f'{folder}/tokenizer.model'))
    stack = dict(type='transformer', num_layers=4, num_heads=4, embeddings=dict(embedding_dim=128, scale=True), hidden_size=128, ff_size=256, dropout=.3, layer_norm='post')
    config = dict(name='toolkits', joeynmt_version='2.3.0', model_dir=str(out), use_cuda=False, random_seed=JOEY_SEED, testing={},
        data=dict(train=f'{folder}/train', dev=f'{folder}/valid', dataset_type='plain', src=side('en'), trg=side('de')),
        training=dict(optimizer='adam', normalization='tokens', adam_betas=[.9, .98], scheduling='warmupinversesquareroot', learning_rate=5e-3, learning_rate_warmup=WARMUP,
                      learning_rate_min=1e-8, label_smoothing=.1, loss='crossentropy', batch_size=8192, batch_type='token', shuffle=True, epochs=1000, validation_freq=10**6),
        model=dict(initializer='xavier_uniform', init_gain=1., embed_initializer='xavier_uniform', embed_init_gain=1., bias_initializer='zeros',
                   tied_embeddings=True, tied_softmax=True, encoder=stack, decoder=stack))
    Path(f'{out}.yaml').write_text(yaml.safe_dump(config))
    make_model_dir(out)
    get_logger('', log_file=f'{out}/train.log')
    step = training.TrainManager._train_step
    def watched(self, batch):
        turns.begin(int(batch.src_length.sum()), batch.ntokens, batch.src.shape, batch.trg.shape)
        loss, correct = step(self, batch)
        turns.losses.append(loss + entropy(.1, 10_000))
        return loss, correct
    training.TrainManager._train_step = watched
    training.train(0, None, load_config(Path(f'{out}.yaml')), skip_test=True)

def train_seq2seq_trainer(turns, said):
    "Seq2SeqTrainer with a random Marian model, sentences grouped by length, and its defaults for the rest."
    from dataclasses import fields
    from datasets import load_from_disk
    from tokenizers import Tokenizer
    from tokenizers.models import WordLevel
    from transformers import DataCollatorForSeq2Seq, PreTrainedTokenizerFast, Seq2SeqTrainer, Seq2SeqTrainingArguments, set_seed
    from annotated_transformer.recipe import get_recipe
    from training import Marian
    pairs = load_from_disk(f"{said['folder']}/train")
    bos = pairs[0]['tgt'][0]
    pairs = pairs.map(lambda row: dict(input_ids=row['src'], labels=row['tgt'][1:]), remove_columns=pairs.column_names)      # ids need no mask yet
    class Watched(Seq2SeqTrainer):
        def _get_train_sampler(self, *args):
            sampler = super()._get_train_sampler(*args)
            sampler.generator = make_generator(0)              # the order that `length_grouped_batches` knows, too
            return sampler
        def training_step(self, model, inputs, *args, **options):
            mask, labels = inputs['attention_mask'], inputs['labels']
            turns.begin(mask.sum().item(), (labels != -100).sum().item(), mask.shape, labels.shape)
            loss = super().training_step(model, inputs, *args, **options)
            turns.losses.append(loss)
            return loss
    set_seed(0)
    model = Marian(get_recipe(RECIPE).model).body
    model.config.decoder_start_token_id = bos
    tokenizer = PreTrainedTokenizerFast(tokenizer_object=Tokenizer(WordLevel({'<pad>': 0, '<unk>': 3}, '<unk>')), pad_token='<pad>')    # only pads
    grouped = (dict(train_sampling_strategy='group_by_length') if 'train_sampling_strategy' in {f.name for f in fields(Seq2SeqTrainingArguments)}
               else dict(group_by_length=True))          # until transformers 4
    options = Seq2SeqTrainingArguments(
        output_dir=said['out'], per_device_train_batch_size=said['sentences'], max_steps=10**6, learning_rate=5e-3, lr_scheduler_type='inverse_sqrt', warmup_steps=WARMUP,
        label_smoothing_factor=.1, adam_beta2=.98, save_strategy='no', report_to='none', use_cpu=True, dataloader_pin_memory=False, **grouped)
    Watched(model=model, args=options, train_dataset=pairs, data_collator=DataCollatorForSeq2Seq(tokenizer, model=model), processing_class=tokenizer).train()

# What is changed in our loop on the way to theirs: each a function of the module `training`, which may also name fields of the recipe.

def replace(module, name, new):
    "A name that the module does not have is an error: the change would have no effect."
    getattr(module, name)
    setattr(module, name, new)

def pytorch_products(training):
    "PyTorch's matrix products; what else `optimize_for_training` does on a CPU stays."
    from annotated_transformer.training import run_setup
    replace(run_setup, '_matmul_backend', lambda recipe: 'pytorch')

def use_batches(plan):
    "Batches of the train split that `plan(n_src, n_tgt, tokens, epoch)` has chosen."
    def change(training):
        from annotated_transformer.data.batching import Batches
        import numpy as np
        class Chosen(Batches):
            def __init__(self, pairs, tokens, pad_id, seed):
                super().__init__(pairs, tokens, pad_id, seed)
                n_src, n_tgt = np.array(pairs['n_src']), np.array(pairs['n_tgt']) - 1
                chosen = [plan(n_src, n_tgt, tokens, epoch) for epoch in range(2)]
                self.get_epoch_batches, self.batches_per_epoch = lambda epoch: chosen[epoch % 2], min(map(len, chosen))
        from annotated_transformer.training import run_batches
        usual = run_batches.load_batches
        def load_batches(folder, tokens, pad_id, seed, *more):
            from datasets import load_from_disk
            return Chosen(load_from_disk(folder), tokens, pad_id, seed) if Path(folder).name == 'train' else usual(folder, tokens, pad_id, seed, *more)
        replace(run_batches, 'load_batches', load_batches)
    return change

def make_generator(seed):
    import torch
    return torch.Generator().manual_seed(seed)

def random_batches(n_src, n_tgt, tokens, epoch):
    "JoeyNMT's: sentences in random order, a batch being closed when its rectangle has reached the budget."
    import torch
    batches, batch, longest = [], [], 0
    for i in torch.randperm(len(n_src), generator=make_generator(JOEY_SEED + 1 + epoch)).tolist():
        batch.append(i)
        longest = max(longest, n_src[i], n_tgt[i])
        if longest * len(batch) >= tokens: batches, batch, longest = [*batches, batch], [], 0
    return batches

def length_grouped_batches(n_src, n_tgt, tokens, epoch):
    "The trainer's: a fixed number of sentences, sorted by the length of the source within fifty batches."
    from transformers.trainer_pt_utils import get_length_grouped_indices
    size = sentences_per_batch(n_src, n_tgt, tokens)
    order = get_length_grouped_indices(n_src.tolist(), size, generator=make_generator(epoch))
    return [order[i:i + size] for i in range(0, len(order), size)]

def sentences_per_batch(n_src, n_tgt, tokens):
    "The mean number of sentences of our batches, and so of the same number of target tokens."
    from annotated_transformer.data.batching import make_batches
    return round(len(n_src) / len(make_batches(n_src, n_tgt, tokens)))

def replace_loss(loss):
    "Another loss, of all tokens at once: what ours gains by its chunks belongs to this step, too."
    from annotated_transformer.model import seq2seq
    replace(seq2seq, 'label_smoothed_loss', loss)
    replace(seq2seq.Seq2SeqModel, '_chunk_size', lambda self: None)

def dense_loss(training):
    "JoeyNMT's: the smoothed targets as a matrix, their divergence from the log-probabilities, and which are right."
    import torch
    from torch.nn import functional as F
    def loss(logits, target, eps_ls, pad_id):
        log_p, target = logits.log_softmax(-1).flatten(0, 1), target.flatten()
        smooth = torch.zeros_like(log_p).fill_(eps_ls / (log_p.size(1) - 2)).scatter_(1, target[:, None], 1 - eps_ls)
        smooth[:, pad_id] = 0
        real = target != pad_id
        smooth.index_fill_(0, (~real).nonzero().flatten(), 0.)
        (log_p.argmax(-1).masked_select(real) == target.masked_select(real)).sum().item()
        return F.kl_div(log_p, smooth, reduction='sum') + real.sum() * entropy(eps_ls, log_p.size(1)), real.sum()
    replace_loss(loss)

def unfused_attention(training):
    "JoeyNMT's: attention as four operations in place of one, and dropout also on its weights and within the feed-forward layer."
    from annotated_transformer.model.feed_forward import FeedForward
    from torch.nn import functional as F
    def attention(Q, K, V, mask, p):
        scores = Q / math.sqrt(Q.size(-1)) @ K.transpose(-2, -1)
        if mask is not None: scores = scores.masked_fill(~mask, -math.inf)
        return F.dropout(scores.softmax(-1), p) @ V
    replace(F, 'scaled_dot_product_attention', attention)
    replace(FeedForward, 'forward', lambda self, x: self.W_2(F.dropout(self.W_1(x).relu(), .3, self.training)))
    return dict(P_attn=.3)

def default_adam(training):
    "JoeyNMT's: PyTorch's Adam as it comes, which goes through the parameters one by one, in several operations each."
    import torch
    replace(training, 'make_optimizer', lambda model, *_: torch.optim.Adam(model.parameters(), lr=0., betas=(.9, .98), eps=1e-8))

def use_marian(training):
    "The trainer's model in our loop."
    from annotated_transformer.training import run_setup
    from training import Marian, Peer
    replace(run_setup, 'build_model', lambda architecture, c, pad_id: Peer(Marian(c), c))

def use_label_smoother(training):
    "The trainer's loss."
    from transformers.trainer_pt_utils import LabelSmoother
    def loss(logits, target, eps_ls, pad_id):
        n = (target != pad_id).sum()
        return LabelSmoother(eps_ls)((logits,), target.masked_fill(target == pad_id, -100)) * n, n
    replace_loss(loss)

ablations = {'products by PyTorch': pytorch_products, 'random batches': use_batches(random_batches), 'targets as a matrix': dense_loss, 'attention written out': unfused_attention, 'Adam one by one': default_adam,
           'grouped batches': use_batches(length_grouped_batches), 'the model of Marian': use_marian, 'the loss of the trainer': use_label_smoother}
toolkits = {'ours': train_ours, 'JoeyNMT': train_joeynmt, 'Seq2SeqTrainer': train_seq2seq_trainer}
ablation_paths = {'JoeyNMT': list(ablations)[:5], 'Seq2SeqTrainer': [*list(ablations)[:1], *list(ablations)[5:]]}     # toolkit → the steps to it

class WorkerProcess:
    "The process of one toolkit, as seen from the measurement."
    def __init__(self, name, python, said, folder):
        short = name.replace(',', '').replace(' ', '_')
        self.log = folder / f'{short}.log'
        said = said | dict(out=str(folder / 'runs' / short))
        env = os.environ | dict.fromkeys(('OMP_NUM_THREADS', 'MKL_NUM_THREADS'), str(said['threads'])) | dict(PYTHONWARNINGS='ignore', TOKENIZERS_PARALLELISM='false')
        self.process = subprocess.Popen([python, __file__, '--child', json.dumps(said)], stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=open(self.log, 'w'), text=True, env=env)

    def turn(self, go=True):
        "Its next updates. Raises RuntimeError if it has ended."
        if go: print(file=self.process.stdin, flush=True)
        if line := self.process.stdout.readline(): return json.loads(line)
        self.process.wait()
        raise RuntimeError((self.log.read_text().strip().splitlines() or ['it said nothing'])[-1])

    def end(self):
        self.process.stdin.close()
        self.process.wait()

def prepare_data(a, folder):
    "The data of our recipe, and the same as text for JoeyNMT. Returns the number of sentences of a batch, and what was prepared."
    import numpy as np
    from datasets import load_from_disk
    from annotated_transformer.data.preprocessing import _dataset_hash, preprocess_corpus
    from annotated_transformer.recipe import get_recipe
    from annotated_transformer.data.tokenizer import Tokenizer
    r = get_recipe(RECIPE)
    (folder / 'runs').mkdir()
    (folder / 'runs' / '.data').symlink_to(Path(a.store).resolve() if a.store else folder)
    store = folder / 'runs' / '.data' / _dataset_hash(r.preprocessing_config, CORPUS, a.data)
    preprocess_corpus(r.preprocessing_config, CORPUS, a.data, store)
    t, given = Tokenizer.load(store), folder / 'given'
    given.mkdir()
    t.save(given)
    (given / 'train').symlink_to((store / 'train').resolve())
    (given / 'vocab.txt').write_text('\n'.join(t.convert_ids_to_tokens(range(4, t.vocab_size))) + '\n')      # after JoeyNMT's own four, which are ours
    for split in ('train', 'valid'):
        pairs = load_from_disk(store / split)
        for column, lang, cut in (('src', 'en', slice(-1)), ('tgt', 'de', slice(1, -1))):
            ids = [row[cut] for row in pairs[column]]
            text = t.decode(ids)
            if (same := sum(x == y for x, y in zip(t.encode(text), ids)) / len(ids)) < .999: sys.exit(f'error: only {same:.2%} of the {lang} text is cut into the same tokens again')
            (given / f'{split}.{lang}').write_text('\n'.join(text) + '\n')
    pairs = load_from_disk(store / 'train')
    return sentences_per_batch(np.array(pairs['n_src']), np.array(pairs['n_tgt']) - 1, r.data.max_tokens), given

def measure(a, folder):
    "name → what it reported in each turn, the first being the warm-up; and who is left out, and why."
    batch, given = prepare_data(a, folder)
    said = dict(threads=a.threads, clock='process_time' if a.cpu_time else 'perf_counter', warmup=a.warmup, updates=-(-a.updates // a.rounds), data=a.data, folder=str(given), sentences=batch)
    wanted = {name: said | dict(toolkit=name, steps=[]) for name in toolkits}
    for way in ablation_paths.values() if not a.no_steps else ():
        for i in range(len(way)): wanted[f'ours, {way[i]}'] = said | dict(toolkit='ours', steps=way[:i + 1])
    children, turns, missing = {}, {}, {}
    if not a.joeynmt: missing['JoeyNMT'] = 'not asked for: --joeynmt PYTHON'
    for name, one in wanted.items():
        if name in missing: continue
        children[name] = WorkerProcess(name, a.joeynmt if name == 'JoeyNMT' else sys.executable, one, folder)
        try: turns[name] = [children[name].turn(go=False)]
        except RuntimeError as e:
            missing[name] = str(e)
            del children[name]
    for name, why in missing.items(): print(f'{name} is left out ({why})', file=sys.stderr)
    for i in range(a.rounds):
        for name, child in list(children.items())[::-1 if i % 2 else 1]: turns[name].append(child.turn())
        print(f'round {i + 1} of {a.rounds}: ' + ', '.join(f"{name} {t[-1]['real_tgt'] / t[-1]['seconds']:,.0f}" for name, t in turns.items()), file=sys.stderr)
    for child in children.values(): child.end()
    config = folder / 'runs' / 'ours' / 'config.json'
    products = json.loads(config.read_text()).get('resolved_matmul_backend') if config.is_file() else None
    return turns, missing, dict(trainer_batch=batch, our_products=products)

def tokens_per_second(turns): return [t['real_tgt'] / t['seconds'] for t in turns[1:]]
def geometric_speedup(turns, x, y):
    "Ratios of single rounds, in the mean that keeps products: the factors of the steps multiply to the whole."
    return geometric_mean(s / t for s, t in zip(tokens_per_second(turns[x]), tokens_per_second(turns[y])))

def summarize(turns, name):
    total = lambda key: sum(t[key] for t in turns[name][1:])
    losses = [x for t in turns[name] for x in t['losses']]
    return dict(target_tokens_per_s=total('real_tgt') / total('seconds'), of_each_round=tokens_per_second(turns[name]), seconds_per_update=total('seconds') / total('updates'),
                target_tokens_per_update=total('real_tgt') / total('updates'), sentences_per_update=total('sentences') / total('updates'),
                padding=1 - (total('real_src') + total('real_tgt')) / (total('cells_src') + total('cells_tgt')),
                first_loss=mean(losses[:5]), last_loss=mean(losses[-5:]), updates_timed=total('updates'), updates_in_all=len(losses),
                memory_MB=turns[name][-1]['memory_MB'], ours_is_faster=geometric_speedup(turns, 'ours', name))

def attribution(turns, toolkit):
    "From ours to a toolkit: by what factor each step slows it down, the rest last; they multiply to the whole ratio."
    way = ['ours', *(f'ours, {step}' for step in ablation_paths[toolkit])]
    if not {toolkit, *way} <= set(turns): return None
    factors = [geometric_speedup(turns, x, y) for x, y in zip(way, [*way[1:], toolkit])]
    steps = [dict(step=step, slower=f, target_tokens_per_s=summarize(turns, name)['target_tokens_per_s']) for step, f, name in zip([*ablation_paths[toolkit], 'rest'], factors, [*way[1:], toolkit])]
    tokens = [[t['real_tgt'] for t in turns[name]] for name in (way[-1], toolkit)]
    return dict(steps=steps, same_batches=tokens[0] == tokens[1], measured_steps=math.prod(factors[:-1]), whole=geometric_speedup(turns, 'ours', toolkit))

def git_commit():
    got = subprocess.run(['git', 'rev-parse', '--short', 'HEAD'], cwd=Path(__file__).parent, capture_output=True, text=True)
    return got.stdout.strip() or None

p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
p.add_argument('data', nargs='?', help='folder of Multi30k: train.en.gz, train.de.gz …')
p.add_argument('--joeynmt', metavar='PYTHON', help='the Python of the environment in which JoeyNMT is installed; left out if not given')
p.add_argument('--updates', type=int, default=100, help='timed updates of each, all rounds together')
p.add_argument('--warmup', type=int, default=5, help='updates before the first round')
p.add_argument('--rounds', type=int, default=3, help='turns that each takes')
p.add_argument('--threads', type=int, default=1)
p.add_argument('--no-steps', action='store_true', help='only the three toolkits, not where their difference comes from')
p.add_argument('--cpu-time', action='store_true', help='count processor seconds, on a machine that others use too; only with --threads 1')
p.add_argument('--store', help='folder `.data` beside earlier runs, to cut the text only once')
p.add_argument('--out', help='write the results to this JSON file, too')
p.add_argument('--child', help=argparse.SUPPRESS)

def main(a):
    if a.child:
        said = json.loads(a.child)
        return toolkits[said['toolkit']](WorkerMonitor(said), said)
    if not a.data: p.error('name the folder of Multi30k')
    if a.cpu_time and a.threads > 1: p.error('--cpu-time needs --threads 1')
    began, load = time.time(), os.getloadavg()[0]
    command = ' '.join(['python', 'benchmarks/toolkits.py', *(Path(x).name if os.path.isabs(x) else x for x in sys.argv[1:])])    # no paths of this machine
    with tempfile.TemporaryDirectory() as folder: turns, missing, chosen = measure(a, Path(folder))
    if 'ours' not in turns: sys.exit(f"error: nothing to compare with ({missing['ours']})")
    results = dict(command=command, commit=git_commit(), machine=f'{platform.machine()}, {os.cpu_count()} cores', clock='processor time' if a.cpu_time else 'wall',
                   threads=a.threads, load_before=load, versions={name: turns[name][0]['versions'] for name in toolkits if name in turns}, seeds=f'0, JoeyNMT {JOEY_SEED}', minutes=(time.time() - began) / 60,
                   recipe=RECIPE, **chosen, left_out=missing, systems={name: summarize(turns, name) for name in turns},
                   attribution={toolkit: attribution(turns, toolkit) for toolkit in ablation_paths})
    print(json.dumps(results, indent=1))
    if a.out: Path(a.out).write_text(json.dumps(results, indent=1) + '\n')
    for name in list(toolkits)[1:]:
        if name in turns: print(f"ours learns from {results['systems'][name]['ours_is_faster']:.2f} times the target tokens of {name} in the same time")

if __name__ == '__main__': main(p.parse_args())
