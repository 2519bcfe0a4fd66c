"""What benchmarks/gpu.py measures: one rung per call, each in a worker process. It is not a script of its own."""
import copy, dataclasses, gc, math, os, platform, re
from functools import lru_cache
from pathlib import Path
from statistics import median
from types import SimpleNamespace
import torch
from accelerate import Accelerator
from accelerate.state import AcceleratorState
from torch.nn import functional as F
from torch._dynamo.utils import counters
from annotated_transformer.model.flops import mfu, peak_flops, train_flops
from annotated_transformer.inference.beam_search import beam_search
from annotated_transformer.model.attention import subsequent_mask
from annotated_transformer.model.layers import DecoderLayer, EncoderLayer
from annotated_transformer.model.transformer import Transformer
from annotated_transformer.recipe import get_recipe
from annotated_transformer.training.optimizer import adam
from annotated_transformer.training.train_step import ModelWithLoss, train_step
from training import draw_batches, time_call

FULL = dict(tokens=25_000, pairs=40_000, batches=5, warmup=2, timed=2, config={}, sentences=64, length=28, repeats=10)
TINY = dict(tokens=512, pairs=400, batches=1, warmup=1, timed=1, sentences=2, length=5, repeats=1,
            config=dict(vocab_size=510, N=1, d_model=32, d_ff=64, h=4))

def settings(device, tiny):
    "Sizes, and what `time_call` needs."
    return SimpleNamespace(device=device, cuda=device == 'cuda', cpu_time=False, **(TINY if tiny else FULL))

def describe_device(device, tiny):
    "The card and the software. Raises RuntimeError without a GPU, if it is not for the CPU."
    cpu = dict(device=f'{platform.machine()} CPU', torch=torch.__version__)
    if device == 'cpu': return cpu
    p = torch.cuda.get_device_properties(0)
    return cpu | dict(device=p.name, capability=f'{p.major}.{p.minor}', memory_GB=p.total_memory / 1e9, cuda=torch.version.cuda)

@lru_cache(2)
def initial_model(config):
    torch.manual_seed(0)
    return Transformer(config)

def few_shape_batches(batches, tokens, n, lengths=(16, 24, 32, 40, 56, 80, 128, 256)):
    "The same pairs in batches of one shape for each length, B a multiple of 8; n batches of the three most frequent shapes."
    src, tgt = (torch.cat([F.pad(b[side], (0, 258 - b[side].size(1))) for b in batches]) for side in (0, 1))
    longer, shapes = torch.maximum((src != 0).sum(1), (tgt != 0).sum(1) - 1), []
    for low, T in zip((0, *lengths), lengths):
        B, rows = max(1, tokens // T // 8 * 8), ((longer > low) & (longer <= T)).nonzero()[:, 0]
        rows = rows[torch.randperm(len(rows), generator=torch.Generator().manual_seed(0))]
        shapes.append([(src[r, :T], tgt[r, :T + 1]) for r in rows.split(B) if len(r) == B])
    frequent = sorted(filter(None, shapes), key=len)[-3:]
    picks = ((frequent[i % len(frequent)], i // len(frequent)) for i in range(n))
    return [shape[i % len(shape)] for shape, i in picks]

@lru_cache(None)
def training_batches(V, few_shapes, tokens, pairs, n):
    if not few_shapes: return draw_batches(tokens, V, n, pairs)
    return few_shape_batches(draw_batches(tokens, V, None, pairs), tokens, n)

def prepare_step(model, options, s):
    "A function that trains the model on one batch."
    accelerator = Accelerator(cpu=not s.cuda, mixed_precision='bf16' if options.get('bf16') else 'no')
    model.loss_chunk_size, optimizer = options.get('loss_chunk_size'), adam(model)
    for group in optimizer.param_groups: group['lr'] = 1e-4
    # on a CPU only the tracing is tried: compiling C++ takes minutes
    compile_options = dict(dynamic=options.get('dynamic'), **(dict(mode=options.get('mode')) if s.cuda else dict(backend='eager')))
    layers = [m for m in model.modules() if isinstance(m, (EncoderLayer, DecoderLayer))]
    for m in layers if options.get('compile') == 'layers' else (): m.compile(**compile_options)
    wrapped, optimizer = accelerator.prepare(ModelWithLoss(model), optimizer)
    if options.get('compile') == 'model': wrapped = torch.compile(wrapped, **compile_options)
    def step(src, tgt):
        if options.get('mode'): torch.compiler.cudagraph_mark_step_begin()
        train_step(wrapped, optimizer, src, tgt, accelerator)
    return step

def train(device, tiny, recipe, options):
    "Some steps of training, each timed after the warm-up; then the loss without dropout on a batch that is the same for all rungs."
    s, multiple = settings(device, tiny), options.get('vocab_multiple', 1)
    torch.compiler.reset(); counters.clear(); gc.collect()
    AcceleratorState._reset_state(True)                                # the rung before may have had another precision
    torch.set_float32_matmul_precision('high' if options.get('tf32') else 'highest')
    if s.cuda: torch.cuda.empty_cache(); before = torch.cuda.memory_allocated()
    c = dataclasses.replace(get_recipe(recipe).model, **s.config)
    fixed = s.tokens, s.pairs, s.batches
    batches, (src, tgt) = training_batches(c.vocab_size, options.get('few_shapes', False), *fixed), training_batches(c.vocab_size, False, *fixed)[0]
    c = dataclasses.replace(c, vocab_size=-(-c.vocab_size // multiple) * multiple)
    model = copy.deepcopy(initial_model(c)).train()
    torch.manual_seed(0)                                               # of dropout
    step = prepare_step(model, options, s)
    warmup_s = sum(time_call(s, step, *batch) for batch in batches * s.warmup)
    if s.cuda: torch.cuda.reset_peak_memory_stats()
    times = [time_call(s, step, *batch) for batch in batches * s.timed]
    memory = (torch.cuda.max_memory_allocated() - before) / 1e9 if s.cuda else None

    with torch.no_grad(), torch.compiler.set_stance('force_eager'):
        loss = model.eval().loss(src.to(device), tgt.to(device))[0].item() / (tgt[:, 1:] != 0).sum().item()
    if not math.isfinite(loss): raise ValueError(f'the loss is {loss}')
    def per_second(counts): return median(n / t for n, t in zip(counts * s.timed, times))
    flops, real = [train_flops(c, *x.shape, y.size(1) - 1) for x, y in batches], [(y[:, 1:] != 0).sum().item() for _, y in batches]
    peak = peak_flops(torch.device(device))
    # how much was really compiled
    compiled = dict(graphs=counters['stats']['unique_graphs'], graph_breaks=sum(counters['graph_break'].values()), cudagraph_skips=counters['inductor']['cudagraph_skips'])
    return dict(step_s=median(times), tokens_per_s=per_second(real), mfu=peak and mfu(per_second(flops), 1, peak), peak_memory_GB=memory, loss=loss,
                fastest_step_s=min(times), slowest_step_s=max(times), warmup_s=warmup_s, shapes=[[*x.shape, y.size(1) - 1] for x, y in batches],
                **(compiled if options.get('compile') else {}))

def attention(device, tiny, T):
    "One self-attention of base with T positions, forward and backward, bfloat16."
    s = settings(device, tiny)
    Q, K, V, grad = (torch.randn(max(1, s.tokens // T), 8, T, 64, device=device, dtype=torch.bfloat16) for _ in range(4))
    inputs = [x.requires_grad_() for x in (Q, K, V)]
    kinds = dict(causal=dict(is_causal=True), boolean_mask=dict(attn_mask=subsequent_mask(T, device)), no_mask={})
    def repeat(options):
        for _ in range(s.repeats): torch.autograd.grad(F.scaled_dot_product_attention(*inputs, **options), inputs, grad)
    seconds = {f'{name}_s': min(time_call(s, repeat, options) for _ in range(4)) / s.repeats for name, options in kinds.items()}
    causal, masked = (F.scaled_dot_product_attention(*inputs, **kinds[name]).float() for name in ('causal', 'boolean_mask'))
    return seconds | dict(mask_over_causal=seconds['boolean_mask_s'] / seconds['causal_s'], difference=(causal - masked).abs().max().item())

def decode(device, tiny, dtype):
    "Beam search with base and random weights, one batch of random ids, as many target tokens as source tokens at most."
    s = settings(device, tiny)
    torch.set_float32_matmul_precision('highest')
    c = dataclasses.replace(get_recipe('base').model, **s.config)
    model = copy.deepcopy(initial_model(c)).eval().to(device, getattr(torch, dtype))
    src = torch.randint(4, c.vocab_size, (s.sentences, s.length), generator=torch.Generator().manual_seed(0)).to(device)
    hypotheses = []
    def search(): hypotheses[:] = beam_search(model, src, 4, 0.6, 0, n_best=1, bos_id=1, eos_id=2)
    seconds = median([time_call(s, search) for _ in range(2 + 2 * s.timed)][2:])
    return dict(batch_s=seconds, sentences_per_s=len(src) / seconds, tokens_per_s=sum(len(hs[0].ids) + 1 for hs in hypotheses) / seconds)

def gpu_cells(path):
    "Run a notebook up to its last cell flagged `#| gpu`, without those flagged slow. Raises RuntimeError naming the cell that fails."
    from execnb.nbio import read_nb
    from execnb.shell import CaptureShell
    os.environ |= dict(IN_TEST='1')                                    # nbdev exports nothing
    with open(os.devnull, 'w') as null:
        for fd in 1, 2: os.dup2(null.fileno(), fd)
    os.chdir(Path(path).parent)
    torch.set_num_threads(min(2, torch.get_num_threads()))             # several notebooks run at once
    notebook, last = read_nb(path), {}
    is_gpu = [c.cell_type == 'code' and re.search(r'^#\| *gpu', c.source, re.M) is not None for c in notebook.cells]
    notebook.cells = notebook.cells[:len(is_gpu) - is_gpu[::-1].index(True)]
    def skip(cell):
        last['id'] = cell.id
        return cell.cell_type != 'code' or re.search(r'^#\| *(slow|eval: *false)|nbdev_export\(', cell.source, re.M) is not None
    try: CaptureShell(path).run_all(notebook, exc_stop=True, preproc=skip)
    except Exception as e: raise RuntimeError(f"cell {last['id']}: {type(e).__name__}: {e}") from e
    return dict(passed=sum(is_gpu), on_gpu=torch.cuda.is_available())
