"""RecentlyUsed keeps what was used last, as far as there is room."""

from __future__ import annotations

from pyspark_lance.store.recently_used import RecentlyUsed


def test_recently_used_values_are_kept_within_limit():
    known = RecentlyUsed(30, len)
    for number in range(3):
        known.put(number, "x" * 10)
    assert known.get(0) is not None
    known.put(3, "x" * 10)
    assert [number for number in range(4) if known.get(number) is not None] == [0, 2, 3]
    known.put(4, "x" * 50)
    assert [number for number in range(5) if known.get(number) is not None] == []
    known.put(5, "kept")
    known.put(5, "not taken")
    assert known.get(5) == "kept"
