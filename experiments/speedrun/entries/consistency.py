"""Consistency of two dropout passes: R-Drop, Liang et al. (2021), https://arxiv.org/abs/2106.14448.

Each sentence passes through the model twice in one batch, with different dropout. The loss is the mean of the two cross-entropies and
α/4 of the symmetric Kullback-Leibler divergence between the two distributions: half of their equation 4, so that α = 0 is the plain loss."""
from dataclasses import dataclass
import torch
from annotated_transformer.model.config import TransformerConfig
from annotated_transformer.model.loss import label_smoothed_loss
from annotated_transformer.model.seq2seq import register_architecture
from annotated_transformer.model.transformer import Transformer

@dataclass(frozen=True)
class ConsistencyConfig(TransformerConfig):
    alpha: float = 5.0          # α, weight of the divergence

@register_architecture('consistency')
class ConsistentTransformer(Transformer):
    "The same model, trained so that two dropout passes agree."
    config_class = ConsistencyConfig

    def loss(self, src, tgt):
        "Loss to minimise; loss to log, the cross-entropy alone."
        twice, labels = torch.cat([tgt, tgt]), self.labels(torch.cat([tgt, tgt]))
        logits = self(torch.cat([src, src]), twice[:, :-1])                            # (2B, T_q, V)
        loss, _ = label_smoothed_loss(logits, labels, self.config.eps_ls, self.pad_id)
        log_p, log_q = logits[labels != self.pad_id].log_softmax(-1).chunk(2)          # (n, V)
        # KL(p‖q) + KL(q‖p) = Σ (p - q)(log p - log q)
        divergence = ((log_p.exp() - log_q.exp()) * (log_p - log_q)).sum()
        return loss / 2 + self.config.alpha / 4 * divergence, loss.detach() / 2
