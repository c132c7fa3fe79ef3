"""Requests to S3 that fsspec's interface has no words for, or needs two of.

Coroutines over the client of an ``s3fs.S3FileSystem``; the caller runs them on the file system's
event loop and translates their errors.
"""

from __future__ import annotations

import os
from collections.abc import Mapping, Sequence
from typing import Any, Final

# A server that takes no connection, or sends nothing for so long, is asked again.
CONNECT_TIMEOUT_S: Final = 5.0
READ_TIMEOUT_S: Final = 15.0
# By botocore, after ever longer times with jitter, and as long as most requests of the client work.
_RETRIES: Final = 4
ROUNDS_OF_RETRIES: Final = 3
"""Of s3fs: after time-outs and cut connections it begins anew with botocore's retries."""
# Bodies break off now and then, after the client's own retries are over.
_READ_ATTEMPTS = 3
MAX_KEYS_PER_DELETE = 1000


def client_config(given: Mapping[str, Any], connections: int) -> dict[str, Any]:
    """Arguments of botocore's ``Config``; each request ends some time, if the user says nothing."""
    config: dict[str, Any] = {
        "max_pool_connections": connections,
        "connect_timeout": CONNECT_TIMEOUT_S,
        "read_timeout": READ_TIMEOUT_S,
        **given,
    }
    # What botocore is told here counts more than its variables.
    if not {"AWS_RETRY_MODE", "AWS_MAX_ATTEMPTS"} & os.environ.keys():
        default = {"mode": "standard", "max_attempts": _RETRIES}
        config["retries"] = {**default, **given.get("retries", {})}
    return config


async def get_object(fs: Any, full: str, last_bytes: int | None = None) -> tuple[bytes, int]:
    """The object, or its last bytes, and its size, in one request.

    ``last_bytes``: how many bytes of the end; None for all. Must not be 0.
    """
    bucket, key, _ = fs.split_path(full)
    wanted = {} if last_bytes is None else {"Range": f"bytes=-{last_bytes}"}
    attempt = 1
    while True:
        answer = await fs._call_s3("get_object", Bucket=bucket, Key=key, **wanted, **fs.req_kw)
        try:
            content = await answer["Body"].read()
        except Exception:
            if attempt == _READ_ATTEMPTS:
                raise
            attempt += 1
            continue
        finally:
            answer["Body"].close()
        total = str(answer.get("ContentRange", "")).rpartition("/")[2]
        return content, int(total) if total.isdecimal() else len(content)


async def head_object(fs: Any, full: str) -> Mapping[str, Any]:
    """Size and time of change; a missing object costs no second request."""
    bucket, key, _ = fs.split_path(full)
    answer: Mapping[str, Any] = await fs._call_s3(
        "head_object", Bucket=bucket, Key=key, **fs.req_kw
    )
    return answer


async def copy_object(fs: Any, full: str, target: str) -> None:
    """Copies an object of at most 5 GB."""
    bucket, key, _ = fs.split_path(full)
    target_bucket, target_key, _ = fs.split_path(target)
    await fs._call_s3(
        "copy_object",
        Bucket=target_bucket,
        Key=target_key,
        CopySource={"Bucket": bucket, "Key": key},
        **fs.req_kw,
    )


async def list_page(
    fs: Any, full_prefix: str, continuation: str | None, most: int | None = None
) -> Mapping[str, Any]:
    """One page of the listing, with ``Contents`` and perhaps ``NextContinuationToken``.

    ``continuation``: the token of the page before. ``most``: how many keys at most; None for as
    many as the server gives.
    """
    bucket, _, prefix = full_prefix.partition("/")
    if bucket.startswith("arn:"):  # the name of an access point contains a slash
        bucket, prefix, _ = fs.split_path(full_prefix)
    wanted: dict[str, Any] = {"ContinuationToken": continuation} if continuation else {}
    if most is not None:
        wanted["MaxKeys"] = most
    page: Mapping[str, Any] = await fs._call_s3(
        "list_objects_v2", Bucket=bucket, Prefix=prefix, **wanted, **fs.req_kw
    )
    return page


async def delete_objects(fs: Any, fulls: Sequence[str]) -> None:
    """Removes up to ``MAX_KEYS_PER_DELETE`` objects of one bucket."""
    bucket = fs.split_path(fulls[0])[0]
    keys = [{"Key": fs.split_path(full)[1]} for full in fulls]
    answer = await fs._call_s3(
        "delete_objects", Bucket=bucket, Delete={"Objects": keys, "Quiet": True}, **fs.req_kw
    )
    failed = answer.get("Errors", [])
    if failed:
        first = failed[0]
        raise OSError(
            f"{len(failed)} of {len(keys)} objects were not removed; "
            f"{first.get('Key')}: {first.get('Code')}"
        )


def error_codes(error: BaseException | None) -> set[str]:
    """S3's error codes and HTTP statuses anywhere in the chain of causes."""
    codes: set[str] = set()
    while error is not None:
        answer = getattr(error, "response", None)
        if isinstance(answer, Mapping):
            codes.add(str(answer.get("Error", {}).get("Code", "")))
            codes.add(str(answer.get("ResponseMetadata", {}).get("HTTPStatusCode", "")))
        error = error.__cause__ or error.__context__
    return codes
