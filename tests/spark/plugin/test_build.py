"""The build of the jar, and the command that puts it among Spark's own."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import zipfile
from pathlib import Path

import pytest
from spark_releases import needs

from pyspark_lance.errors import InvalidInputError
from pyspark_lance.plugin import JAR_NAME, install, main, plugin_jar, uninstall


def test_jar_registers_source(jar):
    with zipfile.ZipFile(jar) as archive:
        names = archive.namelist()
        service = archive.read("META-INF/services/org.apache.spark.sql.sources.DataSourceRegister")
    assert service == b"org.pysparklance.LanceSource\n"
    assert "org/pysparklance/LanceSource.class" in names


@pytest.mark.slow
def test_check_accepts_matching_jar(plugin_build):
    """As ``poe plugin-check`` in every run."""
    assert plugin_build.check()


def test_check_detects_changed_sources(plugin_build, tmp_path, monkeypatch):
    sources = tmp_path / "org"
    shutil.copytree(plugin_build.SOURCES, sources)
    monkeypatch.setattr(plugin_build, "SOURCES", sources)
    assert plugin_build.is_up_to_date()
    with (sources / "pysparklance" / "LanceSource.java").open("a") as source:
        source.write("// changed\n")
    assert not plugin_build.check()
    assert plugin_build.main(["--check"]) == 1
    assert not plugin_build.check(tmp_path / "missing.jar")


def copied_sources(plugin_build, folder, monkeypatch):
    """A copy of the Java sources, which the build takes for its own."""
    sources = folder / "org"
    shutil.copytree(plugin_build.SOURCES, sources)
    monkeypatch.setattr(plugin_build, "SOURCES", sources)
    return sources / "pysparklance"


def test_sources_have_no_unused_imports(plugin_build, tmp_path, monkeypatch, capsys):
    assert plugin_build.unused_imports() == {}
    source = copied_sources(plugin_build, tmp_path, monkeypatch) / "LanceSource.java"
    unused = "import java.util.Deque;\nimport static java.lang.Math.floorMod;\n"
    source.write_text(source.read_text().replace("import ", f"{unused}import ", 1))
    expected = {"pysparklance/LanceSource.java": ["Deque", "floorMod"]}
    assert plugin_build.unused_imports() == expected
    assert plugin_build.main(["--check"]) == 1
    assert "imports that nothing uses" in capsys.readouterr().err


@needs("classes that the plugin compiles against")
def test_compiler_warning_fails_build(plugin_build, tmp_path, monkeypatch):
    try:
        plugin_build.find_javac()
    except plugin_build.CannotBuildError as error:
        pytest.skip(str(error))
    monkeypatch.setattr(plugin_build, "SOURCES", tmp_path)
    (tmp_path / "Raw.java").write_text(
        "package org.pysparklance;\nfinal class Raw {\n  java.util.List names;\n}\n"
    )
    with pytest.raises(plugin_build.CannotBuildError, match="raw type"):
        plugin_build.build(tmp_path / JAR_NAME)


@pytest.mark.slow
@needs("classes that the plugin compiles against")
def test_jar_with_modified_classes_is_detected(plugin_build, tmp_path):
    try:
        if plugin_build.jdk_release() != plugin_build.JDK:
            pytest.skip("another JDK may compile to other classes")
    except plugin_build.CannotBuildError as error:
        pytest.skip(str(error))
    changed = tmp_path / JAR_NAME
    shutil.copyfile(plugin_build.TARGET, changed)
    with zipfile.ZipFile(changed, "a") as archive:
        archive.writestr("org/pysparklance/More.class", b"")
    assert plugin_build.is_up_to_date(changed)
    assert not plugin_build.check(changed)


def test_build_reports_missing_pyspark_or_compiler(plugin_build, tmp_path, monkeypatch):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.delenv("JAVA_HOME", raising=False)
    with pytest.raises(plugin_build.CannotBuildError, match="there is no javac"):
        plugin_build.build(tmp_path / JAR_NAME)


@needs("classes that the plugin compiles against")
def test_broken_sources_keep_old_jar(plugin_build, tmp_path, monkeypatch):
    if not plugin_build.shutil.which("javac"):
        pytest.skip("there is no JDK")
    (tmp_path / "Broken.java").write_text("class Broken {")
    target = tmp_path / JAR_NAME
    target.write_bytes(b"old")
    monkeypatch.setattr(plugin_build, "SOURCES", tmp_path)
    with pytest.raises(plugin_build.CannotBuildError, match="javac failed"):
        plugin_build.build(target)
    assert target.read_bytes() == b"old"


def test_install_and_uninstall_change_one_file(jar, tmp_path, capsys):
    (tmp_path / "jars").mkdir()
    with pytest.raises(InvalidInputError, match="no folder jars with the jars of Spark"):
        install(tmp_path)
    (tmp_path / "jars" / "spark-sql_2.13-4.3.0.jar").touch()
    assert install(tmp_path) == tmp_path / "jars" / JAR_NAME
    assert (tmp_path / "jars" / JAR_NAME).read_bytes() == Path(plugin_jar()).read_bytes()
    assert uninstall(tmp_path)
    assert not uninstall(tmp_path)
    with pytest.raises(InvalidInputError, match="no folder jars"):
        install(tmp_path / "nothing")
    assert main(["install", "--pyspark", str(tmp_path)]) == 0
    assert main(["uninstall", "--pyspark", str(tmp_path)]) == 0
    assert main(["path"]) == 0
    assert capsys.readouterr().out.splitlines()[-1] == plugin_jar()


def test_installation_keeps_hard_linked_files(tmp_path):
    (tmp_path / "jars").mkdir()
    (tmp_path / "jars" / "spark-sql_2.13-4.3.0.jar").touch()
    (tmp_path / "cached.jar").write_bytes(b"of another installation")
    os.link(tmp_path / "cached.jar", tmp_path / "jars" / JAR_NAME)
    install(tmp_path)
    assert (tmp_path / "jars" / JAR_NAME).read_bytes() == Path(plugin_jar()).read_bytes()
    assert (tmp_path / "cached.jar").read_bytes() == b"of another installation"
    assert len(list((tmp_path / "jars").iterdir())) == 2


def test_package_import_does_not_import_plugin():
    code = "import sys, pyspark_lance; print('pyspark_lance.plugin' in sys.modules)"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == "False"
