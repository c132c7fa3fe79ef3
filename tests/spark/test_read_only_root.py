"""Work in a confined container: read-only root, no shared memory, no home, another user."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest
from script_process import environment

pytestmark = [pytest.mark.spark, pytest.mark.slow]

# Needs root for its mounts, which no other process sees. Python may be installed in a home that
# other users cannot enter, so its folder is mounted again below one that they can.
CONFINE = """
set -e
python="$1"; installation="$2"; folder="$3"; script="$4"
mount --make-rprivate /
case "$installation" in
  /root/*)
    mount --bind "$installation" /mnt
    mount -t tmpfs tmpfs /root
    chmod 755 /root
    mkdir -p "$installation"
    mount --bind /mnt "$installation" ;;
esac
mkdir -p "$folder"
mount -t tmpfs tmpfs "$folder"
chmod 1777 "$folder"
mount -t tmpfs -o size=4k,ro tmpfs /dev/shm
mount -o remount,ro,bind /
if touch /read-only-root 2> /dev/null; then echo "the root is writable"; exit 1; fi
cd /
export HOME=/nonexistent TMPDIR="$folder" JAVA_TOOL_OPTIONS="-Djava.io.tmpdir=$folder"
exec setpriv --reuid 65534 --regid 65534 --clear-groups "$python" -c "$script" "$folder/table"
"""

SCRIPT = """
import os, sys, tempfile
path = sys.argv[1]
assert os.getuid() == 65534 and not os.access("/dev/shm", os.W_OK), os.getuid()
tempfile.tempdir = os.environ["TMPDIR"]
from pyspark.sql import SparkSession
from pyspark_lance import LanceTable

spark = (SparkSession.builder.master("local[2]").config("spark.ui.enabled", "false")
    .config("spark.local.dir", os.environ["TMPDIR"])
    .config("spark.sql.warehouse.dir", path + "-warehouse").getOrCreate())
spark.range(50_000).selectExpr("id", "id % 7 AS k", "repeat(string(id), 9) AS s") \\
    .write.format("lance").save(path)
spark.sql(f"UPDATE lance.`{path}` SET k = 9 WHERE id < 10")
spark.sql(f"DELETE FROM lance.`{path}` WHERE id >= 49990")
table = LanceTable.forPath(spark, path)
table.createIndex("id", "btree")
table.compact()
read = spark.read.format("lance")
assert sorted(read.load(path).toArrow().column("id").to_pylist()) == list(range(49_990))
assert spark.sql(f"SELECT count(*) n FROM lance.`{path}` WHERE k = 9").first().n == 10
changes = read.option("readChangeFeed", "true").option("startingVersion", 1).load(path)
assert changes.count() == 50_000 + 20 + 10
spark.stop()
print("right", flush=True)
"""


def can_confine() -> bool:
    """Return whether this process may mount in a namespace of its own and change its user."""
    if not all(map(shutil.which, ("unshare", "setpriv", "mount"))) or os.getuid():
        return False
    tried = ["unshare", "-m", "mount", "--make-rprivate", "/"]
    return subprocess.run(tried, capture_output=True, check=False).returncode == 0


@pytest.mark.skipif(not can_confine(), reason="may not mount file systems")
def test_unprivileged_user_works_on_read_only_root(tmp_path: Path) -> None:
    arguments = [sys.executable, sys.base_prefix, "/var/tmp", SCRIPT]
    done = subprocess.run(
        ["unshare", "-m", "bash", "-c", CONFINE, "confine", *arguments],
        env=environment(), capture_output=True, text=True, timeout=500, check=False,
    )  # fmt: skip
    assert done.stdout.endswith("right\n"), done.stdout + done.stderr[-3000:]
    # A worker that cannot use shared memory takes files; none says so with a stack.
    assert "Traceback" not in done.stderr, done.stderr[-3000:]
