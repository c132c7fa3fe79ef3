"""``storage.*`` options -> arguments of an fsspec file system; their values are never shown.

The names are those Lance's other readers take (``aws_access_key_id``, ``endpoint``, ...), in any
case, so that the same options open a table everywhere. Names that are not in the tables below go to
the file system as they are: ``key``, ``client_kwargs`` (as JSON), ``profile``, ...

Pickles contain masked options. Tasks carry them to the executors, and Spark may spill tasks to disk
and show them in dumps. Masking is not encryption: with the pickle and this package, anyone can open
the store. The mask is constant, so that equal tasks have equal pickles.
"""

from __future__ import annotations

import contextlib
import difflib
import hashlib
import json
import re
import traceback
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass
from typing import Any, Final
from urllib.parse import quote, urlsplit, urlunsplit

from pyspark_lance.errors import InvalidInputError
from pyspark_lance.store.hadoop_options import WORKING_DIRECTORY, is_hadoop, translate_hadoop

PREFIX = "storage."
MANIFEST_STORE = "manifest_store"
ISSUER = "issuer"
EXPIRES = "expires_at_millis"
ALLOWED: Final = "allowed_base_paths"
"""Places outside of a table that it may have files in."""
CLIENT: Final = "s3_client"
"""Which package makes requests to S3."""
SAME_PROTOCOL: Final = {
    "s3a": "s3",
    "s3n": "s3",
    "s3+ddb": "s3",
    "gs": "gcs",
    "abfss": "abfs",
    "az": "abfs",
}
"""fsspec's names of schemes that have another one there."""
# Of the table, not of the file system.
_OF_TABLES = (
    ALLOWED, MANIFEST_STORE, "dynamodb_endpoint", ISSUER, EXPIRES, CLIENT, WORKING_DIRECTORY,
)  # fmt: skip

_TRUE, _FALSE = ("true", "1", "yes", "on"), ("false", "0", "no", "off")
_BOOLEANS = frozenset(_TRUE + _FALSE)
_SHORTEST_SECRET = 4  # hiding shorter values would garble messages and hide little
_HARMLESS = re.compile(r"region|endpoint|addressing_style|profile|project|encryption$|timeout")
_NEVER_A_NUMBER = re.compile(r"key|secret|token|password|user|account|name|project|_id$")
_SECRET = re.compile(r"key|secret|token|password|credential|auth|header|^storage\\.")
_SIGNED_QUERY = re.compile(
    r"(?i)\b(X-Amz-[\w-]+|X-Goog-[\w-]+|AWSAccessKeyId|Signature|sig|se|sp|sv|access_token)"
    r"=[^&\s\"'<>]+"
)
_USER_INFO = re.compile(r"://[^/\s@\"']+@")
_AUTHORIZATION = re.compile(r"(?i)\b(Bearer|Credential=|SharedKey)\s*[^\s,;\"']+")


@dataclass(frozen=True, slots=True, repr=False)
class StorageOptions:
    """Arguments for a file system, with a guard that keeps their values out of messages."""

    arguments: Mapping[str, Any]  # Keyword arguments of the fsspec file system.
    # Whether a check followed by a write may stand in for an atomic create.
    allow_unsafe_put: bool = False
    secrets: tuple[str, ...] = ()  # Strings that must not appear in any text.

    def __repr__(self) -> str:
        return f"StorageOptions({', '.join(f'{name}=***' for name in sorted(self.arguments))})"

    def scrub(self, text: str) -> str:
        """The text without secrets, signatures of URLs and credentials in URLs."""
        for secret in self.secrets:
            text = text.replace(secret, "***")
        text = _SIGNED_QUERY.sub(r"\1=***", text)
        text = _AUTHORIZATION.sub(r"\1 ***", text)
        return _USER_INFO.sub("://***@", text)

    def safe_cause(self, error: BaseException) -> BaseException:
        """Return the error, or a scrubbed stand-in if it or a cause contains a secret."""
        texts = [str(link) for link in _chain(error)]
        if all(self.scrub(text) == text for text in texts):
            return error
        stand_in = RuntimeError(f"{type(error).__name__}: {self.scrub(str(error))}")
        frames = "".join(traceback.format_tb(error.__traceback__))
        stand_in.add_note(self.scrub(f"raised at (most recent call last):\n{frames}"))
        return stand_in


def parse_storage_options(
    protocol: str, options: Mapping[str, str], *, bucket: str = ""
) -> StorageOptions:
    """Parse the options for a file system of this protocol.

    ``protocol``: fsspec's name: ``s3``, ``gcs``, ``abfs``, ; ``options``: texts by name, with or
    without the prefix ``storage.``, in any case, and Hadoop's settings, which they take precedence
    over; ``bucket``: first part of the URI, which some of Hadoop's settings are for, and which
    endpoints may name already.
    """
    table = _TABLES.get(protocol, {})
    arguments: dict[str, Any] = {}
    chosen_by: dict[str, str] = {}
    texts = _with_hadoop(protocol, dict(named_options(options)), bucket)
    allow_unsafe_put = _boolean("allow_unsafe_put", texts.pop("allow_unsafe_put", "false"))
    for name in _OF_TABLES:
        texts.pop(name, None)
    for name, text in texts.items():
        target, parse = table.get(name, (name, _anything))
        if name not in table:
            _refuse_misspelt(name, table)
        if target == _IGNORED:
            continue
        value = parse(name, text)
        previous = chosen_by.setdefault(target, name)
        if previous != name and _get(arguments, target) != value:
            raise InvalidInputError(f"storage options {previous!r} and {name!r} disagree")
        _set(arguments, target, value)
    if protocol == "s3":
        _finish_s3(arguments, bucket)
    return StorageOptions(arguments, allow_unsafe_put, tuple(_secrets(texts)))


def _with_hadoop(protocol: str, texts: Mapping[str, str], bucket: str) -> dict[str, str]:
    """The options, with Hadoop's settings among them translated to names of our own."""
    hadoop = {name: text for name, text in texts.items() if is_hadoop(name)}
    own = {name: text for name, text in texts.items() if name not in hadoop}
    table = _TABLES.get(protocol, {})
    given = {table[name][0] if name in table else name for name in own}
    return {**translate_hadoop(protocol, bucket, hadoop, given), **own}


def _finish_s3(arguments: dict[str, Any], bucket: str) -> None:
    """Resolve values that depend on several options: endpoint scheme and addressing style."""
    allow_http = arguments.pop("allow_http", None)
    virtual_hosted = arguments.pop("virtual_hosted", None)
    endpoint = arguments.get("endpoint_url")
    if endpoint:
        if "://" not in endpoint:
            endpoint = ("http://" if allow_http else "https://") + endpoint
        parts = urlsplit(endpoint)
        if parts.scheme == "http" and allow_http is False:
            raise InvalidInputError(
                "the endpoint is http://, but the storage option 'allow_http' is false"
            )
        if virtual_hosted and bucket and parts.netloc.startswith(bucket + "."):
            # object_store wants the bucket in the endpoint here, botocore adds it itself.
            parts = parts._replace(netloc=parts.netloc.removeprefix(bucket + "."))
        arguments["endpoint_url"] = urlunsplit(parts)
    elif allow_http:
        arguments.setdefault("use_ssl", False)
    if virtual_hosted is not None or endpoint:
        style = "virtual" if virtual_hosted else "path"
        s3 = arguments.setdefault("config_kwargs", {}).setdefault("s3", {})
        s3.setdefault("addressing_style", style)


def hadoop_as_storage(uri: str, settings: Mapping[str, str]) -> dict[str, str]:
    """The storage options of a URI that Hadoop's settings translate to, without prefix."""
    scheme, _, rest = uri.partition("://")
    scheme = scheme.lower()
    if scheme in ("hdfs", "viewfs"):
        return dict(settings)
    protocol = SAME_PROTOCOL.get(scheme, scheme)
    hadoop = dict(named_options(settings))
    return translate_hadoop(protocol, rest.partition("/")[0], hadoop, ())


def is_storage_option(name: str) -> bool:
    """Return whether some object store takes an option of this name, given without a prefix."""
    name = name.strip().lower()
    return any(name in table for table in _TABLES.values())


def allowed_roots(options: Mapping[str, str]) -> Iterator[str]:
    """The places outside of a table that the option ``allowed_base_paths`` names."""
    for name, text in named_options(options):
        if name == ALLOWED:
            yield from filter(None, (root.strip() for root in text.split(",")))


def chosen_client(options: Mapping[str, str]) -> str:
    """Return ``s3fs`` or ``obstore`` if the options choose a client for S3, and '' otherwise."""
    chosen = dict(named_options(options)).get(CLIENT, "").lower()
    if chosen not in ("", "s3fs", "obstore"):
        raise InvalidInputError(f"storage option {CLIENT!r} must be s3fs or obstore")
    return chosen


def named_options(options: Mapping[str, str]) -> Iterator[tuple[str, str]]:
    """Options by their names in small letters, without the prefix ``storage.``."""
    for name, text in options.items():
        yield name.strip().lower().removeprefix(PREFIX), text.strip()


def hide_values(text: str, settings: Mapping[str, str]) -> str:
    """Return the text without the values of the settings that might be secrets."""
    named = {name.lower(): value for name, value in settings.items()}
    secrets = _secrets({name: value for name, value in named.items() if _SECRET.search(name)})
    return StorageOptions({}, secrets=tuple(secrets)).scrub(text)


def _refuse_misspelt(name: str, table: Mapping[str, Any]) -> None:
    """Reject unknown names with a cloud's prefix, which the file system would ignore."""
    if name.startswith(("aws_", "azure_", "google_")) and table:
        near = difflib.get_close_matches(name, table, n=1)
        raise InvalidInputError(
            f"unknown storage option {name!r}", hint=f"did you mean {near[0]!r}?" if near else ""
        )


def _secrets(texts: Mapping[str, str]) -> Iterator[str]:
    """Yield every string in the values that may be a secret, also as encoded in a URL."""
    secrets: set[str] = set()
    for name, text in texts.items():
        for leaf in _leaves(name, _parse_json(text)):
            secrets |= {leaf, quote(leaf, safe=""), quote(leaf)}
    # Longest first: one secret may be a part of another.
    yield from sorted((s for s in secrets if len(s) >= _SHORTEST_SECRET), key=len, reverse=True)


def _leaves(name: str, value: Any) -> Iterator[str]:
    if isinstance(value, Mapping):
        for key, inner in value.items():
            yield from _leaves(str(key).lower(), inner)
    elif isinstance(value, list):
        for inner in value:
            yield from _leaves(name, inner)
    elif isinstance(value, str) and not _HARMLESS.search(name) and value.lower() not in _BOOLEANS:
        yield value


def _parse_json(text: str) -> Any:
    """The value if the text is JSON of some structure, else the text."""
    if text.startswith(("{", "[")):
        with contextlib.suppress(ValueError):
            return json.loads(text)
    return text


def _chain(error: BaseException | None) -> Iterator[BaseException]:
    while error is not None:
        yield error
        error = error.__cause__ or error.__context__


def _get(arguments: Mapping[str, Any], target: str) -> Any:
    value: Any = arguments
    for part in target.split("."):
        value = value.get(part) if isinstance(value, Mapping) else None
    return value


def _set(arguments: dict[str, Any], target: str, value: Any) -> None:
    """Store a value at a dotted name; merge mappings, so ``client_kwargs`` and aliases add up."""
    *folders, leaf = target.split(".")
    for folder in folders:
        arguments = arguments.setdefault(folder, {})
    known = arguments.get(leaf)
    if isinstance(known, dict) and isinstance(value, Mapping):
        for name, inner in value.items():
            _set(known, name, inner)
    else:
        arguments[leaf] = value


def _text(name: str, text: str) -> str:
    return text


def _boolean(name: str, text: str) -> bool:
    if text.lower() in _TRUE:
        return True
    if text.lower() in _FALSE:
        return False
    raise InvalidInputError(f"storage option {name!r} must be true or false")


def _not(name: str, text: str) -> bool:
    return not _boolean(name, text)


def _integer(name: str, text: str) -> int:
    try:
        return int(text)
    except ValueError:
        raise InvalidInputError(f"storage option {name!r} must be a whole number") from None


def _seconds(name: str, text: str) -> float:
    match = re.fullmatch(r"([\d.]+)\s*(ms|s|m|)", text)
    if match is None:
        raise InvalidInputError(f"storage option {name!r} must be a time such as '30s'")
    return float(match[1]) * {"ms": 0.001, "s": 1, "m": 60, "": 1}[match[2]]


def _proxies(name: str, text: str) -> dict[str, str]:
    return {"http": text, "https": text}


def _json(name: str, text: str) -> Any:
    try:
        return json.loads(text)
    except ValueError:
        # The parser's message would quote the value.
        raise InvalidInputError(f"storage option {name!r} is not valid JSON") from None


def _anonymous_token(name: str, text: str) -> str | None:
    return "anon" if _boolean(name, text) else None


def _anything(name: str, text: str) -> Any:
    """The value an untyped text most likely means: JSON, true or false, a number, or itself."""
    if text.startswith(("{", "[")):
        return _json(name, text)
    if text.lower() in ("true", "false"):
        return text.lower() == "true"
    if text.isdecimal() and not _NEVER_A_NUMBER.search(name):
        return int(text)
    return text


_IGNORED = "-"
_Row = tuple[str, Callable[[str, str], Any], str]


def _table(*rows: _Row) -> dict[str, tuple[str, Callable[[str, str], Any]]]:
    """Map names to (target, parser); every target that is an argument is a name as well."""
    return {name: (target, parse) for target, parse, names in rows for name in names.split()}


_S3 = _table(
    ("key", _text, "key aws_access_key_id access_key_id"),
    ("secret", _text, "secret aws_secret_access_key secret_access_key"),
    ("token", _text, "token aws_session_token aws_token session_token"),
    (
        "client_kwargs.region_name",
        _text,
        "aws_region region aws_default_region default_region region_name",
    ),
    (
        "endpoint_url",
        _text,
        "endpoint_url endpoint aws_endpoint aws_endpoint_url aws_endpoint_url_s3",
    ),
    ("allow_http", _boolean, "allow_http aws_allow_http"),
    ("virtual_hosted", _boolean, "aws_virtual_hosted_style_request virtual_hosted_style_request"),
    ("anon", _boolean, "anon aws_skip_signature skip_signature"),
    ("requester_pays", _boolean, "requester_pays aws_request_payer request_payer"),
    ("profile", _text, "profile aws_profile"),
    ("client_kwargs.verify", _not, "allow_invalid_certificates aws_allow_invalid_certificates"),
    ("config_kwargs.read_timeout", _seconds, "timeout aws_timeout read_timeout"),
    ("config_kwargs.connect_timeout", _seconds, "connect_timeout aws_connect_timeout"),
    ("config_kwargs.retries.max_attempts", _integer, "client_max_retries"),
    ("config_kwargs.proxies", _proxies, "proxy_url aws_proxy_url"),
    ("config_kwargs.s3.payload_signing_enabled", _not, "aws_unsigned_payload unsigned_payload"),
    ("s3_additional_kwargs.ServerSideEncryption", _text, "aws_server_side_encryption"),
    ("s3_additional_kwargs.SSEKMSKeyId", _text, "aws_sse_kms_key_id"),
    (
        _IGNORED,
        _text,
        (
            "aws_conditional_put conditional_put aws_copy_if_not_exists copy_if_not_exists "
            "aws_s3_express s3_express aws_imdsv1_fallback aws_checksum_algorithm "
            "client_retry_timeout download_retry_count"
        ),
    ),
)
_GCS = _table(
    (
        "token",
        _anything,
        (
            "token google_service_account service_account google_service_account_path "
            "service_account_path google_application_credentials application_credentials"
        ),
    ),
    ("token", _json, "google_service_account_key service_account_key"),
    ("token", _anonymous_token, "google_skip_signature skip_signature anon"),
    ("endpoint_url", _text, "endpoint_url endpoint google_endpoint"),
    ("requests_timeout.total", _seconds, "requests_timeout"),
    ("requests_timeout.sock_read", _seconds, "timeout read_timeout"),
    ("requests_timeout.sock_connect", _seconds, "connect_timeout"),
)
_AZURE = _table(
    ("account_name", _text, "account_name azure_storage_account_name"),
    (
        "account_key",
        _text,
        (
            "account_key access_key azure_storage_account_key azure_storage_access_key "
            "azure_storage_master_key master_key"
        ),
    ),
    ("sas_token", _text, "sas_token sas_key azure_storage_sas_token azure_storage_sas_key"),
    ("connection_string", _text, "connection_string azure_storage_connection_string"),
    ("client_id", _text, "client_id azure_client_id azure_storage_client_id"),
    ("client_secret", _text, "client_secret azure_client_secret azure_storage_client_secret"),
    (
        "tenant_id",
        _text,
        (
            "tenant_id authority_id azure_tenant_id azure_storage_tenant_id "
            "azure_storage_authority_id azure_authority_id"
        ),
    ),
    ("anon", _boolean, "anon azure_skip_signature skip_signature"),
)
_TABLES: Mapping[str, Mapping[str, tuple[str, Callable[[str, str], Any]]]] = {
    "s3": _S3,
    "gcs": _GCS,
    "abfs": _AZURE,
}


_MASK: Final = b"storage options of pyspark-lance"


def mask_options(options: Mapping[str, str]) -> bytes:
    """Return the options as bytes that do not contain their names or values."""
    return _apply_mask(json.dumps(dict(options)).encode()) if options else b""


def unmask_options(content: bytes) -> dict[str, str]:
    """Return the options from masked bytes."""
    options: dict[str, str] = json.loads(_apply_mask(content)) if content else {}
    return options


def _apply_mask(content: bytes) -> bytes:
    mask = hashlib.shake_256(_MASK).digest(len(content))
    mixed = int.from_bytes(content) ^ int.from_bytes(mask)
    return mixed.to_bytes(len(content))
