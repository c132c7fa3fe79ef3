"""RecentlyUsed keeps what was used last, as far as there is room."""

from __future__ import annotations

import os
import subprocess
import sys

from pyspark_lance.store import recently_used
from pyspark_lance.store.recently_used import RecentlyUsed, memory_share


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


def test_memory_share_follows_smallest_limit(tmp_path, monkeypatch):
    group = tmp_path / "memory.max"
    monkeypatch.setattr(recently_used, "_CONTAINER_LIMITS", (str(group), str(tmp_path / "none")))
    bounds = {"least": 1000, "most": 1 << 60}
    whole = os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE")
    assert memory_share(16, **bounds) == whole // 16
    group.write_text("max\n")
    assert memory_share(16, **bounds) == whole // 16
    group.write_text("160000\n")
    assert memory_share(16, **bounds) == 10_000
    assert memory_share(16, least=20_000, most=1 << 60) == 20_000
    assert memory_share(16, least=1000, most=5000) == 5000


def test_memory_share_follows_limit_of_process():
    code = (
        "import resource; resource.setrlimit(resource.RLIMIT_AS, (4 << 30, 4 << 30)); "
        "from pyspark_lance.store.recently_used import memory_share; "
        "print(memory_share(1 << 10, least=1, most=1 << 60))"
    )
    found = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert int(found.stdout) <= 4 << 20
