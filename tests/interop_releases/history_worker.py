"""Write a random table by the pylance of this environment, and print what is in it.

A line of JSON for each version goes to standard output: the rows as the release reads them.
"""

import argparse
import json
import random
import sys
from pathlib import Path

import lance
import pyarrow as pa

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "conformance"))

from pylance_engine import rows_of

SCHEMA = pa.schema([("key", pa.int64()), ("n", pa.int32()), ("s", pa.string())])


class Table:
    def __init__(self, path, seed):
        self.path, self.draw, self.next_key = path, random.Random(seed), 0

    def rows(self, keys=()):
        keys = list(keys)
        for _ in range(self.draw.randint(1, 6)):
            keys.append(self.next_key)
            self.next_key += 1
        return pa.table(
            {
                "key": keys,
                "n": [self.draw.choice([None, 1, 2, 3]) for _ in keys],
                "s": [self.draw.choice([None, "a", "é"]) for _ in keys],
            },
            schema=SCHEMA,
        )

    def write(self, mode):
        settings = {"mode": mode, "max_rows_per_file": 3}
        try:
            lance.write_dataset(self.rows(), self.path, enable_stable_row_ids=True, **settings)
        except TypeError:  # the older name
            settings["enable_move_stable_row_ids"] = True
            lance.write_dataset(self.rows(), self.path, **settings)

    def step(self):
        dataset = lance.dataset(self.path)
        some = self.draw.randint(0, self.next_key)
        match self.draw.choice(["append", "delete", "update", "merge", "compact", "restore"]):
            case "append":
                self.write("append")
            case "delete":
                dataset.delete(f"key % 5 = {some % 5}")
            case "update":
                dataset.update({"n": "n + 1"}, where=f"key % 3 = {some % 3}")
            case "merge":
                change = dataset.merge_insert("key").when_matched_update_all()
                change.when_not_matched_insert_all().execute(self.rows([some // 2]))
            case "compact":
                dataset.optimize.compact_files()
            case "restore":
                lance.dataset(self.path, version=self.draw.randint(1, dataset.version)).restore()


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("path")
    parser.add_argument("seed", type=int)
    parser.add_argument("steps", type=int)
    given = parser.parse_args()
    table = Table(given.path, given.seed)
    table.write("create")
    for _ in range(given.steps):
        table.step()
    for one in lance.dataset(given.path).versions():
        dataset = lance.dataset(given.path, version=one["version"])
        try:
            found = rows_of(dataset)
        except Exception:  # noqa: BLE001 - any error of a release that reads its own table
            found = None
        sys.stdout.write(json.dumps([one["version"], found]) + "\n")


if __name__ == "__main__":
    main()
