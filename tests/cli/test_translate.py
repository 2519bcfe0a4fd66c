"transformer_translate: weights, n-best lists, drawing, bad options."
import gzip

import pytest
import safetensors.torch
from helpers import run_in_process, number_lines, assert_success, assert_user_error, write_files
from processes import run_forked

from annotated_transformer.inference.translator import Translator

LINES = ['seven', 'twenty-one', '', 'ninety-nine']


def test_weights(own, capfd, tmp_path):
    "Each command takes --weights, and each kind is the file that it says."
    zero = {k: v * 0 for k, v in safetensors.torch.load_file(own / 'best.safetensors').items()}
    with safetensors.safe_open(own / 'best.safetensors', 'pt') as f: metadata = f.metadata()
    safetensors.torch.save_file(zero, own / 'best.safetensors', metadata)
    write_files(tmp_path, src=number_lines('en', 5), ref=number_lines('de', 5), lines='seven\n')
    def words(*args): return assert_success(run_in_process(capfd, *args)).stdout
    average, best, last = (words('translate', own, '--input', tmp_path / 'lines', '--weights', w) for w in ('average', 'best', 'last'))
    assert average == last == 'sieben\n' != best
    files = '--src', tmp_path / 'src', '--ref', tmp_path / 'ref'
    assert words('score', own, *files, '--weights', 'last') == words('score', own, *files) != words('score', own, *files, '--weights', 'best')
    words('evaluate', own, *files, '--weights', 'last')
    words('export', own, '--format', 'safetensors', '--weights', 'best', '--output_dir', tmp_path / 'exported')
    assert (tmp_path / 'exported' / 'model.safetensors').read_bytes() == (own / 'best.safetensors').read_bytes()

@pytest.mark.parametrize('command', ['translate', 'evaluate', 'export', 'score'])
def test_weights_that_are_not_there(own, capfd, command, tmp_path):
    write_files(tmp_path, src=number_lines('en', 5), ref=number_lines('de', 5))
    files = ['--src', tmp_path / 'src', '--ref', tmp_path / 'ref'] if command == 'score' else []
    assert_user_error(run_in_process(capfd, command, own, *files, '--weights', 'newest'), "weights='newest' is unknown: use one of average, best, last")
    (own / 'best.safetensors').unlink()
    assert_user_error(run_in_process(capfd, command, own, *files, '--weights', 'best'), 'contains no best.safetensors')

def test_n_best(trained):
    "In a process of its own: n lines for each line, the first the one that comes without the option; scores fall; blank lines stay."
    plain = assert_success(run_forked('translate', trained, '--beam', '5', stdin='\n'.join(LINES) + '\n')).stdout.splitlines()
    five = assert_success(run_forked('translate', trained, '--n_best', '5', '--print_scores', stdin='\n'.join(LINES) + '\n')).stdout.splitlines()
    assert len(five) == 5 * len(LINES)
    groups = [[line.split('\t') for line in five[5 * i:5 * i + 5]] for i in range(len(LINES))]
    assert [g[0][1] for g in groups] == plain and groups[2] == [['0.0000', '']] * 5
    for g in groups: assert [float(s) for s, _ in g] == sorted((float(s) for s, _ in g), reverse=True)

def test_drawing(trained, capfd, tmp_path):
    write_files(tmp_path, lines='\n'.join(LINES))
    def drawn(*more): return assert_success(run_in_process(capfd, 'translate', trained, '--input', tmp_path / 'lines', '--do_sample', *more)).stdout
    cold, warm = drawn('--temperature', '0.01'), drawn('--temperature', '3', '--n_best', '2')
    assert cold == assert_success(run_in_process(capfd, 'translate', trained, '--input', tmp_path / 'lines', '--beam', '1')).stdout
    assert len(warm.split('\n')) == 2 * len(LINES) + 1 and warm == drawn('--temperature', '3', '--n_best', '2') != drawn('--temperature', '3', '--n_best', '2', '--seed', '1')

@pytest.mark.parametrize('args, said', [
    (['--n_best', '5', '--beam', '4'], 'n_best=5 must be at most 4'), (['--beam', '0'], 'beam=0 must be at least 1'), (['--n_best', '0'], 'n_best=0 must be at least 1'), (['--do_sample', '--temperature', '0'], 'temperature=0.0 must be at least'),
    (['--do_sample', '--temperature', 'nan'], 'temperature=nan must be'), (['--temperature', '2'], 'need --do_sample'), (['--overlong', 'drop'], 'use one of split, sentences, error')])
def test_bad_search(trained, capfd, tmp_path, args, said):
    write_files(tmp_path, lines='seven\n')
    assert_user_error(run_in_process(capfd, 'translate', trained, '--input', tmp_path / 'lines', *args), said)

def test_sentences(trained, capfd, tmp_path):
    "A text is cut where sentences end if it is asked for, and where it is too long in any case."
    write_files(tmp_path, lines='seven. nine!\n', long='seven. ' * 60)
    t = Translator.from_pretrained(trained, device='cpu')
    said = assert_success(run_in_process(capfd, 'translate', trained, '--input', tmp_path / 'lines', '--overlong', 'sentences')).stdout
    assert said == ' '.join(t.translate(['seven.', 'nine!'])) + '\n'
    long = run_in_process(capfd, 'translate', trained, '--input', tmp_path / 'long')
    assert 'translated in' in assert_success(long).stderr
    assert all(part.rstrip().endswith('.') for part in t.split_long('seven. ' * 60, 60))
    for most in 1, 2, 5: assert ''.join(t.split_long('ñ"x' * 50, most)) == 'ñ"x' * 50     # a character may be longer than that: no endless cutting

@pytest.mark.parametrize('options', [{}, dict(do_sample=True, temperature=100)])
def test_max_extra_tokens(trained, capfd, options):
    "As from Python; 0 cuts the name off."
    def translate(*limit): return assert_success(run_in_process(capfd, 'translate', trained, *(['--do_sample', '--temperature', '100'] if options else []), *limit, stdin='seventeen\n')).stdout.rstrip('\n')
    t = Translator.from_pretrained(trained, device='cpu')
    (none,), (usual,) = (t.translate(['seventeen'], max_extra_tokens=n, **options) for n in (0, None))
    assert translate('--max_extra_tokens', '0') == none != usual == translate()

@pytest.mark.parametrize('value, said', [('-1', 'max_extra_tokens=-1 must be at least 0'), ('10001', 'max_extra_tokens=10001 must be at most 10000'), ('many', "invalid int value: 'many'")])
def test_bad_max_extra_tokens(capfd, value, said):
    "Refused before the run is opened."
    assert_user_error(run_in_process(capfd, 'translate', 'no run', '--max_extra_tokens', value), said)

@pytest.mark.parametrize('engine', ['pytorch', 'ctranslate2'])
@pytest.mark.parametrize('option, value, said', [('--alpha', 'nan', 'alpha=nan must be'), ('--alpha', 'inf', 'alpha=inf must be at most'), ('--alpha', '-1', 'alpha=-1.0 must be at least 0'),
    ('--alpha', '1000', 'alpha=1000.0 must be at most'), ('--beam', '0', 'beam=0 must be at least 1'), ('--beam', '-3', 'beam=-3 must'), ('--beam', '1000000000', 'beam=1000000000 must be at most')])
def test_numbers_of_the_search(own, capfd, engine, option, value, said):
    if not (own / 'ctranslate2').exists() and engine == 'ctranslate2': run_in_process(capfd, 'export', own)
    for command in 'translate', 'evaluate': assert_user_error(run_in_process(capfd, command, own, option, value, '--engine', engine), said)

def test_packed_input(own, capfd, tmp_path):
    "x.gz holds text, wherever it is read or written."
    lines = number_lines('en', 30) + '\n'
    (tmp_path / 'x.gz').write_bytes(gzip.compress(lines.encode()))
    (tmp_path / 'ref.gz').write_bytes(gzip.compress((number_lines('de', 30) + '\n').encode()))
    plain = run_forked('translate', own, '--beam', '1', stdin=lines).stdout
    assert run_forked('translate', own, '--beam', '1', '--input', tmp_path / 'x.gz').stdout == plain and plain.count('\n') == 30
    result = run_in_process(capfd, 'evaluate', own, '--beam', '1', '--src', tmp_path / 'x.gz', '--ref', tmp_path / 'ref.gz', '--output', tmp_path / 'hyp.gz')
    assert result.returncode == 0 and gzip.decompress((tmp_path / 'hyp.gz').read_bytes()).decode() == plain, result.stderr
    (tmp_path / 'cut.gz').write_bytes((tmp_path / 'x.gz').read_bytes()[:-9])
    assert_user_error(run_in_process(capfd, 'translate', own, '--input', tmp_path / 'cut.gz'), 'cut.gz is not a complete gzip file')
