"The same limits and scores in CTranslate2 as in PyTorch; what it cannot express is refused."
from importlib.util import find_spec

import pytest
import torch
from helpers import snapshot_dir, train_undertrained_run, run_in_process

from annotated_transformer.cli.export import transformer_export
from annotated_transformer.data.number_names import number_speller
from annotated_transformer.export.ctranslate2 import CTranslate2Translator, to_ctranslate2
from annotated_transformer.inference.translator import Translator
from annotated_transformer.recipe import get_recipe
from annotated_transformer.training.trainer import train
from annotated_transformer.utils.io import project_path, read_json


def train_small(folder, **settings):
    train(get_recipe('demo', N=1, d_model=32, d_ff=32, h=2, max_steps=3, warmup_steps=2, max_tokens=512, average_checkpoints=1, save_every='3 steps', **settings), 'numbers', folder)
    return folder

@pytest.fixture(scope='module')
def weak(tmp_path_factory):
    "Runs after three steps, whose translations run on to the limit."
    folder = tmp_path_factory.mktemp('weak')
    def run(name, settings):
        transformer_export(str(train_small(folder / name, **settings)))
        return folder / name
    return {name: run(name, settings) for name, settings in dict(usual={}, short=dict(max_len=22), learned=dict(max_len=60, positions='learned')).items()}

@pytest.mark.parametrize('alpha', [0., .6])
@pytest.mark.parametrize('name', ['usual', 'short', 'learned'])
def test_one_limit_for_every_engine(name, alpha, weak):
    sources = [*map(number_speller('en'), range(3, 9)), *map(number_speller('en'), range(121, 124))]
    torch_, other = Translator.from_pretrained(weak[name]), CTranslate2Translator.from_pretrained(weak[name])
    together = other.translate(sources, alpha=alpha)
    assert together == [other.translate([s], alpha=alpha)[0] for s in sources]
    lengths = [[len(ids) for ids in t.tokenizer.encode(t.translate(sources, beam=1, alpha=alpha))] for t in (torch_, other)]
    ours, theirs = ([len(h[0].ids) for h in t.search(t.encode(sources), 1, alpha)] for t in (torch_, other))
    assert ours == theirs and lengths[0] == lengths[1]

def test_max_extra_tokens(weak):
    "With eos, exactly so many tokens more than the source, in every engine and when sampling."
    engines = Translator.from_pretrained(weak['usual']), CTranslate2Translator.from_pretrained(weak['usual'])
    ids = engines[0].encode(['eighty', 'a hundred and three'])
    for extra in 0, 7, 80:
        limits = [len(row) + extra for row in ids]
        for engine in engines: assert [len(best.ids) + 1 for best, *_ in engine.search(ids, 1, 0., max_extra_tokens=extra)] == limits
        drawn = engines[0].make_sampler(9, 1e4, 1., 0, extra)(ids)
        assert all(len(h.ids) < limit for hs, limit in zip(drawn, limits) for h in hs) and max(len(h.ids) + 1 for h in drawn[1]) == limits[1]
    few = CTranslate2Translator.from_pretrained(weak['short'])
    with pytest.raises(ValueError, match='max_extra_tokens=1000: a translation may have .* positions: allow fewer, or use --engine pytorch'): few.translate(['eighty'], max_extra_tokens=1000)
    with pytest.raises(ValueError, match='max_extra_tokens=-1 must be at least 0'): engines[1].translate(['eighty'], max_extra_tokens=-1)

@pytest.mark.skipif(not find_spec('ctranslate2'), reason='needs ctranslate2')
def test_the_log_probability_does_not_depend_on_the_penalty(capfd, tmp_path):
    "Greedy search finds the same with and without a penalty, also where the limit cuts it off: so log_prob must be the same."
    run = train_undertrained_run(capfd, tmp_path, 'sinusoidal')
    run_in_process(capfd, 'export', run)
    engine = CTranslate2Translator.from_pretrained(run, device='cpu')
    without, with_ = ([h.log_prob for h, in engine.search(engine.encode(['eighty', 'three']), 1, alpha)] for alpha in (0., .8))
    assert with_ == pytest.approx(without, rel=1e-4)

@pytest.mark.parametrize('settings, said', [(dict(positions='none'), "does not support positions='none'"), (dict(d_k=8), 'd_k = d_v = d_model/h = 16, this model has d_k=8, d_v=16')])
def test_what_the_engine_does_not_support_is_refused(settings, said, tmp_path):
    run = train_small(tmp_path / 'run', **settings)
    with pytest.raises(ValueError, match=said): to_ctranslate2(run, tmp_path / 'out')
    assert not (tmp_path / 'out').exists()

@pytest.mark.skipif(torch.cuda.is_available(), reason='needs a machine without CUDA')
def test_a_device_that_is_not_there(weak):
    with pytest.raises(ValueError, match='ctranslate2 could not be loaded .*CUDA.*: check the device, or run `transformer_export .*` again'):
        CTranslate2Translator.from_pretrained(weak['usual'], device='cuda')

def test_another_architecture_is_refused(classifier, tmp_path):
    before = snapshot_dir(run := classifier[0])
    with pytest.raises(ValueError, match="not 'transformer'"): to_ctranslate2(run, tmp_path / 'out')
    assert snapshot_dir(run) == before and not (tmp_path / 'out').exists()

def test_export_of_other_weights_is_refused(own, capfd):
    run_in_process(capfd, 'export', own)
    (own / 'ctranslate2/export_info.json').write_text('{"weights_sha256": "other"}')
    with pytest.raises(ValueError, match='was made from other weights'): CTranslate2Translator.from_pretrained(own)

def test_eight_bits_are_smaller(trained, tmp_path):
    for kind in None, 'int8': to_ctranslate2(trained, tmp_path / str(kind), kind)
    full, small = ((tmp_path / kind / 'model.bin').stat().st_size for kind in ('None', 'int8'))
    assert small < full

def test_record():
    "The recorded comparison: float32 agrees without a penalty, 8 bits keep the score, and how fast each engine is."
    record = read_json(project_path('nbs/results/decoding_cpu.json'))
    engines, BLEU = record['engines'], record['BLEU']
    assert record['threads'] == 1 and '--cpu-time' in record['command']
    assert engines['CTranslate2 float32']['same_as_ours_alpha_0'] >= .99
    assert engines['CTranslate2 float32']['speed_over_ours'] < 2 and engines['HF Marian']['speed_over_ours'] < 1 / 2.5 and record['commit'] and record['processor']
    assert abs(BLEU['CTranslate2 int8'] - BLEU['CTranslate2 float32']) < .3
