"""Train the small model whose numbers section 3 follows from page to page, and write nbs/results/example.{json,safetensors}.

    python tools/example.py        about a minute and a half on one CPU thread

The file of tensors holds the model's weights under their own names, rounded to 16 bits, and what passes through it as it reads
"twenty-one" and writes "einundzwanzig", as tensors whose names begin with `at.`. The chapters compute each of them again.
"""
import json, sys
from importlib.metadata import version
from pathlib import Path
from tempfile import TemporaryDirectory
import torch
from safetensors.torch import save_file
from annotated_transformer.recipe import get_recipe
from annotated_transformer.training.trainer import train
from annotated_transformer.inference.translator import Translator

RESULTS = Path(__file__).resolve().parents[1]/'nbs'/'results'
RECIPE, OVERRIDES, SOURCE, TARGET = 'demo', dict(d_model=32, d_ff=64, max_tokens=2048, max_steps=1500, peak_lr=6e-3, save_every='250 steps'), 'twenty-one', 'einundzwanzig'

def collect_activations(model, src, tgt):
    "What passes through `model`, one sentence: name → tensor."
    seen, hooks, attentions = {}, [], [m for m in model.modules() if hasattr(m, 'need_weights')]
    for m in attentions: m.need_weights = True
    def keep(name, module): hooks.append(module.register_forward_hook(lambda m, args, out: seen.update({f'at.{name}': out[0]})))
    for side, position in (('encoder', model.src_position), ('decoder', model.tgt_position)):
        keep(f'{side}.position', position)
        for i, layer in enumerate(getattr(model, side).layers):
            for name in ('self_attn', 'cross_attn', 'feed_forward'):
                if hasattr(layer, name): keep(f'{side}.{i}.{name}', getattr(layer, name))
            for j, add_norm in enumerate(layer.add_norm): keep(f'{side}.{i}.add_norm.{j}', add_norm)
    logits = model(src, tgt)[0]
    for hook in hooks: hook.remove()
    seen |= {f"at.{name.replace('layers.', '')}.weights": m.attn_weights[0] for name, m in model.named_modules() if m in attentions}
    return seen | {'at.encoder.embed': model.src_embed(src)[0], 'at.decoder.embed': model.tgt_embed(tgt)[0], 'at.logits': logits}

def main():
    torch.set_num_threads(1)
    with TemporaryDirectory() as folder:
        train(get_recipe(RECIPE, **OVERRIDES), 'numbers', folder)
        translator = Translator.from_pretrained(folder, device='cpu')
        config = json.loads((Path(folder)/'config.json').read_text())
    model, t = translator.models[0], translator.tokenizer
    with torch.no_grad():
        for p in model.parameters(): p.copy_(p.half())
        (src,), (tgt,) = t.encode([SOURCE]), t.encode([TARGET])
        src, tgt = [*src, t.eos_id], [t.bos_id, *tgt, t.eos_id]
        seen = collect_activations(model, torch.tensor([src]), torch.tensor([tgt[:-1]]))
    if translator.translate([SOURCE]) != [TARGET]: sys.exit(f'error: the model writes {translator.translate([SOURCE])[0]!r} for {SOURCE!r}')
    weights = {name: p.half() for name, p in model.named_parameters()}
    save_file({k: v.contiguous() for k, v in (weights | seen).items()}, RESULTS/'example.safetensors')
    name = lambda i: {t.bos_id: '<bos>', t.eos_id: '<eos>', t.pad_id: '<pad>'}.get(i) or t.convert_ids_to_tokens([i])[0]
    record = dict(command='python tools/example.py', recipe=f'{RECIPE} with ' + ' '.join(f'{k}={v!r}' for k, v in OVERRIDES.items()), versions={p: version(p) for p in ('annotated_transformer', 'torch')},
                  model=config['model'], pieces=[name(i) for i in range(model.config.vocab_size)], bos_id=t.bos_id, eos_id=t.eos_id, pad_id=t.pad_id,
                  source=SOURCE, target=TARGET, src=src, tgt=tgt)
    (RESULTS/'example.json').write_text(json.dumps(record, ensure_ascii=False, indent=1) + '\n')

if __name__ == '__main__': main()
