"""Training in bfloat16: PyTorch's autocast around the forward pass. Translations are in float32, as in every entry."""
import torch
from annotated_transformer.model.seq2seq import register_architecture
from annotated_transformer.model.transformer import Transformer

@register_architecture('bfloat16')
class BFloat16Transformer(Transformer):
    "The same model, trained in bfloat16."

    def loss(self, src, tgt):
        "Loss to minimise; loss to log."
        with torch.autocast(src.device.type, torch.bfloat16): loss, logged = super().loss(src, tgt)
        return loss.float(), logged.float()
