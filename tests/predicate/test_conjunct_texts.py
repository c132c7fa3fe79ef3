"""Taking conditions over two tables apart as text."""

from __future__ import annotations

import pytest

from pyspark_lance.predicate.tokens import on_one_table, split_conjuncts


@pytest.mark.parametrize(
    ("text", "parts"),
    [
        ("t.id = s.id", ("t.id = s.id",)),
        ("a AND b and c", ("a", "b", "c")),
        ("t.a BETWEEN 1 AND 2 AND t.id = s.id", ("t.a BETWEEN 1 AND 2", "t.id = s.id")),
        ("t.a = 'x AND y' AND b", ("t.a = 'x AND y'", "b")),
        ("(a OR b) AND c", ("(a OR b)", "c")),
        ("a OR b AND c", ("a OR b AND c",)),
        ("a AND b OR c", ("a AND b OR c",)),
        ("CASE WHEN a AND b THEN c END = 1 AND d", ("CASE WHEN a AND b THEN c END = 1", "d")),
        ("NOT a AND b", ("NOT a AND b",)),
        ("t.a IS NOT NULL AND t.b NOT IN (1, 2)", ("t.a IS NOT NULL", "t.b NOT IN (1, 2)")),
        ("if(a AND b, c, d) AND e", ("if(a AND b, c, d)", "e")),
        ("t.a = 'never closed AND b", ("t.a = 'never closed AND b",)),
        ("(a AND b", ("(a AND b",)),
        ("a -- AND b\n AND c", ("a -- AND b", "c")),
        ("`a AND b` AND c", ("`a AND b`", "c")),
    ],
)
def test_split_conjuncts_splits_top_level_and(text, parts):
    assert split_conjuncts(text) == parts


@pytest.mark.parametrize(
    ("text", "alone"),
    [
        ("t.day = 3", "day = 3"),
        ("T.`day` IN (1, 2) AND t._rowid > 5", "`day` IN (1, 2) AND _rowid > 5"),
        ("upper(t.name) = 't.name'", "upper(name) = 't.name'"),
        ("t.st.day = 1", "st.day = 1"),
        ("t.t.day = 1", "t.day = 1"),
        ("t.day = day", None),
        ("day = 3", None),
        ("s.x = 1", None),
        ("1 = 1", None),
    ],
)
def test_on_one_table_removes_qualifiers_of_own_columns(text, alone):
    names = ["id", "day", "name", "st", "t", "_rowid"]
    assert on_one_table(text, "t", names) == alone
