"""Write files by the old pylance of this environment, or read ours.

Only pylance and pyarrow are installed.  One line of JSON per case goes to standard output; a case
without one ended the process.
"""

import argparse
import json
import os
import sys
import traceback

import lance
import numpy as np
import pyarrow as pa
from lance.file import LanceFileReader, LanceFileWriter


def plain(array):
    if isinstance(array, pa.ChunkedArray):
        array = array.combine_chunks()
    if isinstance(array, pa.ChunkedArray):
        array = array.chunk(0) if array.num_chunks == 1 else pa.concat_arrays(array.chunks)
    return array.dictionary_decode() if pa.types.is_dictionary(array.type) else array


def same(found, expected, legacy):
    if len(found) != len(expected):
        return False
    left, right = plain(found), plain(expected)
    if left.type == right.type and left.equals(right):
        return True
    left, right = left.to_pylist(), right.to_pylist()
    if legacy:  # 0.1 has one value for null and for the empty string
        left, right = without_empty(left), without_empty(right)
    return str(left) == str(right)


def without_empty(value):
    if isinstance(value, list):
        return [without_empty(item) for item in value]
    if isinstance(value, dict):
        return {key: without_empty(item) for key, item in value.items()}
    return None if value in ("", b"") else value


def load(path):
    with pa.ipc.open_file(path) as file:
        return file.read_all()


def write(table, path, version):
    if version == "0.1":
        lance.write_dataset(table, path, data_storage_version="legacy", max_rows_per_group=100)
        return
    with LanceFileWriter(path, table.schema, version=version) as writer:
        for batch in table.to_batches():
            writer.write_batch(batch)


def check(table, path, version):
    """'' if every way of reading gives the rows of the table."""
    count, legacy = len(table), version == "0.1"
    rng = np.random.default_rng(count)
    start, end = sorted(rng.integers(0, count + 1, 2).tolist())
    rows = np.unique(rng.integers(0, count, 10)).tolist()
    if legacy:
        whole = lance.dataset(path).to_table()
        taken = lance.dataset(path).take(rows)
        part = whole.slice(start, end - start)
    else:
        whole = LanceFileReader(path).read_all(batch_size=1 << 20).to_table()
        part = taken = None
    if not same(whole.column(0), table.column(0), legacy):
        with pa.ipc.new_file(path + ".found", whole.schema) as writer:
            writer.write_table(whole)
        return "other values in a scan"
    if not legacy:
        if start < end:
            part = LanceFileReader(path).read_range(start, end - start, batch_size=100).to_table()
        taken = LanceFileReader(path).take_rows(rows).to_table()
    if part is not None and not same(part.column(0), table.column(0)[start:end], legacy):
        return "other values in a range"
    if not same(taken.column(0), table.column(0).take(pa.array(rows)), legacy):
        return "other values in a take"
    return ""


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("action", choices=["write", "read"])
    parser.add_argument("version")
    parser.add_argument("cases", help="folder of Arrow files")
    parser.add_argument("files", help="folder of Lance files")
    parser.add_argument("names", help="file with the names of the cases, one per line")
    arguments = parser.parse_args()
    with open(arguments.names) as file:
        names = file.read().split()
    for name in names:
        path = os.path.join(arguments.files, name)
        result = {"case": name}
        table = load(os.path.join(arguments.cases, name))
        try:
            if arguments.action == "write":
                write(table, path, arguments.version)
                result["written"] = True
            result["problem"] = check(table, path, arguments.version)
        except BaseException as error:  # a panic of pylance is one
            if isinstance(error, KeyboardInterrupt):
                raise
            lines = str(error).splitlines() or [traceback.format_exc(limit=1)]
            result["problem"] = f"{type(error).__name__}: {lines[0][:160]}"
        sys.stdout.write(json.dumps(result) + "\n")
        sys.stdout.flush()
    os._exit(0)


if __name__ == "__main__":
    main()
