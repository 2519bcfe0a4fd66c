"""How fast is one update? Ours against torch.nn.Transformer, x-transformers and Hugging Face's Marian model.

All have the sizes of one recipe, the paper's base or big model or a smaller one, the same batches, label smoothing and Adam,
and dropout only where the paper has it. Rounds are interleaved, so that a busy moment hits everybody; a turn is two steps on
one batch, of which the second is timed, and `time_over_ours` compares steps of one round. On a CPU ours multiplies with the
library that `transformer_train` would choose, `--products auto`; peers do as PyTorch does. `of_matmul_peak` is the share of what
the better of the two libraries reaches with nothing but one large product.

    python benchmarks/training.py                                            # base, up to 2,048 + 2,048 tokens, on the CPU
    python benchmarks/training.py --products both --threads 1 --cpu-time     # ours also as PyTorch multiplies; other work may go on
    python benchmarks/training.py --bf16 --threads 1                         # ours in bfloat16, too, beside peers in float32
    python benchmarks/training.py --device cuda --dtype bf16 --tokens 25000 --recipe big --compile --out big.json
"""
import argparse, ctypes, json, sys, time
from contextlib import suppress
from importlib.metadata import version
from pathlib import Path
from statistics import median
import numpy as np
import torch
from accelerate import Accelerator
from torch import nn
from torch.nn import functional as F
from annotated_transformer.data.batching import make_batches
from annotated_transformer.utils.plotting import n_parameters
from annotated_transformer.model.flops import mfu, peak_flops, train_flops
from annotated_transformer.training.optimizer import adam
from annotated_transformer.model.positional_encoding import PositionalEncoding
from annotated_transformer.cpu import (
    _keep_freed_memory, _linear_onednn, choose_matmul_backend, _is_onednn_available, optimize_for_training)
from annotated_transformer.recipe import get_recipe
from annotated_transformer.training.train_step import ModelWithLoss, train_step
from annotated_transformer.model.seq2seq import Seq2SeqModel
from annotated_transformer.model.transformer import Transformer
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / 'experiments'))
from recording import processor_family

class TorchTransformer(nn.Module):
    "torch.nn.Transformer between a tied embedding and the same sinusoids."
    def __init__(self, c):
        super().__init__()
        self.embed, self.position = nn.Embedding(c.vocab_size, c.d_model), PositionalEncoding(c.d_model, c.P_drop)
        nn.init.normal_(self.embed.weight, std=c.d_model ** -0.5)
        self.body = nn.Transformer(c.d_model, c.h, c.N, c.N, c.d_ff, c.P_drop, batch_first=True)
        for m in self.body.modules():      # its one dropout rate is also used where the paper has none
            if isinstance(m, nn.MultiheadAttention): m.dropout = 0.
            if isinstance(m, (nn.TransformerEncoderLayer, nn.TransformerDecoderLayer)): m.dropout.p = 0.

    def forward(self, src, tgt):
        x, y = (self.position(self.embed(ids) * self.embed.embedding_dim ** 0.5) for ids in (src, tgt))
        future = nn.Transformer.generate_square_subsequent_mask(tgt.size(1), tgt.device, torch.bool)
        out = self.body(x, y, tgt_mask=future, src_key_padding_mask=src == 0, memory_key_padding_mask=src == 0, tgt_is_causal=True)
        return F.linear(out, self.embed.weight)

class XTransformers(nn.Module):
    "x-transformers' encoder and decoder, post-norm, ReLU, scaled sinusoids, tied embeddings."
    def __init__(self, c):
        super().__init__()
        from x_transformers import Decoder, Encoder, TransformerWrapper
        layers = dict(dim=c.d_model, depth=c.N, heads=c.h, attn_dim_head=c.head_dims[0], attn_flash=True, pre_norm=False, ff_mult=c.d_ff / c.d_model,
                      ff_custom_activation=nn.ReLU(), attn_sublayer_dropout=c.P_drop, ff_sublayer_dropout=c.P_drop)
        ends = dict(num_tokens=c.vocab_size, max_seq_len=c.max_len, emb_dropout=c.P_drop, scaled_sinu_pos_emb=True)
        self.encoder = TransformerWrapper(attn_layers=Encoder(**layers), return_only_embed=True, **ends)
        self.decoder = TransformerWrapper(attn_layers=Decoder(cross_attend=True, **layers), tie_embedding=True,
                                          token_emb=self.encoder.token_emb, **ends)

    def forward(self, src, tgt):
        mask = src != 0
        return self.decoder(tgt, context=self.encoder(src, mask=mask, return_embeddings=True), context_mask=mask)

class Marian(nn.Module):
    "Hugging Face's MarianMTModel with random weights."
    def __init__(self, c):
        super().__init__()
        from transformers import MarianConfig, MarianMTModel
        self.body = MarianMTModel(MarianConfig(
            vocab_size=c.vocab_size, d_model=c.d_model, encoder_layers=c.N, decoder_layers=c.N, encoder_ffn_dim=c.d_ff,
            decoder_ffn_dim=c.d_ff, encoder_attention_heads=c.h, decoder_attention_heads=c.h, dropout=c.P_drop,
            max_position_embeddings=c.max_len, activation_function='relu', scale_embedding=True, pad_token_id=0, bos_token_id=1,
            eos_token_id=2, decoder_start_token_id=1, forced_eos_token_id=None))

    def forward(self, src, tgt):
        return self.body(input_ids=src, attention_mask=(src != 0).long(), decoder_input_ids=tgt, use_cache=False).logits

class Peer(Seq2SeqModel):
    "A peer's model in our update."
    def __init__(self, model, c):
        super().__init__(c)
        self.model = model

    def forward(self, src, tgt): return self.model(src, tgt)

OURS_PYTORCH, OURS_BF16 = "ours, with PyTorch's products", 'ours, in bfloat16'
OURS = 'ours', OURS_PYTORCH, OURS_BF16
builders = {**dict.fromkeys(OURS, Transformer), 'torch.nn.Transformer': TorchTransformer, 'x-transformers': XTransformers, 'HF Marian': Marian}

def draw_batches(tokens, V, n, pairs=40_000):
    "Random ids in batches cut by `batching.plan`; lengths are log-normal, 28 pieces on average."
    rng, g = np.random.default_rng(0), torch.Generator().manual_seed(0)
    n_src = rng.lognormal(3.2, .55, pairs).clip(2, 256).astype(int)
    n_tgt = (n_src * rng.lognormal(.05, .2, pairs)).clip(2, 256).astype(int)
    def ids(lengths):
        out = torch.randint(4, V, (len(lengths), max(lengths)), generator=g)
        return out.masked_fill(torch.arange(out.size(1)) >= torch.tensor(lengths)[:, None], 0)
    return [(ids(n_src[rows]), ids(n_tgt[rows] + 1)) for rows in make_batches(n_src, n_tgt, tokens)[:n]]

def default_memory():
    "For a peer: what optimize_for_training changes for the whole process is again what glibc's own adaptation ends with."
    with suppress(AttributeError, OSError, TypeError):
        mallopt = ctypes.CDLL(None).mallopt
        mallopt(-3, 2**25); mallopt(-1, 2**26)

def time_call(a, f, *args):
    clock = time.process_time if a.cpu_time else time.perf_counter
    sync = torch.cuda.synchronize if a.device == 'cuda' else lambda: None
    sync(); start = clock(); f(*args); sync()
    return clock() - start

def matmul_rates(a):
    "FLOP/s of the best of several square matrix products in the dtype of training, by library."
    pairs = [torch.randn(2, n, n, device=a.device).to(dtypes[a.dtype]) for n in ((4096, 8192) if a.device == 'cuda' else (1024, 2048))]
    libraries = dict(pytorch=torch.matmul)
    if a.device == 'cpu' and a.dtype == 'fp32' and _is_onednn_available(): libraries['onednn'] = _linear_onednn
    return {name: max(2 * x.size(0) ** 3 / time_call(a, f, x, y) for x, y in pairs * 3) for name, f in libraries.items()}

def plain_update(model, optimizer, src, tgt, accelerator, eps_ls):
    "What a user of a peer would write: F.cross_entropy and torch.optim.Adam as they come."
    src, tgt = src.to(accelerator.device), tgt.to(accelerator.device)
    loss = F.cross_entropy(model(src, tgt[:, :-1]).flatten(0, 1), tgt[:, 1:].flatten(), ignore_index=0, label_smoothing=eps_ls)
    accelerator.backward(loss); optimizer.step(); optimizer.zero_grad()
    return loss.detach() * (tgt[:, 1:] != 0).sum(), None, None

def prepare_model(name, c, a, accelerator):
    "One model: its number of parameters, and a function that trains it on one batch and returns the loss summed over its target tokens."
    torch.manual_seed(0)
    model, one_update = builders[name](c).train(), train_step if name in OURS or a.same_step else plain_update
    if name in ('ours', OURS_BF16): optimize_for_training(model, 'onednn' if a.products in ('onednn', 'both') else 'pytorch')
    optimizer = adam(model) if one_update is train_step else torch.optim.Adam(model.parameters(), betas=(.9, .98), eps=1e-9)
    for group in optimizer.param_groups: group['lr'] = 1e-4
    params = n_parameters(model)
    if one_update is train_step: model = ModelWithLoss(model if isinstance(model, Seq2SeqModel) else Peer(model, c).train())
    model, optimizer = accelerator.prepare(model, optimizer)
    if name == OURS_BF16: model.forward = torch.autocast('cpu', torch.bfloat16)(model.forward)
    if a.compile: model = torch.compile(model, dynamic=True)
    more = () if one_update is train_step else (c.eps_ls,)
    return params, lambda src, tgt: one_update(model, optimizer, src, tgt, accelerator, *more)[0].item()

OP_CATEGORIES = {'matrix products': 'mm linear_pointwise', 'attention': 'attention', 'layer norm': 'layer_norm', 'loss': 'log_softmax nll_loss Smooth',
         'Adam': 'adam addcdiv addcmul lerp sqrt', 'random numbers of dropout': 'bernoulli dropout', 'filling with zeros': 'fill_'}

def profile(step, a):
    "Share of time by kind of operation, as torch.profiler sees one step."
    with torch.profiler.profile() as p: step()
    ops = [(e.key, e.self_device_time_total if a.device == 'cuda' else e.self_cpu_time_total)
           for e in p.key_averages() if e.device_type == torch.autograd.DeviceType.CPU]
    total, shares = sum(t for _, t in ops), dict.fromkeys([*OP_CATEGORIES, 'everything else'], 0.)
    for key, t in ops: shares[next((k for k, names in OP_CATEGORIES.items() if any(n in key for n in names.split())), 'everything else')] += t / total
    return shares

dtypes = dict(fp32=torch.float32, bf16=torch.bfloat16)
p = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
p.add_argument('--recipe', choices=['base', 'big', 'multi30k_tiny', 'demo'], default='base', help='sizes of the models')
p.add_argument('--tokens', type=int, default=2048, help='most padded tokens of a batch on each side; the paper: 25000')
p.add_argument('--products', choices=['auto', 'onednn', 'pytorch', 'both'], default='auto',
               help='who multiplies for us on a CPU; auto: the faster one, if oneDNN wins by a twentieth; both: oneDNN, and beside it ours with PyTorch\'s')
p.add_argument('--only-ours', action='store_true', help='no peers')
p.add_argument('--device', choices=['cpu', 'cuda'], default='cpu')
p.add_argument('--dtype', choices=dtypes, default='fp32', help='bf16: autocast, weights stay in float32')
p.add_argument('--bf16', action='store_true', help='also ours in bfloat16, on a CPU, beside the others in float32')
p.add_argument('--compile', action='store_true', help='torch.compile every model, with dynamic shapes')
p.add_argument('--same-step', action='store_true', help="train the peers, too, with our loss and optimizer")
p.add_argument('--rounds', type=int, default=5, help='timed rounds, after one that warms up')
p.add_argument('--threads', type=int, default=torch.get_num_threads(), help='of the CPU')
p.add_argument('--cpu-time', action='store_true', help='count processor seconds, on a machine that others use too; only with --threads 1')
p.add_argument('--profile', action='store_true', help='also say where our step spends its time')
p.add_argument('--out', help='write the results to this JSON file, too')

def main(a):
    if a.cpu_time and (a.threads > 1 or a.device == 'cuda'): sys.exit('error: --cpu-time needs --device cpu --threads 1')
    if a.bf16 and (a.dtype != 'fp32' or a.device == 'cuda'): sys.exit('error: --bf16 adds a row to a run in fp32 on a CPU')
    torch.set_num_threads(a.threads)
    c, cuda, peaks, entries = get_recipe(a.recipe).model, a.device == 'cuda', {}, {}
    accelerator = Accelerator(cpu=not cuda, mixed_precision='bf16' if a.dtype == 'bf16' else 'no')
    batches = draw_batches(a.tokens, c.vocab_size, a.rounds)
    measured = 'pytorch' if cuda else choose_matmul_backend(c.d_model)
    if a.products == 'auto': a.products = measured
    for name in OURS if a.only_ours else builders:
        if name == OURS_PYTORCH and a.products != 'both' or name == OURS_BF16 and not a.bf16: continue
        try: entries[name] = prepare_model(name, c, a, accelerator)
        except ImportError as e: print(f"{name} is left out ({e}): pip install -e '.[bench]'")
    times, losses, memory = {name: [] for name in entries}, {name: [] for name in entries}, dict.fromkeys(entries, 0)
    for i in range(-1, a.rounds):
        for library, rate in matmul_rates(a).items(): peaks[library] = max(rate, peaks.get(library, 0))
        for name, (params, step) in entries.items():
            if cuda: torch.cuda.reset_peak_memory_stats(); others = torch.cuda.memory_allocated() - 12 * params   # own: weights, two moments
            (_keep_freed_memory if name in OURS else default_memory)()
            step(*batches[i])                           # not timed: the model before it left the heap and the caches in another state
            times[name].append(time_call(a, lambda *batch: losses[name].append(step(*batch)), *batches[i]))             # noqa: B023
            if cuda and i >= 0: memory[name] = max(memory[name], torch.cuda.max_memory_allocated() - others)

    pieces = [(tgt[:, 1:] != 0).sum().item() for _, tgt in batches]
    flops = [train_flops(c, *src.shape, tgt.size(1) - 1) for src, tgt in batches]
    sheet = peak_flops(torch.device('cuda' if cuda else 'cpu'))
    def row(name, t):
        over = lambda x: median(n / s for n, s in zip(x, t))
        gpu = dict(mfu=sheet and mfu(over(flops), 1, sheet), peak_memory_GB=memory[name] / 1e9) if cuda else {}
        return dict(parameters=entries[name][0], step_s=median(t), fastest_step_s=min(t), target_pieces_per_s=over(pieces),
                    of_matmul_peak=over(flops) / max(peaks.values()), time_over_ours=median(s / o for s, o in zip(t, times['ours'][1:])),
                    hours_of_the_run=median(t) * get_recipe(a.recipe).schedule.max_steps / 3600,
                    nats_per_token=[round(loss / n, 4) for loss, n in zip(losses[name][1:], pieces)], **gpu)
    models = {name: row(name, t[1:]) for name, t in times.items()}
    products = {} if cuda else dict(products='onednn' if a.products == 'both' else a.products, faster_products=measured)
    device = torch.cuda.get_device_name() if cuda else processor_family()
    results = dict(command=' '.join(sys.argv), device=device, threads=a.threads, clock='processor time' if a.cpu_time else 'wall',
                   versions={m: version(m) for m in ('torch', 'x_transformers', 'transformers') if m in sys.modules},
                   **products, matmul_TFLOP_per_s={library: rate / 1e12 for library, rate in peaks.items()}, models=models)
    if a.profile: results['profile'] = profile(lambda: entries['ours'][1](*batches[0]), a)
    print(json.dumps(results, indent=1))
    if a.out: Path(a.out).write_text(json.dumps(results, indent=1) + '\n')
    rivals = [m['time_over_ours'] for name, m in models.items() if name not in OURS]
    if OURS_PYTORCH in models: print(f"oneDNN's products make ours {models[OURS_PYTORCH]['time_over_ours']:.2f} times as fast")
    if rivals: print(f'ours does {min(rivals):.2f} times the work of the fastest peer')
    if rivals and a.bf16: print(f"in bfloat16 {min(rivals) / models[OURS_BF16]['time_over_ours']:.2f} times")

if __name__ == '__main__': main(p.parse_args())
