"A classifier: its commands, its log."
from collections import Counter

import pytest
import torch
from datasets import Dataset, DatasetDict
from helpers import run_in_process, assert_user_error

from annotated_transformer.tasks.classification.classifier import TextClassifier
from annotated_transformer.recipe import get_recipe
from annotated_transformer.run_directory import RunDirectory
from annotated_transformer.training.trainer import train


@pytest.mark.parametrize('name, args', dict(translate=[], evaluate=[], score=['--src', 'x', '--ref', 'x'], export=[], train=['--eval_bleu_samples', '3']).items())
def test_a_classifier_is_sent_to_its_own_command(name, args, classifier, capfd, tmp_path, monkeypatch):
    (tmp_path / 'x').write_text('rain\n')
    monkeypatch.chdir(tmp_path)
    if name == 'train': assert_user_error(run_in_process(capfd, 'train', '--finetune_from', classifier[0], '--dataset', 'text', '--source_lang', 'en', '--target_lang', 'desk', '--data_dir', classifier[0].parent, '--output_dir', 'y', *args), 'BLEU needs a translation model')
    else: assert_user_error(run_in_process(capfd, name, classifier[0], *args, stdin='rain\n'), 'use transformer_classify', *(['only those are exported'] if name == 'export' else []))

def test_a_classifier_of_noise_logs_the_accuracy_that_counting_gives(tmp_path):
    torch.manual_seed(1)
    texts = [' '.join(f'w{i}' for i in torch.randint(20, (5,)).tolist()) for _ in range(360)]
    labels = [f'l{i}' for i in torch.randint(4, (360,)).tolist()]
    rows = lambda part: Dataset.from_dict(dict(text=texts[part], label=labels[part]))
    splits = DatasetDict(train=rows(slice(0, 200)), valid=rows(slice(200, 340)), test=rows(slice(340, 360)))
    recipe = get_recipe('classify_small', vocab_size=8, src_vocab_size=24, N=1, d_model=16, d_ff=16, h=2, P_drop=0., max_steps=20, warmup_steps=5, max_tokens=512, average_checkpoints=1, save_every='20 steps', preprocessing='words')
    train(recipe, splits, tmp_path / 'run')
    last = [m for m in RunDirectory(tmp_path / 'run').metrics() if 'valid_loss' in m][-1]
    found = TextClassifier.from_pretrained(tmp_path / 'run').classify(splits['valid']['text'], top_k=4)
    right = sum(row[0][0] == label for row, label in zip(found, splits['valid']['label']))
    nats = -sum(torch.tensor(dict(row)[label]).log().item() for row, label in zip(found, splits['valid']['label'])) / 140
    assert abs(last['valid_accuracy'] - right / 140) < 1e-6, Counter(labels)
    assert abs(last['valid_loss'] - nats) < 1e-3 and last['valid_loss'] > 1.2
