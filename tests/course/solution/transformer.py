import math

from torch import nn

from .decoder import Decoder
from .encoder import Encoder
from .masks import padding_mask, subsequent_mask
from .positions import positional_encoding


class Transformer(nn.Module):
    def __init__(self, vocab_size, N, d_model, d_ff, h, P_drop=0.1, pad_id=0):
        super().__init__()
        self.d_model, self.pad_id = d_model, pad_id
        self.src_embed = nn.Embedding(vocab_size, d_model)
        self.tgt_embed = nn.Embedding(vocab_size, d_model)
        self.output_projection = nn.Linear(d_model, vocab_size, bias=False)
        nn.init.normal_(self.src_embed.weight, std=d_model ** -0.5)
        self.tgt_embed.weight = self.src_embed.weight
        self.output_projection.weight = self.src_embed.weight
        self.encoder = Encoder(N, d_model, h, d_ff, P_drop)
        self.decoder = Decoder(N, d_model, h, d_ff, P_drop)
        self.dropout = nn.Dropout(P_drop)

    def embed(self, embedding, ids):
        x = embedding(ids) * math.sqrt(self.d_model)
        return self.dropout(x + positional_encoding(ids.size(1), self.d_model).to(x))

    def forward(self, src, tgt):
        src_mask = padding_mask(src, self.pad_id)
        memory = self.encoder(self.embed(self.src_embed, src), src_mask)
        tgt_mask = subsequent_mask(tgt.size(1))
        x = self.decoder(self.embed(self.tgt_embed, tgt), memory, tgt_mask, src_mask)
        return self.output_projection(x)
