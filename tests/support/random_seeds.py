"""Parts of many cases: every run has a few of them, always the same, and ``poe nightly`` all."""

from __future__ import annotations

import itertools
from collections.abc import Collection, Iterable, Sequence

import pytest
from _pytest.mark import ParameterSet


def seeds(count: int, *, in_ci: int, first: int = 0) -> list[int | ParameterSet]:
    """``count`` seeds from ``first`` on for ``parametrize``; those after ``in_ci`` are slow."""
    others = range(first + in_ci, first + count)
    return [
        *range(first, first + in_ci),
        *(pytest.param(seed, marks=pytest.mark.slow) for seed in others),
    ]


def cases(every: Iterable[object], *, in_ci: Collection[object]) -> list[ParameterSet]:
    """``every`` case for ``parametrize``; those that are not in ``in_ci`` are slow."""
    return [pytest.param(one, marks=() if one in in_ci else pytest.mark.slow) for one in every]


def grid(*axes: Sequence[object], step: int = 1) -> list[ParameterSet]:
    """Every combination of some values for ``parametrize``; all are slow but a diagonal.

    The diagonal has each value of each axis, in as many cases as the longest axis has values; with
    a ``step``, every case at such a distance from the first.
    """
    diagonal = {
        tuple(axis[place % len(axis)] for axis in axes)
        for place in range(0, max(map(len, axes)), step)
    }
    return [
        pytest.param(*one, marks=() if one in diagonal else pytest.mark.slow)
        for one in itertools.product(*axes)
    ]
