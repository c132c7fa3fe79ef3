"""The scan of dependencies fails for a flaw that a release mends, and for nothing else."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

FILE = Path(__file__).resolve().parents[2] / ".ci" / "audit.py"


@pytest.fixture
def audit():
    spec = importlib.util.spec_from_file_location("audit_of_dependencies", FILE)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def package(name, *flaws, **more):
    vulns = [{"id": flaw, "fix_versions": ["9.1"]} for flaw in flaws]
    return {"name": name, "version": "9.0", "vulns": vulns, **more}


def test_audit_fails_on_fixed_vulnerability(audit):
    lines, code = audit.judged({"dependencies": [package("a"), package("b", "CVE-1", "CVE-2")]})
    assert code == 1
    assert lines == [
        "b 9.0: CVE-1, mended in 9.1",
        "b 9.0: CVE-2, mended in 9.1",
        "2 of 2 packages were looked up, 2 known flaws",
    ]


def test_audit_reports_unfixed_vulnerability_without_failing(audit):
    waiting = package("b", "CVE-1")
    waiting["vulns"][0]["fix_versions"] = []
    lines, code = audit.judged({"dependencies": [waiting]})
    assert (lines[0], code) == ("b 9.0: CVE-1, mended in no release", 0)


def test_audit_reports_skipped_packages_without_failing(audit):
    unknown = {"name": "c", "skip_reason": "not found"}
    assert audit.judged({"dependencies": [package("a"), unknown]}) == (
        ["1 of 2 packages were looked up, 0 known flaws"],
        0,
    )
    assert audit.judged(None)[1] == 0


@pytest.mark.parametrize("program", [["false"], ["no-such-program-of-this-name"]])
def test_audit_returns_none_if_service_is_unreachable(audit, program, tmp_path):
    audit.AUDIT = program
    assert audit.asked(tmp_path / "requirements.txt", tmp_path / "report.json") is None


def test_audit_returns_none_after_timeout(audit, tmp_path):
    audit.AUDIT, audit.MAX_SECONDS = ["sh", "-c", "sleep 60"], 0.1
    assert audit.asked(tmp_path / "requirements.txt", tmp_path / "report.json") is None


def test_ci_scans_dependencies():
    assert "poe audit" in (FILE.parent / "run").read_text()
