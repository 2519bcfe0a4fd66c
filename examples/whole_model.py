"""A whole Transformer in one file: it learns to translate number names into German.

    python examples/whole_model.py [--help]       # a few minutes on one CPU core

nbs/01_whole_model.ipynb explains each part; § is a section of the paper. Ctrl-C ends
training and prints the score. Shapes: B names, T_k source and T_q target letters.
"""
import argparse, math, random, time                                  # noqa: E401
from collections import Counter
import torch
from torch import nn
from torch.nn import functional as F

# --- Data: letters as tokens
ALPHABET = '.^$ ,-abcdefghijklmnopqrstuvwxyzäöüß'
PAD, BOS, EOS = range(3)                                             # . and ^ and $

def to_ids(texts):
    "Texts as rows of ids, each between ^ and $, all of the same length."
    width = max(map(len, texts)) + 2
    rows = [f'^{text}$'.ljust(width, '.') for text in texts]
    return torch.tensor([[ALPHABET.index(x) for x in row] for row in rows])    # (B, T)

def to_texts(ids):
    "Rows of ids as texts, without ^ and up to $."
    return [''.join(ALPHABET[i] for i in row[1:]).split('$')[0] for row in ids.tolist()]

# --- The model
def positional_encoding(T, d_model):
    "A sine and a cosine for each pair of components, §3.5."
    pos, i = torch.arange(T)[:, None], torch.arange(0, d_model, 2)
    angle = pos / 10000 ** (i / d_model)                             # (T, d_model/2)
    return torch.stack([angle.sin(), angle.cos()], -1).flatten(1)    # (T, d_model)

class Embedding(nn.Module):
    "A vector for each token, times √d_model (§3.4), plus its position (§3.5)."
    def __init__(self, vocab_size, d_model, P_drop):
        super().__init__()
        self.d_model, self.dropout = d_model, nn.Dropout(P_drop)
        self.weight = nn.Parameter(torch.randn(vocab_size, d_model) * d_model ** -0.5)

    def forward(self, ids):                                          # (B, T)
        x = self.weight[ids] * math.sqrt(self.d_model)               # (B, T, d_model)
        return self.dropout(x + positional_encoding(ids.size(1), self.d_model))

def attention(Q, K, V, mask):
    "softmax(QKᵀ/√d_k)V, equation 1, where the mask is True; and the weights."
    scores = Q @ K.transpose(-2, -1) / math.sqrt(Q.size(-1))         # (B, h, T_q, T_k)
    weights = scores.masked_fill(~mask, -math.inf).softmax(-1)       # rows sum to 1
    return weights @ V, weights                                      # (B, h, T_q, d_k)

class MultiHeadAttention(nn.Module):
    "Concat(head_1, …, head_h)W_O, §3.2.2: x attends to y."
    def __init__(self, d_model, h):
        super().__init__()
        self.h = h
        self.W_Q, self.W_K, self.W_V, self.W_O = (
            nn.Linear(d_model, d_model, bias=False) for _ in range(4))

    def forward(self, x, y, mask):               # (B, T_q, d_model), (B, T_k, d_model)
        def split(t):                            # (B, T, d_model) → (B, h, T, d_k)
            return t.unflatten(-1, (self.h, -1)).transpose(1, 2)
        Q, K, V = split(self.W_Q(x)), split(self.W_K(y)), split(self.W_V(y))
        heads, self.weights = attention(Q, K, V, mask)               # (B, h, T_q, d_k)
        return self.W_O(heads.transpose(1, 2).flatten(2))            # (B, T_q, d_model)

class FeedForward(nn.Module):
    "max(0, xW_1 + b_1)W_2 + b_2, equation 2: every position by itself."
    def __init__(self, d_model, d_ff):
        super().__init__()
        self.W_1, self.W_2 = nn.Linear(d_model, d_ff), nn.Linear(d_ff, d_model)
    def forward(self, x): return self.W_2(self.W_1(x).relu())        # (B, T, d_model)

class AddNorm(nn.Module):
    "LayerNorm(x + Sublayer(x)), §3.1, with dropout on the sub-layer's output, §5.4."
    def __init__(self, d_model, P_drop):
        super().__init__()
        self.norm, self.dropout = nn.LayerNorm(d_model), nn.Dropout(P_drop)
    def forward(self, x, output): return self.norm(x + self.dropout(output))

class EncoderLayer(nn.Module):
    "Self-attention, then feed-forward, §3.1."
    def __init__(self, d_model, h, d_ff, P_drop):
        super().__init__()
        self.self_attn = MultiHeadAttention(d_model, h)
        self.feed_forward = FeedForward(d_model, d_ff)
        self.add_norm = nn.ModuleList(AddNorm(d_model, P_drop) for _ in range(2))

    def forward(self, x, mask):                                      # (B, T_k, d_model)
        x = self.add_norm[0](x, self.self_attn(x, x, mask))
        return self.add_norm[1](x, self.feed_forward(x))

class DecoderLayer(nn.Module):
    "Masked self-attention, cross-attention to the encoder's output, feed-forward."
    def __init__(self, d_model, h, d_ff, P_drop):
        super().__init__()
        self.self_attn = MultiHeadAttention(d_model, h)
        self.cross_attn = MultiHeadAttention(d_model, h)
        self.feed_forward = FeedForward(d_model, d_ff)
        self.add_norm = nn.ModuleList(AddNorm(d_model, P_drop) for _ in range(3))

    def forward(self, x, memory, mask, memory_mask):                 # (B, T_q, d_model)
        x = self.add_norm[0](x, self.self_attn(x, x, mask))
        x = self.add_norm[1](x, self.cross_attn(x, memory, memory_mask))
        return self.add_norm[2](x, self.feed_forward(x))

def subsequent_mask(T):
    "Position i may attend to positions up to i, §3.2.3."
    return torch.ones(T, T, dtype=torch.bool).tril()                 # (T, T)

class Transformer(nn.Module):
    "Figure 1: from source and target ids to the logits of each next token."
    def __init__(self, vocab_size, d_model=64, h=4, d_ff=256, N=1, P_drop=0.1):
        super().__init__()
        sizes = d_model, h, d_ff, P_drop
        self.embed = Embedding(vocab_size, d_model, P_drop)
        self.encoder = nn.ModuleList(EncoderLayer(*sizes) for _ in range(N))
        self.decoder = nn.ModuleList(DecoderLayer(*sizes) for _ in range(N))
        for W in [*self.encoder.parameters(), *self.decoder.parameters()]:
            if W.dim() > 1: nn.init.xavier_uniform_(W)

    def encode(self, src):                                           # (B, T_k)
        x, mask = self.embed(src), (src != PAD)[:, None, None]       # (B, 1, 1, T_k)
        for layer in self.encoder: x = layer(x, mask)
        return x, mask                                               # (B, T_k, d_model)

    def decode(self, tgt, memory, memory_mask):                      # (B, T_q)
        x, mask = self.embed(tgt), subsequent_mask(tgt.size(1))      # hides padding too
        for layer in self.decoder: x = layer(x, memory, mask, memory_mask)
        return x @ self.embed.weight.T                               # (B, T_q, V)
    def forward(self, src, tgt): return self.decode(tgt, *self.encode(src))

# --- Training and decoding
def train(model, batches, warmup):
    "Adam with warm-up, §5.3, and label smoothing, §5.4; yields the loss of each step."
    optimizer = torch.optim.Adam(model.parameters(), betas=(0.9, 0.98), eps=1e-9)
    for step, (src, tgt) in enumerate(batches, 1):
        rate = model.embed.d_model ** -0.5 * min(step ** -0.5, step * warmup ** -1.5)
        for group in optimizer.param_groups: group['lr'] = rate
        logits = model.train()(src, tgt[:, :-1])                     # (B, T_q, V)
        loss = F.cross_entropy(logits.mT, tgt[:, 1:],                # (B, V, T_q)
                               ignore_index=PAD, label_smoothing=0.1)
        optimizer.zero_grad(); loss.backward(); optimizer.step()
        yield loss.item()

def random_batches(pairs, steps, batch_size=64):
    "A random batch of pairs for each step."
    for _ in range(steps):
        src, tgt = zip(*random.sample(pairs, batch_size))
        yield to_ids(src), to_ids(tgt)

@torch.no_grad()
def translate(model, texts, max_len=80):
    "Greedy decoding: the most probable next letter, until every row has its $."
    memory, mask = model.eval().encode(to_ids(texts))
    tgt = torch.full((len(texts), 1), BOS)
    while tgt.size(1) < max_len and not (tgt == EOS).any(1).all():
        logits = model.decode(tgt, memory, mask)[:, -1]              # (B, V)
        tgt = torch.cat([tgt, logits.argmax(-1, keepdim=True)], 1)
    return to_texts(tgt)

@torch.no_grad()
def beam_search(model, text, beam=4, alpha=0.6, max_len=80):
    "The hypothesis with the highest log-probability over ((5 + length)/6)^alpha, §6.1."
    memory, mask = model.eval().encode(to_ids([text]))
    tgt, log_p, best = torch.tensor([[BOS]]), torch.zeros(1), (-math.inf, None)
    def lp(length): return ((5 + length) / 6) ** alpha
    while tgt.size(1) < max_len and len(tgt) and best[0] < log_p.max() / lp(max_len):
        logits = model.decode(tgt, memory.expand(len(tgt), -1, -1), mask)[:, -1]
        log_p, index = (log_p[:, None] + logits.log_softmax(-1)).flatten().topk(beam)
        row, letter = index // len(ALPHABET), index % len(ALPHABET)  # (beam,)
        ends, scores = letter == EOS, log_p / lp(tgt.size(1))
        tgt = torch.cat([tgt[row], letter[:, None]], 1)              # (beam, T_q + 1)
        best = max([best, *zip(scores[ends].tolist(), to_texts(tgt[ends]))])
        tgt, log_p = tgt[~ends], log_p[~ends]
    return to_texts(tgt)[0] if best[1] is None else best[1]

# --- The program: number names, a score, options
ONES = ('zero one two three four five six seven eight nine ten eleven twelve thirteen '
        'fourteen fifteen sixteen seventeen eighteen nineteen').split()
TENS = '- - twenty thirty forty fifty sixty seventy eighty ninety'.split()
EINER = ('null ein zwei drei vier fünf sechs sieben acht neun zehn elf zwölf dreizehn '
         'vierzehn fünfzehn sechzehn siebzehn achtzehn neunzehn').split()
ZEHNER = '- - zwanzig dreißig vierzig fünfzig sechzig siebzig achtzig neunzig'.split()

def english(n):
    "The English name of n < 1,000,000: 121 is one hundred and twenty-one."
    if n < 20: return ONES[n]
    if n < 100: return TENS[n // 10] + (f'-{ONES[n % 10]}' if n % 10 else '')
    size, name = (1000, 'thousand') if n >= 1000 else (100, 'hundred')
    head, rest = divmod(n, size)
    tail = f'{" and" if rest < 100 else ","} {english(rest)}' if rest else ''
    return f'{english(head)} {name}{tail}'

def german(n, end='s'):
    "The German name: 121 is einhunderteinundzwanzig. A final ein becomes eins."
    if n < 20: return EINER[n] + (end if n == 1 else '')
    if n < 100: return (f'{EINER[n % 10]}und' if n % 10 else '') + ZEHNER[n // 10]
    size, name = (1000, 'tausend') if n >= 1000 else (100, 'hundert')
    head, rest = divmod(n, size)
    return german(head, end='') + name + (german(rest, end) if rest else '')

def bleu(outputs, references):
    "Corpus BLEU of sequences of tokens: n-grams of one to four, brevity penalty, §6.1."
    def ngrams(x, n): return Counter(zip(*(x[i:] for i in range(n))))
    log_precision = 0
    for n in range(1, 5):
        pairs = [(ngrams(x, n), ngrams(y, n)) for x, y in zip(outputs, references)]
        matches = sum((x & y).total() for x, y in pairs)
        if not matches: return 0.0
        log_precision += math.log(matches / sum(x.total() for x, _ in pairs)) / 4
    ratio = sum(map(len, references)) / sum(map(len, outputs))
    return 100 * math.exp(log_precision + min(0, 1 - ratio))

def report(name, outputs, references):
    exact = sum(x == y for x, y in zip(outputs, references)) / len(outputs)
    print(f'{name}: exact match {exact:.1%}, BLEU of letters '
          f'{bleu(outputs, references):.1f}, on {len(outputs)} numbers held out')

OPTIONS = dict(max_number=(9999, 'largest number, below a million'),
               held_out=(500, 'numbers that training does not see'),
               steps=(1000, 'of training'), batch_size=(64, 'pairs in a step'),
               warmup=(400, 'steps of a rising learning rate'),
               N=(2, 'layers on each side'), d_model=(64, 'width'), h=(4, 'heads'),
               d_ff=(256, 'inner width'), P_drop=(0.1, 'dropout'), seed=(0, 'integer'),
               beam=(4, 'hypotheses of a beam search'), alpha=(0.6, 'length penalty'))

def main():
    parser = argparse.ArgumentParser(description=__doc__.splitlines()[0])
    for name, (x, text) in OPTIONS.items():
        parser.add_argument(f'--{name}', type=type(x), default=x, help=f'{text} ({x})')
    a = parser.parse_args()
    random.seed(a.seed); torch.manual_seed(a.seed); start = time.time()
    pairs = [(english(n), german(n)) for n in range(a.max_number + 1)]
    random.shuffle(pairs)
    sources, references = zip(*pairs[:a.held_out])
    model = Transformer(len(ALPHABET), a.d_model, a.h, a.d_ff, a.N, a.P_drop)
    print(f'{sum(p.numel() for p in model.parameters()):,} parameters')
    batches = random_batches(pairs[a.held_out:], a.steps, a.batch_size)
    try:
        for step, loss in enumerate(train(model, batches, a.warmup), 1):
            if step % 100 and step < a.steps: continue
            print(f'step {step:4}  loss {loss:.3f}  {time.time() - start:3.0f} s  '
                  f'{sources[0]} → {translate(model, sources[:1])[0]}', flush=True)
    except KeyboardInterrupt: print(' stopped')
    report('greedy', translate(model, sources), references)
    outputs = [beam_search(model, x, a.beam, a.alpha) for x in sources[:100]]
    report(f'beam {a.beam}', outputs, references[:100])

if __name__ == '__main__': main()
