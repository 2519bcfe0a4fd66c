"A run as a Marian model: the same ids, logits and translations in `transformers`; what Marian does not have is refused."
import io
import json
import shutil
from contextlib import redirect_stdout
from dataclasses import asdict

import numpy as np
import pytest
import safetensors.torch
import torch
from torch.testing import assert_close

from annotated_transformer.data.number_names import number_speller
from annotated_transformer.data.tokenizer import Tokenizer
from annotated_transformer.export.marian_weights import _marian_modules, _marian_permutation
from annotated_transformer.export.transformers import _bpe_merges, _hf_length_penalty, _tokenizer_json, to_transformers
from annotated_transformer.inference.beam_search import length_penalty
from annotated_transformer.inference.translator import Translator
from annotated_transformer.model.config import TransformerConfig
from annotated_transformer.model.positional_encoding import positional_encoding
from annotated_transformer.model.pretrained import save_weights
from annotated_transformer.model.transformer import Transformer
from annotated_transformer.utils.io import project_path, read_json

EN, DE = ([*map(number_speller(lang), range(100))] for lang in ('en', 'de'))

def change_settings(run, folder, **settings):
    "A run like `run`, of an untrained model with other settings."
    shutil.copytree(run, folder, ignore=shutil.ignore_patterns('checkpoints', 'best*'))
    config = read_json(folder / 'config.json')
    c = TransformerConfig(**config['model'] | settings)
    (folder / 'config.json').write_text(json.dumps(config | dict(model=asdict(c))))
    torch.manual_seed(0)
    save_weights({n: p.detach() for n, p in Transformer(c).named_parameters()}, c, folder / 'model.safetensors')
    return folder

@pytest.fixture
def hf():
    "Hugging Face's transformers, without its messages."
    hf = pytest.importorskip('transformers')
    hf.logging.set_verbosity_error()
    hf.utils.logging.disable_progress_bar()
    return hf

def logits_twice(hf, path, tmp_path, run):
    "The logits of an export, of the export after `save_pretrained`, and of the run."
    translator = Translator.from_pretrained(run)
    ids = hf.AutoTokenizer.from_pretrained(path)(EN[:20], return_tensors='pt', padding=True)
    start = torch.full((20, 1), translator.tokenizer.bos_id)
    def logits(folder, save=None):
        model = hf.MarianMTModel.from_pretrained(folder)
        if save: model.save_pretrained(save)
        with torch.no_grad(): return model(**ids, decoder_input_ids=start).logits
    with torch.no_grad(): expected = translator.models[0](ids['input_ids'], start)
    return logits(path, tmp_path / 'again'), logits(tmp_path / 'again'), expected

def test_files(trained, tmp_path):
    to_transformers(trained, tmp_path / 'hub')
    assert {f.name for f in (tmp_path / 'hub').iterdir()} == {'README.md', 'config.json', 'model.safetensors', 'generation_config.json', 'tokenizer_config.json', 'tokenizer.json'}

@pytest.mark.parametrize('settings, message', [
    (dict(norm='pre'), "Marian has no norm='pre'"), (dict(positions='learned'), "Marian has no positions='learned'"),
    (dict(d_k=8), 'its heads have d_model/h'), (dict(src_vocab_size=100), 'Marian has no src_vocab_size=100')])
def test_settings_that_marian_does_not_have(settings, message, trained, tmp_path):
    "Refused before anything is written."
    run = change_settings(trained, tmp_path / 'run', **settings)
    with pytest.raises(ValueError, match=message): to_transformers(run, tmp_path / 'out')
    assert not (tmp_path / 'out').exists()

def test_no_run(tmp_path):
    with pytest.raises((ValueError, OSError), match='config.json'): to_transformers(tmp_path, tmp_path / 'out')
    assert not (tmp_path / 'out').exists()

@pytest.mark.parametrize('options', [dict(model_type='unigram'), dict(normalization_rule_name='nfkc')])
def test_tokenizers_without_merges(options):
    "Only BPE without normalization has a tokenizer.json."
    with pytest.raises(ValueError, match='is not a BPE model'): _bpe_merges(Tokenizer.train(EN + DE, 60, False, **options).sp)

def test_length_penalties_between_half_and_twice_the_mean():
    "Both penalties, each 1 at the mean length, are less than five per cent apart."
    n, mean = np.arange(8, 31), 15.5
    ours = np.array([length_penalty(k, .6) / length_penalty(mean, .6) for k in n])
    assert abs((n / mean) ** _hf_length_penalty(.6, mean) / ours - 1).max() < .05

def test_record():
    "The recorded comparison: one limit and no penalty leave no difference, the export's β agrees most often, tokenizer.json in every line."
    record = read_json(project_path('nbs/results/hugging_face_multi30k.json'))
    for r in record['transformers'].values():
        same = {name: s['same'] for name, s in r['searches'].items()}
        assert same['greedy, our limit'] == record['sentences'] >= 500
        assert same['beam, no penalty, our limit'] >= .995 * record['sentences']
        assert set(r['searches']['defaults']['causes']) == {'the penalties rank them otherwise'}
        assert r['logits'] < 1e-4 and r['logits_saved_again'] < 1e-4
        agreement = {float(b): n for b, n in r['penalties'].items()}
        assert agreement[record['length_penalty']] == max(agreement.values()) > agreement[.6]
        k = r['tokenizers']
        assert all(n['ids'] == n['texts'] == 0 for n in k['tokenizer.json'].values())
        assert k['MarianTokenizer']['odd']['ids'] > 0 == k['MarianTokenizer']['raw']['ids']

def test_translations(hf, trained, tmp_path):
    "The same ids; the same translations but where the limit or the penalty differ."
    to_transformers(trained, out := tmp_path / 'hub')
    translator, tokenizer, model = Translator.from_pretrained(trained), hf.AutoTokenizer.from_pretrained(out), hf.MarianMTModel.from_pretrained(out)
    batch = tokenizer(EN, return_tensors='pt', padding=True)
    assert tokenizer(EN)['input_ids'] == [ids.tolist() for ids in translator.encode(EN)]
    for here, there in (dict(beam=1), dict(num_beams=1)), (dict(alpha=0.), dict(length_penalty=0.)), ({}, {}):
        pairs = list(zip(translator.translate(EN, **here), tokenizer.batch_decode(model.generate(**batch, **there), skip_special_tokens=True)))
        same = sum(a == b for a, b in pairs)
        longer = sum(a != b and len(a) > 50 and b.startswith(a) for a, b in pairs)
        assert same + longer >= 99

def test_logits_after_saving_again(hf, trained, tmp_path):
    "`save_pretrained` loses nothing."
    to_transformers(trained, out := tmp_path / 'hub')
    first, again, expected = logits_twice(hf, out, tmp_path, trained)
    assert_close(first, expected, rtol=1e-4, atol=1e-4)
    assert first.equal(again)

def test_sinusoids_in_the_file_are_lost(hf, trained, tmp_path):
    "Without the permutation the logits change when the model is saved again."
    to_transformers(trained, out := tmp_path / 'hub')
    path = out / 'model.safetensors'
    w, config = safetensors.torch.load_file(path), read_json(out / 'config.json')
    back = _marian_permutation(config['d_model']).argsort()
    for module, way in _marian_modules(config['encoder_layers'], True).values():
        for name in f'{module}.weight', f'{module}.bias':
            if name not in w: continue
            if way == 'writes': w[name] = w[name][back]
            elif name.endswith('weight'): w[name] = w[name][:, back].contiguous()
    table = positional_encoding(config['max_position_embeddings'], config['d_model'])
    w |= {f'model.{side}coder.embed_positions.weight': table.clone() for side in ('en', 'de')}
    safetensors.torch.save_file(w, path, dict(format='pt'))
    first, again, expected = logits_twice(hf, out, tmp_path, trained)
    assert_close(first, expected, rtol=1e-4, atol=1e-4)
    assert (again - expected).abs().max() > .1

def test_untied_embeddings(hf, trained, tmp_path):
    run = change_settings(trained, tmp_path / 'run', tie_embeddings=False)
    to_transformers(run, tmp_path / 'hub')
    first, again, expected = logits_twice(hf, tmp_path / 'hub', tmp_path, run)
    assert_close(first, expected, rtol=1e-4, atol=1e-4)
    assert first.equal(again)

@pytest.mark.parametrize('size, byte_fallback', [(60, False), (320, True)])
def test_unusual_lines(size, byte_fallback):
    "tokenizer.json gives the ids of SentencePiece, with and without tokens for bytes."
    tokenizers = pytest.importorskip('tokenizers')
    lines = EN + ['', ' ', '  two  spaces ', '\ttab', 'no-break\u00a0space', '😀', '漢字 ab', '</s>', '<pad> <s>', '<0x41>', '▁', 'e\u0301', '>>de<< one', 'a\nb', '\u2028', 'x' * 300]
    t = Tokenizer.train(EN + DE, size, byte_fallback)
    fast = tokenizers.Tokenizer.from_str(json.dumps(_tokenizer_json(t)))
    fast.encode_special_tokens = True
    assert [e.ids[:-1] for e in fast.encode_batch(lines)] == t.encode(lines)

def test_code_of_the_card(hf, trained, tmp_path):
    "The code in README.md runs as it stands, in the folder."
    to_transformers(trained, out := tmp_path / 'hub')
    code = (out / 'README.md').read_text().split('```')[1].removeprefix('python\n')
    with redirect_stdout(io.StringIO()) as printed: exec(code.replace("'.'", repr(str(out))).replace('…', 'seven'), {})
    assert printed.getvalue() == f"{Translator.from_pretrained(trained).translate(['seven'])}\n" == "['sieben']\n"
