"""Tables on a system without what only POSIX has, such as Windows: its names are removed."""

from __future__ import annotations

import subprocess
import sys

# Loaded before anything of the package.
REMOVE_POSIX = """
import errno, os, select, signal, sys

for module in ("fcntl", "resource", "pwd", "grp", "termios"):
    sys.modules[module] = None
for name in (
    "getuid", "geteuid", "getgid", "fork", "register_at_fork", "mkfifo", "sched_getaffinity",
    "preadv", "pread", "pwrite", "pwritev", "pipe2", "memfd_create", "statvfs", "sysconf", "fchmod",
    "O_DIRECTORY", "O_CLOEXEC", "O_NONBLOCK", "O_NOFOLLOW", "O_SYNC", "MFD_CLOEXEC",
):
    if hasattr(os, name):
        delattr(os, name)
for name in ("SIGHUP", "SIGUSR1", "SIGUSR2", "SIGKILL", "SIGALRM", "SIGCHLD", "alarm", "setitimer"):
    delattr(signal, name)
del select.poll

_open, _rename = os.open, os.rename

def open_file(path, *given, **named):
    if os.path.isdir(path):
        raise PermissionError(errno.EACCES, "Permission denied", path)
    return _open(path, *given, **named)

def rename(source, target):
    if os.path.exists(target):
        raise FileExistsError(errno.EEXIST, "the file exists", target)
    _rename(source, target)

os.open, os.rename = open_file, rename
"""

WORK = """
import sys
import pyspark_lance, pyspark_lance.spark.service.__main__ as service
import pyarrow as pa
from pyspark_lance.table.scan.plan_scan import ScanRequest, plan_scan
from pyspark_lance.table.version.snapshot import Snapshot, open_existing
from pyspark_lance.table.version.table import Table
from pyspark_lance.namespace.directory import drop_table
from pyspark_lance.table.verify.verify import verify
from pyspark_lance.table.write.write_plan import WriteSettings, plan_write
from pyspark_lance.table.write.write_table import commit_write, write_rows

table = Table(sys.argv[1])
for start in (0, 100):
    rows = pa.table({"id": pa.array(range(start, start + 100)), "s": ["x"] * 100})
    plan = plan_write(table, rows.schema, WriteSettings(), existing=open_existing(table))
    commit_write(plan, write_rows(plan, rows.to_batches()))
snapshot = Snapshot.open(table)
tasks = plan_scan(snapshot, ScanRequest())
found = pa.Table.from_batches([batch for task in tasks for batch in task.run()])
assert sorted(found["id"].to_pylist()) == list(range(200)), found
assert verify(table, read_data=True).isSound
print(snapshot.version)
service._limit_memory(1 << 40)
assert drop_table(table)
"""


def test_table_lifecycle_works_without_posix(tmp_path):
    done = subprocess.run(
        [sys.executable, "-c", REMOVE_POSIX + WORK, str(tmp_path / "t")],
        capture_output=True,
        text=True,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    assert done.stdout.split()[0] == "2"
    assert not (tmp_path / "t").exists()
