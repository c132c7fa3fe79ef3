"""Look up known vulnerabilities of the dependencies: python .ci/audit.py.

It asks a service on the Internet.  If that cannot be reached, or knows none of the packages, it
says so and fails nothing: a build must not depend on it.  The exit code is 1 for a vulnerability
that a release fixes; those that wait for a release are only printed.
"""

from __future__ import annotations

import json
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parents[1]
MAX_SECONDS = 300
COMPILE = ["uv", "pip", "compile", "--quiet", "-o"]
AUDIT = ["uvx", "--quiet", "pip-audit", "--no-deps", "--disable-pip", "--progress-spinner", "off"]


def judged(report: dict | None) -> tuple[list[str], int]:
    """What to print, and the exit code.

    Args:
        report: What pip-audit writes as JSON; None if it came to no end.
    """
    if report is None:
        return ["no package was looked up: the service could not be asked"], 0
    packages = report["dependencies"]
    known = [package for package in packages if "skip_reason" not in package]
    flaws = [(package, flaw) for package in known for flaw in package["vulns"]]
    lines = [
        f"{package['name']} {package['version']}: {flaw['id']}, mended in "
        f"{', '.join(flaw['fix_versions']) or 'no release'}"
        for package, flaw in flaws
    ]
    summary = f"{len(known)} of {len(packages)} packages were looked up, {len(lines)} known flaws"
    return [*lines, summary], int(any(flaw["fix_versions"] for _, flaw in flaws))


def asked(requirements: Path, answer: Path) -> dict | None:
    """Return the report of pip-audit, whose exit code is 1 for a flaw and for a failure."""
    command = [*AUDIT, "-r", str(requirements), "-f", "json", "-o", str(answer)]
    try:
        subprocess.run(command, check=False, timeout=MAX_SECONDS, capture_output=True)
    except (OSError, subprocess.TimeoutExpired):
        return None
    return json.loads(answer.read_text()) if answer.exists() else None


def main() -> int:
    """Prints what is known."""
    with tempfile.TemporaryDirectory() as folder:
        requirements, answer = Path(folder, "requirements.txt"), Path(folder, "report.json")
        subprocess.run([*COMPILE, str(requirements), "pyproject.toml"], check=True, cwd=ROOT)
        lines, code = judged(asked(requirements, answer))
    print(*lines, sep="\n")
    return code


if __name__ == "__main__":
    sys.exit(main())
