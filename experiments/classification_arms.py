"""Arms of the experiment on news that are ablations, not parts of the package: no attention, heads cut by `view`, all vectors in a row, pairs of neighbours."""
from dataclasses import dataclass

import torch
from annotated_transformer.model.attention import MultiHeadAttention
from annotated_transformer.model.embeddings import Embedding
from annotated_transformer.model.seq2seq import register_architecture
from annotated_transformer.tasks.classification.classifier import Classifier, ClassifierConfig
from annotated_transformer.utils.validation import validate_fields
from torch import nn
from torch.nn import functional as F


class NoAttention(nn.Module):
    "In place of attention: zeros, so that a token gets nothing from any other."
    def forward(self, query, key, value, mask=None, cache=None): return torch.zeros_like(query)

class HeadsByView(MultiHeadAttention):
    """A bug that still trains: heads split by `view` alone. Each head is a block of neighbouring tokens, and each token is h rows in it, so the output
    depends on the padding, and with it on the batch."""
    def forward(self, query, key, value, mask=None, cache=None):
        def split(x): return x.reshape(len(x), self.h, query.size(1), -1)
        if mask is not None: mask = split(mask.flatten(1).repeat_interleave(self.h, -1)).transpose(-2, -1)     # one for each of a token's rows
        Q, K, V = split(self.W_Q(query)), split(self.W_K(key)), split(self.W_V(value))
        return self.W_O(F.scaled_dot_product_attention(Q, K, V, mask).view_as(query))

@dataclass(frozen=True)
class ArmConfig(ClassifierConfig):
    attention: str = 'heads'  # or 'none', 'view'
    flat: bool = False        # all vectors in a row, in place of pooling
    bigrams: int = 0          # vectors that all pairs of neighbours share

    def __post_init__(self):
        super().__post_init__()
        validate_fields(vars(self), 'attention', choices=('heads', 'none', 'view'))
        validate_fields(vars(self), 'bigrams', ge=0)

@register_architecture('classifier_arm')
class ClassifierArm(Classifier):
    config_class = ArmConfig

    def __init__(self, config, pad_id=0):
        super().__init__(config, pad_id)
        if config.flat: self.classifier = nn.Linear(config.max_len * config.d_model, config.vocab_size)
        if config.bigrams: self.pairs = Embedding(config.bigrams, config.d_model)

    def make_attention(self, role):
        c = self.config
        return dict(heads=MultiHeadAttention, view=HeadsByView, none=lambda *_: NoAttention())[c.attention](c.d_model, c.h)

    def embed_tokens(self, src):
        "The vector of each token, and of it with the one before (Joulin et al. 2017); a hash of the pair chooses its vector."
        x = super().embed_tokens(src)
        if not self.config.bigrams: return x
        pair = F.pad(src, (1, -1)) * 16_777_619 ^ src * 2_654_435_761
        return x + self.pairs(pair % self.config.bigrams)

    def pool(self, z, mask):
        if not self.config.flat: return super().pool(z, mask)
        return F.pad(z * mask, (0, 0, 0, self.config.max_len - z.size(1))).flatten(1)
