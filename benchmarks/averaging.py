"""What does averaging do? The validation loss in the plane through three of a run's checkpoints: oldest, middle, newest.

    python benchmarks/averaging.py runs/multi30k_tiny --out nbs/results/averaging_multi30k.json
"""
import argparse, json
from pathlib import Path
import safetensors.torch, torch
from accelerate import Accelerator
from datasets import load_from_disk
from torch.nn.utils import vector_to_parameters
from tqdm import tqdm
from annotated_transformer.data.batching import Batches
from annotated_transformer.run_directory import RunDirectory, load_model
from annotated_transformer.training.train_step import ModelWithLoss, validate

parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument('run_dir', help='a finished run with at least three checkpoints')
parser.add_argument('--points', type=int, default=9, help='of the grid, on each side (default: 9)')
parser.add_argument('--out', required=True, help='JSON file to write')
args = parser.parse_args()

paths, accelerator = RunDirectory(args.run_dir).checkpoints(), Accelerator()
model = load_model(args.run_dir, paths[-1] / 'model.safetensors').to(accelerator.device)
batches = Batches(load_from_disk(f'{args.run_dir}/data/valid'), 4096, model.pad_id)

def load_weights(path):
    tensors = safetensors.torch.load_file(path / 'model.safetensors', str(accelerator.device))
    return torch.cat([tensors[name].flatten() for name, _ in model.named_parameters()]).double()

def loss(vector):
    vector_to_parameters(vector.float(), model.parameters())
    return validate(ModelWithLoss(model), batches, accelerator)[0]

corners = [load_weights(paths[i]) for i in (0, len(paths) // 2, -1)]
a, u, v = corners[0], corners[1] - corners[0], corners[2] - corners[0]
e1 = u / u.norm()
e2 = v - (v @ e1) * e1
e2 /= e2.norm()
xy = [[((c - a) @ e).item() for e in (e1, e2)] for c in corners]
mean = [sum(p[k] for p in xy) / 3 for k in (0, 1)]
width = 1.1 * max(abs(p[k] - mean[k]) for p in xy for k in (0, 1))
grids = [[m + width * (2 * i / (args.points - 1) - 1) for i in range(args.points)] for m in mean]
named_losses = {p.name: loss(load_weights(p)) for p in paths} | {'mean of the three': loss(sum(corners) / 3)}
named_losses[f'mean of all {len(paths)}'] = loss(sum(map(load_weights, paths)) / len(paths))
loss_surface = [[loss(a + x * e1 + y * e2) for x in grids[0]] for y in tqdm(grids[1])]
Path(args.out).write_text(json.dumps(dict(command=f'python benchmarks/averaging.py {args.run_dir} --out {args.out}', run=Path(args.run_dir).name,
    corners=xy, mean=mean, x=grids[0], y=grids[1], loss=loss_surface, losses=named_losses), indent=1) + '\n')
print(*(f'{k}: {v:.4f}' for k, v in named_losses.items()), sep='\n')
