"""Which column a name means, where some differ by case only."""

from __future__ import annotations

import numpy as np
import pytest

from pyspark_lance.errors import InvalidInputError
from pyspark_lance.format.column_names import match_names, same_order, sources_of, spellings


def test_exact_names_win_over_case_insensitive_match():
    names = spellings(["id", "Name", "NAME"])
    assert [names.find_name(name) for name in ("ID", "Name", "NAME", "x")] == [
        "id",
        "Name",
        "NAME",
        None,
    ]
    assert "nAME" in names
    with pytest.raises(InvalidInputError, match="'nAME' is ambiguous, it could be Name, NAME"):
        names.find_name("nAME")


def test_several_names_never_match_one_column():
    assert match_names(["NAME", "Name", "ID"], ["id", "Name"]) == {"Name": "Name", "ID": "id"}
    assert match_names(["NAME"], ["id", "Name"]) == {"NAME": "Name"}
    assert sources_of(["Name", "id"], ["ID", "x"]) == {"id": "ID"}
    with pytest.raises(InvalidInputError, match="'Name' is ambiguous, it could be NAME, name"):
        match_names(["NAME", "name"], ["Name"])
    with pytest.raises(InvalidInputError, match="'name' is ambiguous, it could be Name, NAME"):
        match_names(["name", "NAME"], ["Name", "NAME"])


def test_random_names_match_exactly_before_ignoring_case():
    rng = np.random.default_rng(7)
    pool = np.array(["a", "A", "b", "B", "ab", "aB", "Ab", "c"])
    kinds = set()
    for _ in range(500):
        given, known = (rng.permutation(pool)[: rng.integers(0, 6)].tolist() for _ in range(2))
        candidates = {g: [k for k in known if k.lower() == g.lower()] for g in given}
        exact = set(given) & set(known)
        try:
            pairs = match_names(given, known)
        except InvalidInputError:
            kinds.add("refused")
            assert any(
                g not in exact and (len(ones) > 1 or sum(candidates[o] == ones for o in given) > 1)
                for g, ones in candidates.items()
            )
            continue
        kinds.add("taken" if pairs else "nothing")
        assert all(pairs[name] == name for name in exact)
        assert all(k in candidates[g] for g, k in pairs.items())
        assert len(set(pairs.values())) == len(pairs)
        assert all(g in pairs or not ones or exact & set(ones) for g, ones in candidates.items())
    assert kinds == {"refused", "taken", "nothing"}


def test_column_order_ignores_case():
    assert same_order(["a", "B"], ["A", "b"])
    assert same_order(["a", "A"], ["a", "A"])
    assert not same_order(["a", "A"], ["A", "a"])
    assert not same_order(["a"], ["a", "A"])
    assert not same_order(["a", "A"], ["a"])
    assert not same_order(["a", "b"], ["b", "a"])
