"""What ``plugin install`` adds to PySpark's archives, and takes away again."""

from __future__ import annotations

import os
import subprocess
import sys
import zipfile
from pathlib import Path

import pyspark
import pytest

from pyspark_lance.spark import compiled_archives
from pyspark_lance.spark.compiled_archives import compile_archives, strip_archives

SOURCES = {
    "pyspark/__init__.py": "value = 1\n",
    "pyspark/fails.py": "def fail():\n    raise ValueError('as asked')\n",
    "pyspark/other_version.py": "this is no Python\n",
    "pyspark/tests/test_x.py": "value = 2\n",
    "pyspark/errors.json": "{}",
}


@pytest.fixture
def installation(tmp_path):
    """A folder like that of an installation, with one archive of some modules."""
    archive = tmp_path / "python" / "lib" / "pyspark.zip"
    archive.parent.mkdir(parents=True)
    with zipfile.ZipFile(archive, "w") as target:
        for name, text in SOURCES.items():
            target.writestr(name, text)
    return archive


def root_of(archive: Path) -> Path:
    return archive.parents[2]


def run(archive: Path, code: str, **settings: str) -> str:
    environment = {**os.environ, "PYTHONPATH": str(archive), **settings}
    return subprocess.run(
        [sys.executable, "-c", code], env=environment, check=True, capture_output=True, text=True
    ).stdout.strip()


def contents(archive: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(archive) as target:
        return {name: target.read(name) for name in target.namelist()}


def test_python_imports_compiled_modules_with_sources(installation):
    assert compile_archives(root_of(installation)) == [installation]
    assert run(installation, "import pyspark; print(pyspark.__file__)").endswith("__init__.pyc")
    code = (
        "import traceback, pyspark.fails\n"
        "try: pyspark.fails.fail()\n"
        "except ValueError: print(traceback.format_exc().replace(chr(10), ' '))"
    )
    shown = run(installation, code)
    assert f'"{installation}/pyspark/fails.py", line 2' in shown
    assert "raise ValueError('as asked')" in shown


def test_modules_of_other_python_version_use_sources(installation):
    compile_archives(root_of(installation))
    wrong = installation.with_name("pyspark-wrong.zip")
    with zipfile.ZipFile(wrong, "w") as target:
        for name, data in contents(installation).items():
            target.writestr(name, b"\0\0\0\0" + data[4:] if name.endswith(".pyc") else data)
    assert run(wrong, "import pyspark; print(pyspark.value)") == "1"


def test_only_compilable_worker_modules_are_added(installation):
    compile_archives(root_of(installation))
    added = set(contents(installation)) - set(SOURCES)
    assert added == {"pyspark/__init__.pyc", "pyspark/fails.pyc"}


def test_compilation_is_idempotent_and_reversible(installation):
    before = contents(installation)
    compile_archives(root_of(installation))
    once = contents(installation)
    compile_archives(root_of(installation))
    assert contents(installation) == once
    assert strip_archives(root_of(installation))
    assert contents(installation) == before
    assert not strip_archives(root_of(installation))
    assert [one.name for one in installation.parent.iterdir()] == ["pyspark.zip"]


def test_hard_links_to_archive_keep_content(installation):
    linked = installation.with_name("of-another-installation")
    os.link(installation, linked)
    before = linked.read_bytes()
    compile_archives(root_of(installation))
    assert linked.read_bytes() == before
    assert installation.stat().st_mode == linked.stat().st_mode


def test_installation_without_archives_is_unchanged(tmp_path):
    assert compile_archives(tmp_path) == []
    assert not strip_archives(tmp_path)


def test_running_process_continues_importing_from_archive(installation):
    module = Path(compiled_archives.__file__)  # by its path: pyspark is another one there
    code = (
        "import runpy, pyspark\n"
        "from pathlib import Path\n"
        f"module = runpy.run_path({str(module)!r})\n"
        f"module['compile_archives'](Path({str(root_of(installation))!r}))\n"
        "import pyspark.fails\n"
        "print(pyspark.fails.__name__)"
    )
    assert run(installation, code) == "pyspark.fails"


@pytest.mark.slow
def test_installed_archives_compile_and_import(tmp_path):
    lib = tmp_path / "python" / "lib"
    lib.mkdir(parents=True)
    installed = sorted((Path(pyspark.__file__).parent / "python" / "lib").glob("py*.zip"))
    for archive in installed:
        (lib / archive.name).write_bytes(archive.read_bytes())
    found = compile_archives(tmp_path)
    assert [one.name for one in found] == [one.name for one in installed]
    code = (
        "import sys, pyspark.daemon, pyspark.worker\n"
        "loaded = [m for n, m in sys.modules.items() if n.split('.')[0] in ('pyspark', 'py4j')]\n"
        "print({m.__spec__.origin[-4:] for m in loaded if m.__spec__ and m.__spec__.has_location})"
    )
    assert run(lib, code, PYTHONPATH=os.pathsep.join(map(str, found))) == "{'.pyc'}"
