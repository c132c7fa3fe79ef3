"""Compiles the .proto files of this folder into src/pyspark_lance/proto.

    python protos/generate.py            write the generated code
    python protos/generate.py --check    fail when the committed code differs

The compiler is pinned to a release whose output names no protobuf version, so that the
generated modules load under every protobuf runtime from 4.25 on.  The files are compiled under
the path pyspark_lance/proto/, and every package name starts with pyspark_lance, so that
no other package in the process can register the same names.
"""

from __future__ import annotations

import argparse
import shutil
import subprocess
import sys
import tempfile
import venv
from pathlib import Path

COMPILER = "grpcio-tools==1.62.3"
# setuptools up to 80: the pinned compiler still imports pkg_resources.
COMPILER_NEEDS = ("setuptools<81",)
HERE = Path(__file__).resolve().parent
TARGET = HERE.parent / "src" / "pyspark_lance" / "proto"
IMPORT_PATH = Path("pyspark_lance") / "proto"


def compiler_python(folder: Path) -> Path:
    """A Python that has the pinned compiler, in an environment of its own."""
    venv.create(folder, with_pip=True)
    python = folder / "bin" / "python"
    subprocess.run(
        [python, "-m", "pip", "install", "--quiet", COMPILER, *COMPILER_NEEDS], check=True
    )
    return python


def compile_protos(out: Path) -> None:
    """Writes *_pb2.py and *_pb2.pyi for every .proto file into ``out``."""
    with tempfile.TemporaryDirectory() as scratch:
        python = compiler_python(Path(scratch) / "venv")
        source, result = Path(scratch) / "source", Path(scratch) / "result"
        (source / IMPORT_PATH).mkdir(parents=True)
        result.mkdir()
        for proto in HERE.glob("*.proto"):
            shutil.copy(proto, source / IMPORT_PATH / proto.name)
        names = sorted(str(p.relative_to(source)) for p in (source / IMPORT_PATH).iterdir())
        subprocess.run(
            [
                python,
                "-W",
                "ignore",
                "-m",
                "grpc_tools.protoc",
                f"-I{source}",
                f"--python_out={result}",
                f"--pyi_out={result}",
                *names,
            ],
            check=True,
        )
        for generated in (result / IMPORT_PATH).iterdir():
            shutil.copy(generated, out / generated.name)


def main() -> int:
    """Returns the exit code."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--check", action="store_true", help="compare only")
    if not parser.parse_args().check:
        TARGET.mkdir(parents=True, exist_ok=True)
        compile_protos(TARGET)
        return 0
    with tempfile.TemporaryDirectory() as fresh:
        compile_protos(Path(fresh))
        stale = [
            path.name
            for path in sorted(Path(fresh).iterdir())
            if not (TARGET / path.name).exists()
            or (TARGET / path.name).read_bytes() != path.read_bytes()
        ]
    for name in stale:
        sys.stderr.write(f"{name} differs from its .proto file; run python protos/generate.py\n")
    return 1 if stale else 0


if __name__ == "__main__":
    sys.exit(main())
