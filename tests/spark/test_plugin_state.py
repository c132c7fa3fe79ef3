"""Whether the plugin is active, and whether its jar is that of the package; without a JVM."""

from __future__ import annotations

import re
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from pyspark.core.files import SparkFiles

import pyspark_lance
from pyspark_lance import DefaultSource
from pyspark_lance.errors import UnsupportedFeatureError
from pyspark_lance.spark.options import internal_keys as keys
from pyspark_lance.spark.service.methods import methods
from pyspark_lance.spark.source.plugin_state import (
    JAR_NAME,
    TESTED_RELEASES,
    VARIABLE,
    check_plugin,
    jar_of_package,
    own_digest,
)

ROOT = Path(__file__).parents[2]
JAVA = ROOT / "src/plugin/org/pysparklance/python/Plugin.java"


@pytest.fixture
def application(tmp_path, monkeypatch):
    """A worker that Spark plans with, in an application that has just started."""
    monkeypatch.setattr(SparkFiles, "_root_directory", str(tmp_path))
    monkeypatch.setattr(SparkFiles, "_is_running_on_worker", True)
    monkeypatch.setenv("SPARK_HOME", str(tmp_path / "a home"))
    monkeypatch.delenv(VARIABLE, raising=False)
    return tmp_path


def test_python_and_java_share_plugin_constants():
    java = JAVA.read_text()
    (tested,) = re.findall(r"TESTED_RELEASES = List\.of\((.+)\);", java)
    assert re.findall(r'"([\d.]+)"', tested) == list(TESTED_RELEASES)
    assert f'"{VARIABLE}"' in java
    assert '".pyspark-lance-notice"' in java


def test_jar_manifest_states_version_and_sources():
    with zipfile.ZipFile(jar_of_package()) as jar:
        manifest = jar.read("META-INF/MANIFEST.MF").decode()
    assert f"Implementation-Version: {pyspark_lance.__version__}\n" in manifest
    assert f"Sources-Digest: {own_digest()}\n" in manifest


def test_matching_or_missing_jar_passes_check(monkeypatch):
    check_plugin(f"{pyspark_lance.__version__} {own_digest()} /spark/jars/{JAR_NAME}")
    check_plugin("")


@pytest.mark.parametrize(
    ("version", "digest", "hint"),
    [
        ("0.0.9", "e" * 40, "pip install --force-reinstall"),
        (pyspark_lance.__version__, "e" * 40, "plugin install --pyspark"),
        ("10.0.0", "e" * 40, f"{sys.executable} -m pip install pyspark-lance==10.0.0"),
        ("unknown", "unknown", "pip install --force-reinstall"),
    ],
)
def test_jar_of_other_version_error_suggests_installation(version, digest, hint):
    session = {"plugin": f"{version} {digest} /spark/jars/a b.jar"}
    with pytest.raises(UnsupportedFeatureError) as failed:
        methods()["find"]({"session": session, "options": {"path": "/nowhere"}})
    text = str(failed.value)
    assert f"is of version {version} ({digest[:7]})" in text
    assert f"of version {pyspark_lance.__version__} ({own_digest()[:7]})" in text
    assert "at: /spark/jars/a b.jar" in text
    assert hint in text


def test_first_use_suggests_plugin_once(application, capfd):
    for _ in range(3):
        DefaultSource({"path": "/nowhere"})
    printed = capfd.readouterr().err
    assert printed.count("\n") == 1
    assert f"plugin install --pyspark '{application}/a home'" in printed
    assert f"({VARIABLE}=off hides this line)" in printed


def test_session_started_before_jar_suggests_restart(application, capfd):
    (application / "a home" / "jars").mkdir(parents=True)
    (application / "a home" / "jars" / JAR_NAME).touch()
    DefaultSource({"path": "/nowhere"})
    assert "start it again" in capfd.readouterr().err


def test_untested_spark_release_is_reported(application, capfd, monkeypatch):
    monkeypatch.setattr("pyspark.__version__", "4.10.0")
    DefaultSource({"path": "/nowhere"})
    assert "not tested with Spark 4.10.0" in capfd.readouterr().err


def test_notice_is_omitted_for_plugin_or_when_disabled(application, capfd, monkeypatch):
    DefaultSource({"path": "/nowhere", keys.PLUGIN: "any"})
    monkeypatch.setenv(VARIABLE, "off")
    DefaultSource({"path": "/nowhere"})
    monkeypatch.setattr(SparkFiles, "_is_running_on_worker", False)
    monkeypatch.delenv(VARIABLE)
    DefaultSource({"path": "/nowhere"})  # in the driver, which plans nothing
    assert capfd.readouterr().err == ""


def test_zipped_package_has_no_jar(tmp_path):
    with zipfile.ZipFile(tmp_path / "package.zip", "w") as archive:
        for one in (ROOT / "src" / "pyspark_lance").rglob("*"):
            if one.suffix in (".py", ".jar"):
                archive.write(one, one.relative_to(ROOT / "src"))
    code = (
        f"import sys; sys.path.insert(0, {str(tmp_path / 'package.zip')!r})\n"
        "import pyspark_lance; print(pyspark_lance.__file__)\n"
        "from pyspark_lance.spark.source.plugin_state import check_plugin, own_digest\n"
        "print(repr(own_digest())); check_plugin(pyspark_lance.__version__ + ' any /jar')\n"
        "pyspark_lance.plugin_jar()"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=False)
    assert done.stdout.splitlines() == [f"{tmp_path}/package.zip/pyspark_lance/__init__.py", "''"]
    assert "a package in a zip has no files" in done.stderr.splitlines()[-1]
