"""What an installation holds, and what it asks for: no JDK, no compiler, no long search."""

from __future__ import annotations

import subprocess
import tarfile
import tomllib
import zipfile
from pathlib import Path

import pytest
from distributions import ROOT, build
from packaging.requirements import Requirement

from pyspark_lance import __version__
from pyspark_lance.plugin import JAR_NAME, plugin_jar

SOURCE = ROOT / "src"
JAR = f"pyspark_lance/jars/{JAR_NAME}"


def files_of_the_package() -> set[str]:
    command = ["git", "-C", str(SOURCE), "ls-files", "pyspark_lance"]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode:
        pytest.skip("not a clone of the repository")
    return set(done.stdout.split())


def content_of_the_wheel(wheel: Path) -> dict[str, bytes]:
    with zipfile.ZipFile(wheel) as archive:
        names = [name for name in archive.namelist() if ".dist-info/" not in name]
        return {name: archive.read(name) for name in names}


def test_wheel_without_jdk_contains_package_and_jar(tmp_path):
    wheel = build("wheel", ROOT, tmp_path)
    assert wheel.name.split("-")[1] == __version__
    content = content_of_the_wheel(wheel)
    assert set(content) >= files_of_the_package() | {"pyspark_lance/py.typed"}
    assert content[JAR] == Path(plugin_jar()).read_bytes()
    assert content[f"pyspark/jars/{JAR_NAME}"] == content[JAR]
    outside = {name for name in content if not name.startswith("pyspark_lance/")}
    assert outside == {f"pyspark/jars/{JAR_NAME}"}


def test_sdist_builds_identical_wheel_and_has_jar_sources(tmp_path):
    with tarfile.open(build("sdist", ROOT, tmp_path)) as archive:
        # Python 3.11.3 and before know no filter.
        filters = {"filter": "data"} if hasattr(tarfile, "data_filter") else {}
        archive.extractall(tmp_path, **filters)
    (tree,) = (one for one in tmp_path.iterdir() if one.is_dir())
    for name in ("LICENSE", "README.md", "protos/generate.py", "src/plugin/build.py"):
        assert (tree / name).exists(), name
    assert list(tree.glob("src/plugin/org/pysparklance/*.java"))
    (tmp_path / "direct").mkdir()
    direct = content_of_the_wheel(build("wheel", ROOT, tmp_path / "direct"))
    assert content_of_the_wheel(build("wheel", tree, tmp_path)) == direct


def test_requirements_have_lower_bounds():
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    asked = [*project["dependencies"]]
    for extra in project["optional-dependencies"].values():
        asked += extra
    unbound = [
        one for one in map(Requirement, asked)
        if one.name != project["name"]
        and not {">=", "=="} & {part.operator for part in one.specifier}
    ]  # fmt: skip
    assert unbound == []


def test_release_number_has_one_definition():
    """What is released writes its own version into manifests."""
    from pyspark_lance.commit.manifest_builder import WRITER_VERSION

    sources = [*(SOURCE / "pyspark_lance").rglob("*.py"), ROOT / "pyproject.toml"]
    naming = [path.name for path in sources if f'"{__version__}"' in path.read_text()]
    assert naming == ["version.py"]
    assert WRITER_VERSION.version == __version__
