"""One rule of decision for the ledger of claims and the speedrun: t intervals, Holm's correction, equivalence within a margin, power and verdicts."""
__all__ = ['Comparison', 'decide']
import math
from collections.abc import Sequence
from dataclasses import dataclass
import numpy as np
from fastcore.basics import patch
from scipy import stats
from ..utils.validation import UserError, validate_fields

@dataclass(frozen=True)
class Comparison:
    """A claim about the scores of two systems, a and b, written before the runs.
    Raises ValueError on a field that is out of range, a score that is not finite, and
    paired scores that are unequal in number."""
    claim: str
    margin: float
    expected: str = 'greater'
    paired: bool = True
    min_seeds: int = 5
    a: Sequence[float] = ()
    b: Sequence[float] = ()

    def __post_init__(self) -> None:
        ...

    @property
    def n_seeds(self) -> int:
        ...

    def estimate(self) -> tuple[float, float, float]:
        ...

    def interval(self, confidence_level: float=0.95) -> tuple[float, float]:
        ...

    def verdict(self, alpha: float=0.05) -> str:
        ...

    def p_value(self) -> float:
        ...

    def _power_at(self, difference: float, error: float, df: float, alpha: float) -> float:
        ...

    def power(self, alpha: float=0.05) -> float:
        ...

    def required_seeds(self, sd: float, n_comparisons: int=1, power: float=0.8, difference: float | None=None, alpha: float=0.05) -> int:
        ...

def _holm(p_values: Sequence[float], alpha: float=0.05) -> list[tuple[float, int]]:
    ...

@dataclass(frozen=True)
class _Decision:
    """A comparison, decided within its family. As text: one line of a report."""
    comparison: Comparison
    confidence_level: float
    interval: tuple[float, float]
    p: float
    power: float
    verdict: str

    def __str__(self) -> str:
        ...

def decide(comparisons: Sequence[Comparison], alpha: float=0.05) -> list[_Decision]:
    ...

def _combine(verdicts: Sequence[str]) -> str:
    ...
