"""External manifest store in DynamoDB, in the layout that all Lance clients share.

The table has the partition key ``base_uri`` (S) and the sort key ``version`` (N).

Source: docs/format/table-format.md, section 8.5.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Iterable, Mapping, Sequence
from functools import partial
from typing import Any, TypeVar

from pyspark_lance.errors import LanceError, StorageError
from pyspark_lance.store.external_manifests.external_manifest_table import ManifestEntry
from pyspark_lance.store.s3_requests import error_codes
from pyspark_lance.store.storage_options import StorageOptions, named_options, parse_storage_options

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
        """Give the version another path."""
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
    asked = given.get("config_kwargs", {})
    settings |= {name: asked[name] for name in (*_TIMEOUTS, "proxies") if name in asked}
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
