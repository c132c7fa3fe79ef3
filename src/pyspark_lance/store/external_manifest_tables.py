"""External manifest stores: DynamoDB in the layout of all Lance clients, and SQLite.

The DynamoDB table has the partition key ``base_uri`` (S) and the sort key ``version`` (N).

An SQLite file serves shared folders without atomic creation of files. It must be where SQLite's
locks work: on a local disk, or on a network file system with working POSIX locks.

Source: docs/format/table-format.md, section 8.5.
"""

from __future__ import annotations

import contextlib
import os
import sqlite3
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any, Protocol, TypeVar

from pyspark_lance.errors import LanceError, StorageError
from pyspark_lance.store.s3_requests import error_codes
from pyspark_lance.store.storage_options import StorageOptions, named_options, parse_storage_options


@dataclass(frozen=True, slots=True)
class ManifestEntry:
    """Location of the manifest of a version."""

    version: int
    path: str  # Path of the manifest, relative to the root of the table.
    size: int  # Its length in bytes; 0 if unknown.


class ExternalManifestTable(Protocol):
    """Versions of one table or branch.  Reads are never stale."""

    name: str  # Name for messages; contains no secret.

    def insert(self, entry: ManifestEntry) -> bool:
        """Add a version unless it exists, atomically for all writers.

        Returns whether the version exists with this path, which no other writer uses.
        """

    def replace_path(self, entry: ManifestEntry) -> None:
        """Set the path of a version; do nothing if it does not exist."""

    def latest(self) -> ManifestEntry | None:
        """Return the highest version; None if there is none."""

    def get(self, version: int) -> ManifestEntry | None:
        """Return a version; None if it does not exist."""

    def forget(self, versions: Iterable[int]) -> None:
        """Remove versions; ignore missing ones."""


ENDPOINT = "dynamodb_endpoint"
_COMMITTER = "pyspark_lance"
_ABSENT = "attribute_not_exists(base_uri) AND attribute_not_exists(version)"
_PRESENT = "attribute_exists(base_uri) AND attribute_exists(version)"
_KEYS_PER_DELETE = 25
# All requests have time limits: the SDK repeats them, and the condition detects repeated ones.
_TIMEOUTS = {"connect_timeout": 10, "read_timeout": 30}

_T = TypeVar("_T")
_Item = Mapping[str, Mapping[str, str]]


class DynamoDBManifests:
    """Versions of one table.

    ``table_name``: the DynamoDB table, of any number of Lance tables. ``options``: storage options;
    credentials and region are those of S3, ``dynamodb_endpoint`` is another address than AWS's own.
    ``bucket``: the bucket of the Lance table, which some of Hadoop's settings are for.
    """

    def __init__(
        self, table_name: str, base_uri: str, options: Mapping[str, str], *, bucket: str = ""
    ) -> None:
        self.name = f"dynamodb:{table_name}"
        self._table = table_name
        self._base = base_uri
        self._options = parse_storage_options("s3", options, bucket=bucket)
        self._endpoint = _endpoint(options)
        self._client: tuple[int, Any] | None = None

    def __repr__(self) -> str:
        return f"DynamoDBManifests({self.name!r}, {self._base!r})"

    def insert(self, entry: ManifestEntry) -> bool:
        """Add the version unless it exists."""
        if self._put(entry, _ABSENT):
            return True
        # The SDK may repeat a request whose response was lost, and then find our own row.
        there = self.get(entry.version)
        return there is not None and there.path == entry.path

    def replace_path(self, entry: ManifestEntry) -> None:
        """Replace the path of the version."""
        self._put(entry, _PRESENT)

    def latest(self) -> ManifestEntry | None:
        """Return the highest version."""
        answer = self._run(
            lambda client: client.query(
                TableName=self._table,
                ConsistentRead=True,
                KeyConditionExpression="base_uri = :base",
                ExpressionAttributeValues={":base": {"S": self._base}},
                ScanIndexForward=False,
                Limit=1,
            )
        )
        return self._entry(answer["Items"][0]) if answer["Items"] else None

    def get(self, version: int) -> ManifestEntry | None:
        """A version."""
        answer = self._run(
            lambda client: client.get_item(
                TableName=self._table, Key=self._key(version), ConsistentRead=True
            )
        )
        return self._entry(answer["Item"]) if "Item" in answer else None

    def forget(self, versions: Iterable[int]) -> None:
        """Remove versions, 25 per request."""
        wanted = [{"DeleteRequest": {"Key": self._key(version)}} for version in versions]
        while wanted:
            some, wanted = wanted[:_KEYS_PER_DELETE], wanted[_KEYS_PER_DELETE:]
            wanted += self._run(partial(self._delete, some))

    def _delete(self, requests: Sequence[Mapping[str, Any]], client: Any) -> list[Any]:
        """Send delete requests and return those that have to be repeated."""
        answer = client.batch_write_item(RequestItems={self._table: requests})
        left: list[Any] = answer.get("UnprocessedItems", {}).get(self._table, [])
        return left

    def _put(self, entry: ManifestEntry, condition: str) -> bool:
        """Return whether the condition was true and the row was written."""
        item = {
            **self._key(entry.version),
            "path": {"S": f"{self._base}/{entry.path}"},
            "committer": {"S": _COMMITTER},
            "size": {"N": str(entry.size)},
        }

        def put(client: Any) -> bool:
            try:
                client.put_item(TableName=self._table, Item=item, ConditionExpression=condition)
            except Exception as error:
                if "ConditionalCheckFailedException" in error_codes(error):
                    return False
                raise
            return True

        return self._run(put)

    def _key(self, version: int) -> dict[str, dict[str, str]]:
        return {"base_uri": {"S": self._base}, "version": {"N": str(version)}}

    def _entry(self, item: _Item) -> ManifestEntry:
        path = item["path"]["S"].lstrip("/").removeprefix(f"{self._base}/")
        size = item.get("size", {}).get("N", "0")
        return ManifestEntry(int(item["version"]["N"]), path, int(size))

    def _run(self, request: Callable[[Any], _T]) -> _T:
        try:
            return request(self._client_of_process())
        except LanceError:
            raise
        except Exception as error:  # noqa: BLE001 - the SDK raises anything; none may leak secrets
            cause = error
        raise StorageError(
            f"the external manifest store failed: {self._options.scrub(str(cause))}",
            where=self.name,
            hint=_hint(cause),
        ) from self._options.safe_cause(cause)

    def _client_of_process(self) -> Any:
        """Return the client of this process: a forked process must not use its parent's sockets."""
        if self._client is None or self._client[0] != os.getpid():
            self._client = (os.getpid(), _client(self._options, self._endpoint))
        return self._client[1]


def _endpoint(options: Mapping[str, str]) -> str | None:
    return dict(named_options(options)).get(ENDPOINT) or os.environ.get("DYNAMODB_ENDPOINT") or None


def _client(options: StorageOptions, endpoint: str | None) -> Any:
    # botocore is a dependency of s3fs; it is imported only for tables in an external store.
    import botocore.config  # noqa: PLC0415
    import botocore.session  # noqa: PLC0415

    given = options.arguments
    session = botocore.session.Session(profile=given.get("profile"))
    settings = {**_TIMEOUTS, "retries": {"mode": "standard", "max_attempts": 5}}
    requested = given.get("config_kwargs", {})
    settings |= {name: requested[name] for name in (*_TIMEOUTS, "proxies") if name in requested}
    make = partial(
        session.create_client,
        "dynamodb",
        region_name=given.get("client_kwargs", {}).get("region_name"),
        endpoint_url=endpoint,
        config=botocore.config.Config(**settings),
    )
    if "key" not in given:
        return make()
    return make(
        aws_access_key_id=given["key"],
        aws_secret_access_key=given.get("secret"),
        aws_session_token=given.get("token"),
    )


def _hint(error: BaseException) -> str:
    codes = error_codes(error)
    if "ResourceNotFoundException" in codes:
        return "create a DynamoDB table with the partition key base_uri (S), sort key version (N)"
    if "ValidationException" in codes:
        return "the partition key must be base_uri (S), the sort key version (N)"
    return "check the credentials, storage.aws_region and storage.dynamodb_endpoint"


_WAIT_S = 30.0
_CREATE = (
    "CREATE TABLE IF NOT EXISTS manifests (base_uri TEXT NOT NULL, version INTEGER NOT NULL, "
    "path TEXT NOT NULL, size INTEGER NOT NULL, PRIMARY KEY (base_uri, version))"
)


class SqliteManifests:
    """Versions of one table, in a file shared by any number of tables.

    ``path``: the file; created at first use.
    """

    def __init__(self, path: str, base_uri: str) -> None:
        self.name = f"sqlite:{path}"
        self._path = os.path.abspath(os.path.expanduser(path))
        self._base = base_uri

    def insert(self, entry: ManifestEntry) -> bool:
        """Add the version unless it exists."""
        with self._connection() as connection:
            row = (self._base, entry.version, entry.path, entry.size)
            done = connection.execute("INSERT OR IGNORE INTO manifests VALUES (?, ?, ?, ?)", row)
            return done.rowcount == 1

    def replace_path(self, entry: ManifestEntry) -> None:
        """Set the path of the version."""
        with self._connection() as connection:
            connection.execute(
                "UPDATE manifests SET path = ?, size = ? WHERE base_uri = ? AND version = ?",
                (entry.path, entry.size, self._base, entry.version),
            )

    def latest(self) -> ManifestEntry | None:
        """Return the highest version."""
        return self._one("ORDER BY version DESC LIMIT 1")

    def get(self, version: int) -> ManifestEntry | None:
        """A version."""
        return self._one("AND version = ?", version)

    def forget(self, versions: Iterable[int]) -> None:
        """Remove versions."""
        with self._connection() as connection:
            connection.executemany(
                "DELETE FROM manifests WHERE base_uri = ? AND version = ?",
                [(self._base, version) for version in versions],
            )

    def _one(self, which: str, *arguments: object) -> ManifestEntry | None:
        query = f"SELECT version, path, size FROM manifests WHERE base_uri = ? {which}"
        with self._connection() as connection:
            row = connection.execute(query, (self._base, *arguments)).fetchone()
        return None if row is None else ManifestEntry(*row)

    @contextlib.contextmanager
    def _connection(self) -> Iterator[sqlite3.Connection]:
        """Open a connection per call, as forked processes and threads must not share one."""
        try:
            with contextlib.closing(sqlite3.connect(self._path, timeout=_WAIT_S)) as connection:
                connection.execute(_CREATE)
                with connection:
                    yield connection
        except sqlite3.Error as error:
            raise StorageError(
                f"the external manifest store failed: {error}",
                where=self._path,
                hint="check that the file is an SQLite database in a writable folder",
            ) from error
