"""The list of mutants fits the code: each has one place, and tests that are there."""

from __future__ import annotations

import ast
import importlib.util
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]


def mutants():
    spec = importlib.util.spec_from_file_location("mutants", ROOT / "tests/mutants/mutants.py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module
    spec.loader.exec_module(module)
    return module.MUTANTS


@pytest.mark.parametrize("mutant", mutants(), ids=lambda mutant: mutant.name)
def test_mutants_match_code_once_and_name_existing_tests(mutant):
    source = (ROOT / "src/pyspark_lance" / mutant.file).read_text()
    assert source.count(mutant.old) == 1
    ast.parse(source.replace(mutant.old, mutant.new))
    assert mutant.old != mutant.new
    for test in mutant.tests:
        file, _, name = test.partition("::")
        text = (ROOT / file).read_text()
        assert not name or f"def {name.split('::')[-1].split('[')[0]}(" in text, test
