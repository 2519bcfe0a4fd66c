"""The symptoms of the ten wrong versions of the course, beside those of a right one: curves and tests, into the package's record.

    python experiments/course_symptoms.py
"""
import argparse, importlib.util, json, tempfile
from pathlib import Path
import torch
from recording import ResultCache, provenance
from annotated_transformer.course.versions import _TEMPLATE, _VERSIONS, _version_code

OUT = Path(__file__).parents[1] / 'annotated_transformer' / 'course' / 'symptoms.json'

def load(name, text, folder):
    "A module from its text."
    path = Path(folder) / f'{name}.py'
    path.write_text(text, encoding='utf-8')
    spec = importlib.util.spec_from_file_location(name, path)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module

def main():
    parser = argparse.ArgumentParser(description=__doc__.split('\n')[0])
    parser.add_argument('--steps', type=int, default=400)
    parser.add_argument('--test', type=int, default=50, help='held-out numbers to translate')
    parser.add_argument('--runs', default='runs/course_symptoms', help='parts, so that an interrupted command continues')
    parser.add_argument('--out', type=Path, default=OUT)
    args = parser.parse_args()
    torch.set_num_threads(1)
    parts = ResultCache(args.runs, dict(steps=args.steps, test=args.test))
    with tempfile.TemporaryDirectory() as folder:
        symptoms = load('symptoms', (_TEMPLATE / 'symptoms.py.txt').read_text(encoding='utf-8'), folder)
        def run(number, right=None):
            version = load(f'version_{number:02}', _version_code(number), folder)
            model, result = symptoms.measure(version, right, args.steps, args.test)
            return result if right else result | dict(weights={name: x.tolist() for name, x in model.state_dict().items()})
        runs = dict(right=parts.get_or_compute('right', lambda: run(0)))
        version = load('version_00', _version_code(0), folder)
        right = symptoms.make_model(version).eval()
        right.load_state_dict({name: torch.tensor(x) for name, x in runs['right'].pop('weights').items()})
        runs['right']['table'][symptoms.BORROWED] = symptoms.borrow(version, right)
        for number, task in enumerate(_VERSIONS, 1):
            runs[task.name] = parts.get_or_compute(task.name, lambda: run(number, right))
    args.out.write_text(json.dumps(provenance('torch', 'num2words', 'sentencepiece') | dict(seed=0, runs=runs), indent=1) + '\n')
    print(f'{args.out}: {len(runs)} versions')

if __name__ == '__main__': main()
