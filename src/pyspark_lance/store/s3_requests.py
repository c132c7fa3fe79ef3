"""Requests to S3 that fsspec's interface lacks, or needs two requests for.

Coroutines over the client of an ``s3fs.S3FileSystem``; the caller runs them on the file system's
event loop and translates their errors.
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Mapping, Sequence
from typing import Any, Final

# A request is repeated if the server accepts no connection or sends nothing within this time.
CONNECT_TIMEOUT_S: Final = 5.0
READ_TIMEOUT_S: Final = 15.0
# Attempts of botocore, with backoff and jitter; sufficient for most requests of the client.
_RETRIES: Final = 4
ROUNDS_OF_RETRIES: Final = 3
"""Attempts of s3fs: after time-outs and broken connections it repeats botocore's attempts."""
# Response bodies may break off after the client's own retries.
_READ_ATTEMPTS = 3
_CREDENTIAL_FILES: Final = (
    ("AWS_SHARED_CREDENTIALS_FILE", "~/.aws/credentials"),
    ("AWS_CONFIG_FILE", "~/.aws/config"),
)
MAX_KEYS_PER_DELETE = 1000
MAX_KEYS_PER_PAGE = 1000


def client_config(given: Mapping[str, Any], connections: int) -> dict[str, Any]:
    """Return arguments of botocore's ``Config``; requests time out by default."""
    config: dict[str, Any] = {
        "max_pool_connections": connections,
        "connect_timeout": CONNECT_TIMEOUT_S,
        "read_timeout": READ_TIMEOUT_S,
        **given,
    }
    # Arguments given here override botocore's environment variables.
    if not {"AWS_RETRY_MODE", "AWS_MAX_ATTEMPTS"} & os.environ.keys():
        default = {"mode": "standard", "max_attempts": _RETRIES}
        config["retries"] = {**default, **given.get("retries", {})}
    return config


def credential_files(arguments: Mapping[str, Any]) -> tuple[tuple[str, int, int], ...]:
    """Return name, time and size of AWS's files of credentials that a client may have read.

    botocore reads them once, and renews nothing that they hold: after a change, a new client is
    needed. Empty if the arguments contain credentials.
    """
    if arguments.get("anon") or (arguments.get("key") and arguments.get("secret")):
        return ()
    found = []
    for variable, default in _CREDENTIAL_FILES:
        name = os.path.expanduser(os.environ.get(variable) or default)
        with contextlib.suppress(OSError):
            known = os.stat(name)
            found.append((name, known.st_mtime_ns, known.st_size))
    return tuple(found)


async def get_object(fs: Any, full: str, last_bytes: int | None = None) -> tuple[bytes, int]:
    """Return the object, or its last bytes, and its size, in one request.

    ``last_bytes``: number of bytes at the end; None for all. Must not be 0.
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
    """Return size and modification time; a missing object costs no second request."""
    bucket, key, _ = fs.split_path(full)
    answer: Mapping[str, Any] = await fs._call_s3(
        "head_object", Bucket=bucket, Key=key, **fs.req_kw
    )
    return answer


async def copy_object(fs: Any, full: str, target: str) -> None:
    """Copy an object of at most 5 GB."""
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
    """Return one page of the listing, with ``Contents`` and perhaps ``NextContinuationToken``.

    ``continuation``: the token of the previous page. ``most``: maximum number of keys; None for the
    server's default.
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


async def delete_objects(fs: Any, paths: Sequence[str]) -> None:
    """Remove up to ``MAX_KEYS_PER_DELETE`` objects of one bucket."""
    bucket = fs.split_path(paths[0])[0]
    keys = [{"Key": fs.split_path(full)[1]} for full in paths]
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


async def abort_uploads(fs: Any, full: str) -> None:
    """Abort all unfinished multipart uploads of an object."""
    bucket, key, _ = fs.split_path(full)
    listed = await fs._call_s3("list_multipart_uploads", Bucket=bucket, Prefix=key)
    for upload in listed.get("Uploads", []):
        if upload["Key"] == key:
            await fs._call_s3(
                "abort_multipart_upload", Bucket=bucket, Key=key, UploadId=upload["UploadId"]
            )


def error_codes(error: BaseException | None) -> set[str]:
    """Return S3's error codes and HTTP statuses anywhere in the chain of causes."""
    codes: set[str] = set()
    while error is not None:
        answer = getattr(error, "response", None)
        if isinstance(answer, Mapping):
            codes.add(str(answer.get("Error", {}).get("Code", "")))
            codes.add(str(answer.get("ResponseMetadata", {}).get("HTTPStatusCode", "")))
        error = error.__cause__ or error.__context__
    return codes
