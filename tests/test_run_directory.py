"A run whose files do not belong together is refused."
import json
import random
import shutil

import pytest
import torch
from helpers import EN_DE, SMALL, TRAINED, change, content, flags, in_here, names, refused, spoil, write


def test_other_tokenizer(own, capfd, tmp_path):
    "Another run's tokenizer with as many pieces."
    write(tmp_path / 'fr', train_en=names('en'), train_fr=names('fr'))
    in_here(capfd, 'train', '--recipe', 'demo', '--dataset', 'text', '--source_lang', 'en', '--target_lang', 'fr', '--data_dir', tmp_path / 'fr', '--out', tmp_path / 'other', *flags(SMALL))
    shutil.copy(tmp_path / 'other' / 'tokenizer.model', own)
    for command in 'translate', 'evaluate', 'export': refused(in_here(capfd, command, own), 'tokenizer.model is not the one')


NAME = 'encoder.layers.0.feed_forward.W_1.bias'

SPOILT = {
    'one value for all': (lambda w: w.update({NAME: torch.ones(1)}), f'{NAME} has shape (1,)'),
    'missing':           (lambda w: {k: v for k, v in w.items() if k != NAME}, f'{NAME} is missing'),
    'one too many':      (lambda w: w.update({'gate.weight': torch.ones(3)}), 'this model has no gate.weight'),
    'not a number':      (lambda w: w | {NAME: w[NAME] * float('nan')}, f'{NAME} holds numbers that are not finite'),
}

@pytest.mark.parametrize('case', SPOILT)
def test_weights_that_do_not_fit(own, capfd, case, tmp_path):
    "In a model, and in a checkpoint whose digests agree with it."
    f, said = SPOILT[case]
    newest = sorted((own / 'checkpoints').iterdir())[-1]
    spoil(newest / 'model.safetensors', f, newest / 'SHA256SUMS')
    write(tmp_path, train_en=names('en'), train_de=names('de'))
    args = '--recipe', 'demo', *EN_DE, '--data_dir', tmp_path, '--out', own, '--resume', *flags(TRAINED | dict(steps=201))
    refused(in_here(capfd, 'train', *args), 'model.safetensors', said)
    spoil(own / 'model.safetensors', f)
    for command in 'translate', 'evaluate', 'export': refused(in_here(capfd, command, own), 'model.safetensors', said)

@pytest.mark.parametrize('values, said', [
    (dict(h=2, d_k=32, d_v=32), 'trained with h=4, config.json says 2'),         # the same shapes, another function
    (dict(norm='pre'), 'norm=post'), (dict(h=16), 'h=4'), (dict(d_ff=64), 'd_ff'), (dict(N=3), 'trained with N=1'), (dict(vocab_size=99), '99'),
    (dict(positions='learned'), 'positions'), (dict(tied=False), 'tied'), (dict(d_model=32), 'd_model'),
    (dict(h=-1), 'h=-1 must be at least 1'), (dict(h='8'), "h='8': must be"), (dict(N=10**7), 'N='), (dict(d_ff=10**9), 'd_ff'), (dict(d_ff=10**30), 'is more than'),
    (dict(model=None), 'must be names with values'), (dict(model=[1]), 'must be names with values'), (dict(pad_id='x'), "pad_id='x'"), (dict(pad_id=5000), 'pad_id=5000'),
    (dict(P_drop=None), 'P_drop=None'), (dict(text=7), 'text=7'), (dict(source_lang=None), "source_lang=None")])
def test_edited_configuration(own, capfd, values, said):
    before = content(own)
    change(own / 'config.json', **values)
    for command in 'translate', 'evaluate', 'export': refused(in_here(capfd, command, own), said)
    assert {k: v for k, v in content(own).items() if k != 'config.json'} == {k: v for k, v in before.items() if k != 'config.json'}

ODD = [None, True, -1, 0, 1e308, 10**40, '', 'x', [], {}, [1, 2], {'a': 1}, 3.5, float('nan'), 'a' * 10**5]

def mutated(data, rng):
    "A configuration with some bytes, or one value, changed, removed or added."
    if rng.random() < .5:
        b, i = bytearray(data), rng.randrange(len(data))
        rng.choice([lambda: b.__setitem__(i, rng.randrange(256)), lambda: b.__delitem__(slice(i, i + rng.randrange(1, 40))),
                    lambda: b.__setitem__(slice(i, i), bytes(rng.choices(range(32, 127), k=3)))])()
        return bytes(b)
    config = json.loads(data)
    where = config['model'] if rng.random() < .6 else config
    name = rng.choice(list(where))
    if rng.random() < .3: del where[name]
    elif rng.random() < .4 and type(where[name]) in (int, float): where[name] *= 2
    else: where[name] = rng.choice(ODD)
    return json.dumps(config).encode()

@pytest.mark.nightly
def test_any_configuration(own):
    "Whatever a configuration says, it is refused in words that name it, or changes nothing."
    from annotated_transformer.cli.main import mendable
    from annotated_transformer.inference.translator import Translator
    write_to = lambda: Translator.from_pretrained(own, 'cpu').translate(['twenty-one'], beam=1)
    whole, right, rng, refusals = (own / 'config.json').read_bytes(), write_to(), random.Random(0), 0
    for _ in range(100):
        (own / 'config.json').write_bytes(mutated(whole, rng))
        try: assert write_to() == right, (own / 'config.json').read_bytes()
        except (ValueError, OSError) as e: refusals += str(own) in mendable(e)
    assert refusals > 40
