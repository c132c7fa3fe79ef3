"""Coverage-guided fuzzing with Atheris: ``python tests/fuzz/fuzz_coverage.py -max_total_time=300``.

Needs ``pip install atheris``, which is no dependency of the project.  The first byte of an input
chooses the parser, the rest is what it reads; the corpus starts with the valid inputs.  Arguments
are libFuzzer's.  A finding is written to the current folder as ``crash-*``.
"""

from __future__ import annotations

import contextlib
import random
import sys
import tempfile
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1]))
sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "support"))

import atheris

with atheris.instrument_imports(include=["pyspark_lance"]):
    from fuzz import targets
    from fuzz.corpus import Deletions

from pyspark_lance.errors import LanceError

_MAX_BYTES = 60_000
# Name of the target -> what its reader takes, from bytes.
_PARSERS: dict[str, tuple[Callable[..., None], Callable[[bytes], Any]]] = {
    "data file bytes": (targets.read_file, bytes),
    "0.1 file": (targets.read_file, bytes),
    "manifest": (targets.read_table, lambda data: (data[1:], data[0] if data else 0)),
    "transaction": (targets.read_transaction, bytes),
    "index section": (targets.read_indices, bytes),
    "row ids": (targets.read_row_ids, bytes),
    "row versions": (targets.read_versions, bytes),
    "deletion arrow": (targets.read_arrow, lambda data: Deletions(data, 40)),
    "deletion bitmap": (targets.read_bitmap, bytes),
    "tag or branch": (targets.read_reference, bytes),
    "JSONB": (targets.read_jsonb, bytes),
    "JSON text": (targets.read_json, lambda data: data.decode("utf-8", "surrogateescape")),
    "condition text": (targets.read_condition, lambda data: data.decode("utf-8", "replace")),
    "condition JSON": (targets.read_condition_json, lambda data: data.decode("utf-8", "replace")),
}
_NAMES = list(_PARSERS)


def as_bytes(sample: Any) -> bytes:
    """The bytes of a valid input, as the parsers above take them."""
    if isinstance(sample, targets.ManifestParts):
        return bytes([sample.version % 256]) + sample.data
    if isinstance(sample, str):
        return sample.encode()
    return bytes(getattr(sample, "data", sample))


def write_corpus(folder: Path) -> None:
    with tempfile.TemporaryDirectory() as scratch:
        for target in targets.make_targets(Path(scratch)):
            if target.name not in _PARSERS:
                continue
            for number, sample in enumerate(target.samples):
                data = as_bytes(sample)
                if len(data) < _MAX_BYTES:
                    choice = _NAMES.index(target.name)
                    (folder / f"{choice}-{number}").write_bytes(bytes([choice]) + data)


def read_one(data: bytes) -> None:
    if not data:
        return
    read, convert = _PARSERS[_NAMES[data[0] % len(_NAMES)]]
    with contextlib.suppress(LanceError):
        read(convert(data[1:]), random.Random(len(data)))


def main() -> None:
    warnings.simplefilter("ignore")
    with tempfile.TemporaryDirectory() as folder:
        write_corpus(Path(folder))
        options = [f"-max_len={_MAX_BYTES}", "-timeout=10", "-rss_limit_mb=3000"]
        atheris.Setup([sys.argv[0], *options, *sys.argv[1:], folder], read_one)
        atheris.Fuzz()


if __name__ == "__main__":
    main()
