"""What every proof prints: its arguments, counts, anomalies, and the commit that it ran on."""

from __future__ import annotations

import argparse
import subprocess
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

_SHOWN = 20


def arguments(text: str | None, *, runs: int | None = None) -> argparse.ArgumentParser:
    """A parser with the arguments that proofs share."""
    parser = argparse.ArgumentParser(
        description=text, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--runs", type=int, default=runs, help="how many; without it, all")
    return parser


@dataclass
class Report:
    """Counts of a proof, and what must not be.

    Attributes:
        title: What is proven.
        seed: Of all that is left to chance.
        counts: What happened, how often.
        anomalies: A text for each.
    """

    title: str
    seed: int
    counts: Counter[str] = field(default_factory=Counter)
    anomalies: list[str] = field(default_factory=list)
    started: float = field(default_factory=time.monotonic)

    def show(self) -> int:
        """Print it; the exit code of the proof."""
        for text in self.anomalies[:_SHOWN]:
            print(f"ANOMALY {text}\n")
        width = max(map(len, self.counts), default=0)
        for name, count in self.counts.items():
            print(f"{name:{width}}  {count}")
        print(
            f"{self.title}: {len(self.anomalies)} anomalies, seed {self.seed}, "
            f"{time.monotonic() - self.started:.0f} s, commit {commit()}"
        )
        return int(bool(self.anomalies))


def commit() -> str:
    """The commit of the repository, and whether files differ from it."""
    folder = Path(__file__).parent
    names = subprocess.run(
        ["git", "describe", "--always", "--dirty", "--abbrev=12", "--exclude=*"],
        cwd=folder, capture_output=True, text=True, check=False,
    )  # fmt: skip
    return names.stdout.strip() or "unknown"
