"Memory networks: networks side by side, the schedule of training, gaps in the ages, the linear start, bAbI files."
import pytest
import torch
from torch.nn import functional as F
from torch.testing import assert_close

from annotated_transformer.background.memory_network import (MemoryNetwork, _BabiExample, _build_vocab, _encode_stories, _evaluate_memory_network, _sample_time_indices,
                                                             _train_memory_network, read_babi)

ONE = _BabiExample(['ann took the ball'.split(), 'ann went to the garden'.split()], 'where is the ball'.split(), 'garden', (0, 1))

def stories():
    "Five stories of three sentences in a memory of four, questions and answers."
    torch.manual_seed(1)
    story, question = torch.randint(1, 12, (5, 4, 3)), torch.randint(1, 12, (5, 3))
    story[:, 3] = 0
    return story, question, torch.randint(1, 12, (5,))

def network(R=1, **settings):
    torch.manual_seed(2)
    return MemoryNetwork(12, 4, 3, R=R, d=6, **settings)

def step(scale=1, data=None, lr=1e-4, epochs=1, **settings):
    "How far training takes the first matrix of three networks that begin the same."
    model = network(R=3, tying='layers')
    model.load_state_dict({name: w * scale if w.dim() == 3 else w for name, w in model.state_dict().items()})
    before = model.words[0].detach().clone()
    _train_memory_network(model, data or stories(), epochs, lr, batch_size=4, **settings)
    return model.words[0].detach() - before

def test_each_network_is_one_alone():
    (story, question, _), many, alone = stories(), network(R=3, tying='layers'), network(tying='layers')
    alone.load_state_dict({n: w[1:2] if w.dim() == 3 else w for n, w in many.state_dict().items()})
    rows = torch.randint(5, (3, 4))
    assert_close(many(story[rows], question[rows])[1:2], alone(story[rows[1:2]], question[rows[1:2]]))

def test_training_moves_all_but_the_padding_word():
    many = network(R=3, tying='layers')
    before = [w.clone() for w in many.parameters()]
    _train_memory_network(many, stories(), epochs=1, batch_size=4, noise=True)
    assert all((w != b).any() for w, b in zip(many.parameters(), before))
    assert not any(E[:, 0].any() for E in (*many.words, many.B, many.W))

def test_the_rate_is_halved_after_each_quarter():
    "One question four times: no luck of a draw. 1 + 1/2 + 1/4 + 1/8 steps."
    data = tuple(x[:1].repeat_interleave(4, 0) for x in stories())
    first = step(data=data)
    assert_close(step(data=data, epochs=4), first * 1.875, rtol=.02, atol=1e-6)
    assert_close(step(data=data, epochs=4, anneal=False), first * 4, rtol=.02, atol=1e-6)

def test_noise_changes_training(): assert (step(noise=True) != step()).any()

def test_the_gradient_is_clipped_to_40():
    far = step(scale=10, lr=1e-3).flatten(1).norm(dim=1)
    assert .038 < far.max() < .0401               # the empty word stays

def test_gaps_in_the_ages():
    "One at most up to ten sentences, in half of the stories, at any place; never beyond the memory."
    n = torch.tensor([10, 4, 1]).repeat(1000)[:, None]
    ages = _sample_time_indices(n, 12, torch.Generator().manual_seed(0))
    for size in 10, 4, 1:
        own = ages[n[:, 0] == size, :size]
        assert (own.diff(dim=-1) > 0).all() and own.max() == size
        assert abs((own[:, -1] == size).float().mean() - .5 * size / (size + 1)) < .06
    assert _sample_time_indices(n, 12, torch.Generator()).max() == 11

def test_one_hop_without_softmax_by_hand():
    (story, question, _), net = stories(), network(hops=1)
    def embed(E, ids): return sum((1 + 4 * (torch.arange(1, 7) - 3.5) * (i - 1) / 18) * E[w] for i, w in enumerate(ids))
    u = embed(net.words[0][0], question[0])
    m, c = ([embed(net.words[n][0], story[0, i]) + net.temporal_encoding[n][0][i] for i in range(3)] for n in (0, 1))
    by_hand = net.words[1][0] @ (u + sum((u @ a) * b for a, b in zip(m, c)))
    assert_close(net(story[None], question[None], linear=True)[0, 0], by_hand)

def test_ages_and_the_order_of_words_matter():
    "The order not to a bag of words."
    (story, question, _), net, bag = stories(), network(hops=1), network(position_encoding=False)
    x, turned = (story[None], question[None]), (story[None], question[None].flip(-1))
    assert (net(*x, torch.tensor([0, 2, 3, 3]).expand(1, 5, 4)) - net(*x)).abs().max() > 1e-4
    assert (net(*x) - net(*turned)).abs().max() > 1e-4
    assert_close(bag(*x), bag(*turned))

def test_loss_and_error_rate():
    data, net = stories(), network(hops=1)
    loss, wrong = _evaluate_memory_network(net, data)
    logits = net(data[0][None], data[1][None])[0]
    assert_close(loss[0], F.cross_entropy(logits, data[2]))
    assert_close(wrong[0], (logits.argmax(-1) != data[2]).float().mean())

def test_the_last_sentence_comes_first():
    vocab = _build_vocab([ONE])
    assert _encode_stories([ONE], vocab, 1, 5)[0].tolist() == [[[vocab.index(w) for w in ONE.facts[-1]]]]

@pytest.mark.parametrize('size, epochs, lr, message', [(9, 1, 1., 'batch_size=9'), (4, 0, 1., 'epochs=0'), (0, 1, 1., 'batch_size=0'), (4, 1, 0., 'lr=0')])
def test_refuses_settings_of_training(size, epochs, lr, message):
    with pytest.raises(ValueError, match=message): _train_memory_network(network(), stories(), epochs, lr, batch_size=size)

@pytest.mark.parametrize('call, message', [
    (lambda: _train_memory_network(MemoryNetwork(12, 8, 5, R=1), stories()), 'do not fit the model'),
    (lambda: _evaluate_memory_network(network(), tuple(part[:0] for part in stories())), 'no questions'),
    (lambda: _encode_stories([], [''], M=2, J=2), 'no questions'), (lambda: _encode_stories([ONE], [''], M=0, J=2), 'M=0'),
    (lambda: _encode_stories([ONE._replace(answer='attic')], _build_vocab([ONE]), 8, 5), "1: the word 'attic' is not in the"),
    (lambda: _encode_stories([ONE._replace(question=['where'] * 6)], _build_vocab([ONE]), 8, 5), 'has more than 5 words'),
    (lambda: MemoryNetwork(5, 5, 0), 'J=0'), (lambda: MemoryNetwork(5, 5, 5, tying='none'), 'tying')])
def test_refused(call, message):
    with pytest.raises(ValueError, match=message): call()

def test_an_age_beyond_the_memory():
    "Not read from beyond the end of the table."
    story, question = torch.ones(10, 2, 5, 2, dtype=torch.long), torch.ones(10, 2, 2, dtype=torch.long)
    with pytest.raises(RuntimeError, match='out of bounds'): MemoryNetwork(5, 3, 2)(story, question)

def test_reads_babi(tmp_path):
    (tmp_path / 'own.txt').write_text('1 Ann took the ball.\n2 Ann went to the garden.\n3 Where is the ball? \tgarden\t1 2\n4 Ben went to the office.\n'
                                      "5 Where is Ben? \toffice\t4\n1 Cleo isn't in the cellar.\n2 Is Cleo in the cellar? \tno\t1\n")
    found = read_babi(tmp_path / 'own.txt')
    assert found[0] == ONE and [q.support for q in found] == [(0, 1), (2,), (0,)]

@pytest.mark.parametrize('text, message', [
    ('Ann went.\n', "bad.txt, line 1: 'Ann went.' has no line number"), ('1 Ann went.\n3 Ben went.\n', 'line 2: number 3 follows 1'),
    ('2 Ann went.\n', 'line 1: number 2 follows 0'), ('1 Ann went.\n2 Where is Ann?\t\t1\n', 'line 2: the question has no answer'),
    ('1 Where is Ann?\tcellar\t1\n', 'line 1: the question comes before any'), ('1 Ann went.\n2 Where?\there\t1\n1 Ben went.\n', 'line 3: the file ends within'),
    ('1 Ann went.\n2 \n', 'line 2: no words'), ('1 Ann went.\n2 Where?\there\t7\n', "line 2: the supporting fact '7' is"),
    ('1 Ann went.\n', 'bad.txt contains no questions'), ('', 'bad.txt is empty'), (b'1 Ann\xff went.', 'line 1: not UTF-8')])
def test_broken_babi(text, message, tmp_path):
    (tmp_path / 'bad.txt').write_bytes(text if isinstance(text, bytes) else text.encode())
    with pytest.raises(ValueError, match=message): read_babi(tmp_path / 'bad.txt')
