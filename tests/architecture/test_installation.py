"""Where installers put the plugin's jar: among those of PySpark, in any order of installation.

PySpark's part is played by a wheel of its name and layout, which installs in no time.
"""

from __future__ import annotations

import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from distributions import ROOT, build

from pyspark_lance.spark.source.plugin_state import JAR_NAME, jar_of_package

INSTALLERS = ("uv", pytest.param("pip", marks=pytest.mark.slow))
_METADATA = "Metadata-Version: 2.1\nName: pyspark\nVersion: {version}\n"
_WHEEL = "Wheel-Version: 1.0\nGenerator: tests\nRoot-Is-Purelib: true\nTag: py3-none-any\n"
_FOUND = "import pyspark; print(getattr(pyspark, '__version__', 'none'), list(pyspark.__path__))"


class Environment:
    """A virtual environment, which one installer fills from wheels alone."""

    def __init__(self, folder: Path, installer: str, *options: str) -> None:
        self.folder, self._installer = folder, installer
        self.python = folder / "bin" / "python"
        if installer == "uv":
            run("uv", "venv", "--quiet", "--python", sys.executable, *options, folder)
        else:
            run(sys.executable, "-m", "venv", *options, folder)

    def install(self, *arguments: object) -> None:
        """Install wheels, and nothing that they need."""
        options = ["--quiet", "--no-deps", "--no-index", *arguments]
        if self._installer == "uv":
            run("uv", "pip", "install", "--python", self.python, *options)
        else:
            run(self.python, "-m", "pip", "install", *options)

    def uninstall(self, name: str) -> None:
        """Uninstall one distribution."""
        if self._installer == "uv":
            run("uv", "pip", "uninstall", "--quiet", "--python", self.python, name)
        else:
            run(self.python, "-m", "pip", "uninstall", "--quiet", "--yes", name)

    @property
    def pyspark(self) -> Path:
        """The folder of PySpark."""
        (packages,) = self.folder.glob("lib/python*/site-packages")
        return packages / "pyspark"

    def has_jar(self) -> bool:
        """Whether the plugin's jar is among those of PySpark, as the package has it."""
        jar = self.pyspark / "jars" / JAR_NAME
        return jar.exists() and jar.read_bytes() == jar_of_package().read_bytes()

    def runs(self, code: str, **variables: str) -> subprocess.CompletedProcess[str]:
        """What its Python says of some code."""
        command = [self.python, "-c", code]
        return subprocess.run(command, capture_output=True, text=True, check=False, env=variables)


def run(*command: object) -> None:
    done = subprocess.run(list(map(str, command)), capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def wheel_of_pyspark(folder: Path, version: str) -> Path:
    made = folder / f"pyspark-{version}-py3-none-any.whl"
    info = f"pyspark-{version}.dist-info"
    entries = {
        "pyspark/__init__.py": f"__version__ = {version!r}\n",
        f"pyspark/jars/spark-core_2.13-{version}.jar": version,
        f"{info}/METADATA": _METADATA.format(version=version),
        f"{info}/WHEEL": _WHEEL,
    }
    listed = "".join(f"{name},,\n" for name in (*entries, f"{info}/RECORD"))
    with zipfile.ZipFile(made, "w") as archive:
        for name, text in (entries | {f"{info}/RECORD": listed}).items():
            archive.writestr(name, text)
    return made


@pytest.fixture(scope="module")
def wheels(tmp_path_factory):
    """Ours, and two releases of what PySpark is."""
    folder = tmp_path_factory.mktemp("wheels")
    return {
        "ours": build("wheel", ROOT, folder),
        "pyspark": wheel_of_pyspark(folder, "4.3.0"),
        "newer": wheel_of_pyspark(folder, "4.3.1"),
    }


@pytest.fixture
def environment(request, tmp_path):
    return Environment(tmp_path / "environment", request.param)


@pytest.mark.parametrize("environment", INSTALLERS, indirect=True)
def test_jar_follows_package_in_any_installation_order(environment, wheels):
    environment.install(wheels["ours"])
    assert environment.has_jar()
    environment.install(wheels["pyspark"])
    assert environment.has_jar()
    environment.uninstall("pyspark-lance")
    assert [one.name for one in (environment.pyspark / "jars").iterdir()] == [
        "spark-core_2.13-4.3.0.jar"
    ]
    environment.install(wheels["ours"])
    assert environment.has_jar()
    environment.install(wheels["newer"])
    assert environment.has_jar()
    assert environment.runs(_FOUND).stdout.split()[0] == "4.3.1"


@pytest.mark.parametrize("environment", INSTALLERS, indirect=True)
def test_missing_pyspark_raises_and_uninstall_removes_all_files(environment, wheels):
    environment.install(wheels["pyspark"], wheels["ours"])
    environment.uninstall("pyspark")
    assert environment.has_jar()
    # What is left passes for a package: the folder of the jar, without any module.
    assert environment.runs(_FOUND).stdout.split()[0] == "none"
    failed = environment.runs("import pyspark_lance")
    assert failed.stderr.splitlines()[-1] == (
        "ModuleNotFoundError: pyspark is not installed, and pyspark-lance needs it: "
        "pip install 'pyspark>=4.0'"
    )
    environment.uninstall("pyspark-lance")
    # pip leaves folders that became empty, uv none.
    assert not [one for one in environment.pyspark.rglob("*") if one.is_file()]


@pytest.mark.parametrize("environment", INSTALLERS, indirect=True)
def test_target_installation_has_jar_without_shadowing_pyspark(environment, wheels, tmp_path):
    environment.install(wheels["pyspark"])
    environment.install("--target", tmp_path / "target", wheels["ours"])
    assert (tmp_path / "target" / "pyspark" / "jars" / JAR_NAME).exists()
    assert not environment.has_jar()
    found = environment.runs(_FOUND, PYTHONPATH=str(tmp_path / "target")).stdout
    assert found == f"4.3.0 {[str(environment.pyspark)]}\n"


@pytest.mark.slow
def test_user_installation_puts_jar_beside_pyspark(wheels, tmp_path, monkeypatch):
    monkeypatch.setenv("PYTHONUSERBASE", str(tmp_path / "user"))
    environment = Environment(tmp_path / "environment", "pip", "--system-site-packages")
    environment.install(wheels["pyspark"])
    environment.install("--user", wheels["ours"])
    folders = {jar.parent.parent.name for jar in (tmp_path / "user").rglob(JAR_NAME)}
    assert folders == {"pyspark", "pyspark_lance"}
    assert not environment.has_jar()
    found = environment.runs(_FOUND, PYTHONUSERBASE=str(tmp_path / "user")).stdout
    assert found == f"4.3.0 {[str(environment.pyspark)]}\n"


@pytest.mark.parametrize("environment", INSTALLERS, indirect=True)
def test_editable_installation_copies_jar(environment, wheels, tmp_path):
    (tmp_path / "made").mkdir()
    editable = build("wheel:editable", ROOT, tmp_path / "made")
    environment.install(wheels["pyspark"], editable)
    assert environment.has_jar()
    environment.uninstall("pyspark-lance")
    assert not environment.has_jar()
    assert (environment.pyspark / "__init__.py").exists()
