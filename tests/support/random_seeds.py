"""Seeds of random cases: every run has a part of them, and ``poe nightly`` all."""

from __future__ import annotations

import pytest
from _pytest.mark import ParameterSet


def seeds(count: int, *, in_ci: int, first: int = 0) -> list[int | ParameterSet]:
    """``count`` seeds from ``first`` on for ``parametrize``; those after ``in_ci`` are slow."""
    others = range(first + in_ci, first + count)
    return [
        *range(first, first + in_ci),
        *(pytest.param(seed, marks=pytest.mark.slow) for seed in others),
    ]
