"Experiments that are interrupted continue: what was finished stays, and the run at hand resumes from its last checkpoint."
import io
import json
import os
import runpy
import signal
import subprocess
import sys
import tarfile
import time
from pathlib import Path

import pytest
import torch
from torch.testing import assert_close

from annotated_transformer.data.number_names import number_speller
from helpers import EN_DE, ROOT, cli_args, number_lines, snapshot_dir, write_files
from processes import Command

SMALL = dict(N=1, d_model=32, d_ff=64, h=2, vocab_size=300, max_tokens=512, max_steps=12, warmup_steps=6, average_checkpoints=2, max_len=80, save_every='2 steps')

@pytest.fixture
def grid(tmp_path):
    for lang in ('en', 'de'):
        name = number_speller(lang)
        (tmp_path / f'train.{lang}').write_text('\n'.join(f'{name(i)} {name(7 * i % 300)}' for i in range(300)))
    def start(runs):
        return subprocess.Popen([sys.executable, 'experiments/table3.py', *EN_DE, '--data', str(tmp_path), '--rows', 'E', '--seeds', '1',
                                 *cli_args(SMALL), '--runs', str(tmp_path / runs), '--out', str(tmp_path / f'{runs}.json')],
                                cwd=Path(__file__).parent.parent, env=os.environ | {'OMP_NUM_THREADS': '1'}, stderr=subprocess.PIPE, text=True)
    return start

def test_effective_rank(monkeypatch):
    "Equal singular values count fully, unequal ones by their entropy; the softmax hides nothing but a constant for each row."
    monkeypatch.syspath_prepend(str(ROOT / 'experiments'))
    effective_rank = runpy.run_path(str(ROOT / 'experiments/table3.py'))['effective_rank']
    torch.manual_seed(0)
    turned = torch.linalg.qr(torch.randn(8, 8, dtype=torch.float64))[0]
    centred = torch.linalg.qr((torch.eye(8) - 1 / 8).double())[0][:, :7]     # columns that sum to zero
    assert_close(centred.sum(0), torch.zeros(7).double())
    assert effective_rank((turned[:, :5] @ centred[:, :5].T).softmax(-1)).item() == pytest.approx(5)
    uneven = turned[:, :2] * torch.tensor([3, 1]).sqrt() @ centred[:, :2].T  # shares ¾ and ¼
    assert effective_rank(uneven.softmax(-1)).item() == pytest.approx(.75 ** -.75 * .25 ** -.25)
    assert effective_rank((torch.randn(3, 8, 2) @ torch.randn(3, 2, 8)).softmax(-1)).max() < 3

@pytest.mark.nightly
def test_a_killed_grid_goes_on(grid, tmp_path):
    whole = grid('whole')
    assert not whole.wait(300), whole.stderr.read()
    killed, deadline = grid('killed'), time.time() + 120
    parts = tmp_path / 'killed/text_en_de_mini_parts'
    while time.time() < deadline and not [*(tmp_path / 'killed/text_en_de_mini_E_learned_0/checkpoints').glob('step-*')]: time.sleep(.02)
    killed.send_signal(signal.SIGKILL); killed.wait()
    done = {p.name: p.stat().st_mtime_ns for p in parts.glob('base-*')}
    assert [*done] == ['base-0.json'] and not (tmp_path / 'killed.json').exists()
    again = grid('killed')
    assert not again.wait(300), again.stderr.read()
    assert (parts / 'base-0.json').stat().st_mtime_ns == done['base-0.json']
    records = [json.loads((tmp_path / f'{runs}.json').read_text())['runs'] for runs in ('whole', 'killed')]
    assert {row: len(found) for row, found in records[0].items()} == dict(base=1, E_learned=1)
    for row, found in records[0].items():
        for ours, theirs in zip(found, records[1][row]): assert ours['curve'] == theirs['curve'] and ours['loss'] == theirs['loss']

DRY_RUN = '--pair', 'en-de', '--model', 'base', '--dry_run', *cli_args(dict(vocab_size=300, N=1, warmup_steps=5, save_every='5 steps'))

@pytest.fixture
def wmt14(tmp_path, monkeypatch, capfd):
    "The script in this process, which has loaded what is slow to load; its training is a process of its own."
    monkeypatch.syspath_prepend(str(ROOT / 'experiments'))
    monkeypatch.chdir(ROOT)
    write_files(tmp_path / 'text', train_en=number_lines('en', 200), train_de=number_lines('de', 200))
    popen = subprocess.Popen
    def start_forked(command, *args, **options):
        if command[1:3] != ['-m', 'annotated_transformer.training']: return popen(command, *args, **options)
        return Command('train', *command[3:])
    def start(*args, forked=False):
        "`forked`: the training need not load PyTorch."
        monkeypatch.setattr(subprocess, 'Popen', start_forked if forked else popen)
        monkeypatch.setattr(sys, 'argv', ['experiments/wmt14.py', *args])
        script, status = runpy.run_path('experiments/wmt14.py'), 0
        capfd.readouterr()
        try: script['main'](script['read_arguments'](script['p'], 'base'))
        except SystemExit as e: status = e.code
        return status, *capfd.readouterr()
    return start

def test_a_dry_run_of_wmt14(wmt14, tmp_path):
    "All the way in two pieces; a finished run is only printed, and nothing of it looks like a result."
    args, run = [*DRY_RUN, '--data_dir', str(tmp_path / 'text'), '--output_dir', str(tmp_path / 'run')], tmp_path / 'run'
    for max_steps in 10, 15:
        status, out, err = wmt14(*args, '--max_steps', str(max_steps), forked=max_steps == 15)
        assert status == 0 and f'from step {max_steps % 10 and 10} to {max_steps}' in out, err
    record, card = json.loads((run / 'dry_run.json').read_text()), (run / 'marian/README.md').read_text()
    assert [(piece['from_step'], piece['to_step']) for piece in record['pieces']] == [(0, 10), (10, 15)]
    assert record['averaged'] == [f'step-{step:08d}' for step in (5, 10, 15)] and any('mean is of 3 checkpoints' in line for line in record['fell_short'])
    assert record['paper'] is None and record['test_sentences'] == 10 and not (run / 'record.json').exists()
    for text in record['dry_run'], card: assert 'Its scores say nothing about WMT14 or the paper' in text
    assert '# DRY RUN' in card and '27.3' not in card + out and all(stage in out for stage in ('1 of 4', '2 of 4', '3 of 4', '4 of 4'))
    before = snapshot_dir(run)
    status, out, err = wmt14(*args, '--max_steps', '15')
    assert status == 0 and '4 of 4' in out and '1 of 4' not in out + err and '3 of 4' not in out and snapshot_dir(run) == before

def test_wmt14_refuses_in_one_line(wmt14):
    for args, message in (('--pair', 'en-es', '--model', 'base'), "invalid choice: 'en-es'"), (('--pair', 'en-de', '--model', 'base', '--wrong', '1'), '--wrong'):
        status, out, err = wmt14(*args)
        assert status == 2 and not out and err.startswith('error: ') and err.count('\n') == 1 and message in err

@pytest.mark.nightly
@pytest.mark.parametrize('signum', [signal.SIGINT, signal.SIGTERM])
def test_an_interrupted_dry_run_of_wmt14_ends_like_a_whole_one(wmt14, tmp_path, signum):
    def args(name): return [*DRY_RUN, '--data_dir', str(tmp_path / 'text'), '--max_steps', '300', '--output_dir', str(tmp_path / name)]
    process = subprocess.Popen([sys.executable, 'experiments/wmt14.py', *args('two')], cwd=ROOT, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    deadline = time.time() + 120
    while time.time() < deadline and not [*(tmp_path / 'two/checkpoints').glob('step-*')]: time.sleep(.02)
    process.send_signal(signum)
    out = process.communicate(timeout=120)[0]
    assert process.returncode == 130 and 'the same command continues' in out.splitlines()[-1], out
    for name in 'two', 'one': assert wmt14(*args(name))[0] == 0
    assert len((tmp_path / 'two/pieces.jsonl').read_text().splitlines()) == 2
    assert (tmp_path / 'two/model.safetensors').read_bytes() == (tmp_path / 'one/model.safetensors').read_bytes()

TED_TEST = ['Sie kam. Er ging.', 'Wir\u2028sind', 'da', "Das ist's", 'Ende'], ['She came. He went.', 'We\u2028are', 'there', 'That’s it', 'The end']

@pytest.fixture
def iwslt14(tmp_path, monkeypatch, capfd):
    "The script, on an archive of the public one's form: 50 pairs to train on, four that are filtered out, five to test."
    monkeypatch.syspath_prepend(str(ROOT / 'experiments'))
    def start(*args):
        monkeypatch.setattr(sys, 'argv', ['experiments/iwslt14.py', '--out', str(tmp_path / 'out'), *args])
        script, status = runpy.run_path('experiments/iwslt14.py'), 0
        capfd.readouterr()
        try:
            with script['_exit_on_user_error'](): script['main'](script['p'].parse_args())
        except SystemExit as e: status = e.code
        return status, *capfd.readouterr()
    def write(name='de-en.tgz', leave_out='', shorter=''):
        files = {}
        for side, lang in enumerate(('de', 'en')):
            filtered = [('kurz', 'much longer'), ('', 'nothing'), ('a ' * 176, 'a ' * 176), ('eins zwei drei vier', 'one two three four five six seven')]
            lines = ['<url>http://x</url>', '<talkid>1</talkid>', '<title>Titel &amp;</title>', '<description>Text</description>', *[pair[side] for pair in filtered],
                     *[f'{("Satz", "Sentence")[side]} {i}' for i in range(48)]]
            files[f'train.tags.de-en.{lang}'] = lines
            for i, part in enumerate(('TED.dev2010', 'TEDX.dev2012', 'TED.tst2010', 'TED.tst2011', 'TED.tst2012')):
                files[f'IWSLT14.{part}.de-en.{lang}.xml'] = ['<?xml version="1.0"?>', '<doc docid="1">', f'<seg id="1"> {TED_TEST[side][i]} </seg>', '</doc>']
        with tarfile.open(tmp_path / name, 'w:gz') as archive:
            for file, lines in files.items():
                if file == leave_out: continue
                data = ''.join(line + '\n' for line in lines[:-1 if file == shorter else None]).encode()
                (info := tarfile.TarInfo(f'de-en/{file}')).size = len(data)
                archive.addfile(info, io.BytesIO(data))
        return str(tmp_path / name)
    return start, write

def test_iwslt14_is_prepared_as_by_fairseq(iwslt14, tmp_path):
    "Tokens before small letters, one line a sentence, every 23rd of the kept pairs in validation."
    start, write = iwslt14
    status, out, err = start('--archive', write())
    assert status == 0 and 'train: 48 pairs (160,239 expected)' in out and 'valid: 2 pairs' in out and 'test: 5 pairs' in out, err
    text = {name: (tmp_path / f'out/{name}').read_text().split('\n')[:-1] for name in ('train.de', 'train.en', 'valid.en', 'test.de', 'test.en')}
    assert text['test.de'] == ['sie kam . er ging .', 'wir sind', 'da', 'das ist &apos; s', 'ende']
    assert text['test.en'] == ['she came . he went .', 'we are', 'there', 'that &apos;s it', 'the end']
    assert text['train.de'][:2] == ['titel &amp; amp ;', 'text'] and len(text['train.de']) == len(text['train.en']) == 48
    assert text['valid.en'] == ['sentence 20', 'sentence 43']                          # the 23rd and 46th after two lines of the talk

def test_iwslt14_refuses_in_one_line(iwslt14, tmp_path):
    start, write = iwslt14
    (tmp_path / 'no.tgz').write_text('text')
    whole = Path(write('whole.tgz')).read_bytes()
    (tmp_path / 'cut.tgz').write_bytes(whole[:len(whole) // 2])
    for archive, message in ((str(tmp_path / 'none.tgz'), 'none.tgz does not exist'), (str(tmp_path / 'no.tgz'), 'no.tgz is no whole archive de-en.tgz'),
                             (str(tmp_path / 'cut.tgz'), 'cut.tgz is no whole archive de-en.tgz'),
                             (write('a.tgz', leave_out='train.tags.de-en.en'), 'a.tgz: no file de-en/train.tags.de-en.en'),
                             (write('b.tgz', shorter='train.tags.de-en.en'), 'b.tgz: train.tags.de-en.de has 54 lines of text, train.tags.de-en.en 53')):
        status, out, err = start('--archive', archive)
        assert status == 1 and err.startswith('error: ') and message in err and err.count('\n') == 1, (archive, err)
    assert not [*(tmp_path / 'out').iterdir()]
