"""Byte-pair encoding by hand and with SentencePiece, one vocabulary for source and target (§5.1); words or characters as tokens."""
__all__ = ['Tokenizer']
import io, re
from collections.abc import Iterable, Iterator, Sequence
from os import PathLike
from pathlib import Path
from typing import Any
import numpy as np
import sentencepiece as spm
from fastcore.basics import patch
from ..utils.io import _strip_invisible
from ..utils.validation import UserError

def _train_bpe(sentences: Iterable[str], vocab_size: int, byte_fallback: bool, **options: Any) -> bytes:
    ...

class Tokenizer:
    """A SentencePiece tokenizer: text to ids and back. Source and target share its
    byte pairs, §5.1, unless `source` is another one."""

    def __init__(self, model: bytes, source: 'Tokenizer|None'=None):
        self.src_tokenizer = source or self
        try:
            self.sp = spm.SentencePieceProcessor(model_proto=model)
        except RuntimeError as e:
            raise UserError('not a SentencePiece model') from e
        self.vocab_size = self.sp.get_piece_size()
        self.pad_id, self.unk_id = (self.sp.pad_id(), self.sp.unk_id())
        self.bos_id, self.eos_id = (self.sp.bos_id(), self.sp.eos_id())
        if -1 in (self.pad_id, self.unk_id, self.bos_id, self.eos_id):
            raise UserError('this SentencePiece model lacks one of the tokens pad, unk, bos, eos: train it with an id for each')

    def encode(self, sentences: Iterable[str]) -> list[list[int]]:
        ...

    def decode(self, ids: Iterable[Iterable[int]]) -> list[str]:
        ...

    def convert_ids_to_tokens(self, ids: Iterable[int]) -> list[str]:
        ...

    @classmethod
    def train(cls, sentences: Iterable[str], vocab_size: int, byte_fallback: bool=True, **options: Any) -> Tokenizer:
        ...

    def save(self, folder: str | PathLike) -> None:
        ...

    @classmethod
    def load(cls, folder: str | PathLike) -> Tokenizer:
        ...

    @classmethod
    def train_char_level(cls, sentences: Iterable[str], vocab_size: int) -> Tokenizer:
        ...

    @classmethod
    def train_word_level(cls, sentences: Iterable[str], vocab_size: int) -> Tokenizer:
        ...

def _model_paths(folder: str | PathLike) -> tuple[Path, Path]:
    ...

def _tokenizer_files(folder: str | PathLike) -> list[Path]:
    ...

def _sample_training_text(split: Any, max_pairs: int=250000, sides: Sequence[str]=('source', 'target')) -> Iterator[str]:
    ...

class _VocabSizeError(UserError):
    """A vocabulary size that does not suit the text."""

    def __init__(self, size: int, reason: str, name: str='vocab_size'):
        super().__init__(f'{name}={size} {reason}')
        self.size, self.reason = (size, reason)

def _parse_trainer_error(message: str, vocab_size: int) -> ValueError:
    ...

def _unused_tokens(sentences: list[str], n: int) -> list[str]:
    ...
