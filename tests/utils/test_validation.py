"Messages for values, files, memory and libraries: each names the field and what to do."
import math
from dataclasses import dataclass

import pytest

from annotated_transformer.utils.validation import UserError, _check_host_memory, _dataclass_from_dict, _import_optional, _suggest_name, _validate_types, validate_fields


@dataclass(frozen=True)
class Config:
    N: int = 1
    lr: float | None = None
    norm: str = 'pre'
    fast: bool = False
    def __post_init__(self): _validate_types(self)

@pytest.mark.parametrize('fields, message', [(dict(N='2'), "N='2': must be int"), (dict(N=True), 'N=True: must be int'), (dict(N=1.), 'N=1.0: must be int'), (dict(N=None), 'N=None: must be int'),
    (dict(N=10**12), 'N=1,000,000,000,000 is more than 1,000,000,000'), (dict(lr=math.nan), 'lr=nan is not a finite number'), (dict(lr=True), 'lr=True: must be'), (dict(fast=1), 'fast=1: must be bool')])
def test_types(fields, message):
    with pytest.raises(UserError, match=message): Config(**fields)

def test_an_integer_is_a_float(): assert (Config(lr=1).lr, Config(lr=None).lr) == (1, None)

@pytest.mark.parametrize('value, limit, message', [(0, dict(ge=1), 'x=0 must be at least 1'), (1, dict(gt=1), 'above 1'), (2, dict(le=1), 'at most 1'), (1, dict(lt=1), 'below 1'),
    *[(math.nan, {name: 0}, 'x=nan must be') for name in ('ge', 'gt', 'le', 'lt')], ('a', dict(choices=('b', 'c')), "x='a' is unknown: use one of b, c")])
def test_ranges(value, limit, message):
    "Not a number is in no range."
    with pytest.raises(UserError, match=message): validate_fields(dict(x=value), 'x', **limit)

def test_no_value_passes(): validate_fields(dict(a=None, b=1), 'a b', ge=1, le=1, choices=(1,))

@pytest.mark.parametrize('values, message', [(dict(N='a'), "c.json: N='a': must be int"), (dict(M=1), "c.json: unknown field 'M' .from a newer version.*: use N, lr, norm, fast"), ([3], r'c.json: Config must be a mapping of fields, not \[3\]')])
def test_a_file_is_named(values, message):
    assert _dataclass_from_dict(Config, dict(N=3), 'c.json') == Config(3)
    with pytest.raises(UserError, match=message): _dataclass_from_dict(Config, values, 'c.json')

def test_the_closest_name():
    assert _suggest_name('warmup_step', ['max_steps', 'warmup_steps']) == "did you mean 'warmup_steps'?"
    assert _suggest_name('rotary', ['b', 'a']) == 'use one of a, b'

def test_more_than_the_memory_is_refused():
    _check_host_memory(10**6, 'a million')
    with pytest.raises(UserError, match=r'^d_ff: 1,000,000,000,000,000 bytes are needed'): _check_host_memory(10**15, 'd_ff')

def test_an_optional_library():
    import json
    assert _import_optional('json') is json
    with pytest.raises(UserError, match=r"no_such_library is not installed: pip install 'annotated_transformer\[export\]'"): _import_optional('no_such_library')
