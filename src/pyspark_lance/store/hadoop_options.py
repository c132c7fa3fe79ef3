"""Hadoop's settings of a store (``fs.s3a.*``, ``fs.azure.*``, ``fs.gs.*``) -> storage options.

Those of HDFS go to its client under their own names.

A session of Spark has them in its Hadoop configuration: from ``spark.hadoop.*``, ``core-site.xml``
or ``spark.conf.set``. They travel among the storage options of a table under their own names, and
are translated where a store is opened, as its bucket decides which of them count. The file system
of paths without a scheme, ``fs.defaultFS``, is looked at earlier: where a path becomes a table.

Storage options take precedence. Credentials count together: a storage option that is one of them
turns off all credentials of Hadoop; so do endpoints, with the scheme and the addressing style.
"""

from __future__ import annotations

import getpass
import json
import os
import re
from collections.abc import Callable, Collection, Iterator, Mapping
from ipaddress import ip_address
from typing import Final
from urllib.parse import urlsplit

from pyspark_lance.errors import InvalidInputError, UnsupportedFeatureError

# What a client of HDFS has to know of name services, with names of several name nodes, and of how
# the cluster wants clients to prove who they are.
_HDFS: Final = ("dfs.nameservices", "dfs.ha.namenodes.", "dfs.namenode.rpc-address.", "dfs.client.",
    "fs.viewfs.mounttable.", "hadoop.security.authentication", "dfs.data.transfer.protection",
)  # fmt: skip
PREFIXES: Final = ("fs.s3a.", "fs.azure.", "fs.gs.", *_HDFS)
_SCHEMES: Final[Mapping[str, str | tuple[str, ...]]] = {
    "s3": "fs.s3a.", "s3a": "fs.s3a.", "s3n": "fs.s3a.", "s3+ddb": "fs.s3a.",
    "abfs": "fs.azure.", "abfss": "fs.azure.", "az": "fs.azure.",
    "gs": "fs.gs.", "gcs": "fs.gs.", "hdfs": _HDFS, "viewfs": _HDFS,
}  # fmt: skip

DEFAULT_FS: Final = "fs.defaultFS"
USER: Final = "user.name"
"""The name of the session's user in Hadoop, whose home relative paths begin at."""
_HOMES: Final = "dfs.user.home.dir.prefix"
_GOOGLE_DIRECTORY: Final = "fs.gs.working.dir"
OF_PATHS: Final = (DEFAULT_FS, USER, _HOMES, _GOOGLE_DIRECTORY)
"""Settings that say what a path means."""
WORKING_DIRECTORY: Final = "working_directory"
"""The storage option that stands for them."""

_S3A: Final = "org.apache.hadoop.fs.s3a."
_AMAZON: Final = ("com.amazonaws.auth.", "software.amazon.awssdk.auth.credentials.", _S3A)
# Providers that look where boto3 looks, too: variables, profiles, roles of machines.
_BOTO_FINDS: Final = (
    "ContainerCredentialsProvider",
    "DefaultAWSCredentialsProviderChain",
    "DefaultCredentialsProvider",
    "EC2ContainerCredentialsProviderWrapper",
    "EnvironmentVariableCredentialsProvider",
    "IAMInstanceCredentialsProvider",
    "InstanceProfileCredentialsProvider",
    "ProfileAWSCredentialsProvider",
    "ProfileCredentialsProvider",
    "SharedInstanceCredentialProvider",
    "WebIdentityTokenCredentialsProvider",
    "WebIdentityTokenFileCredentialsProvider",
)
_DEFAULT_PROVIDERS: Final = (
    f"{_S3A}TemporaryAWSCredentialsProvider,{_S3A}SimpleAWSCredentialsProvider,"
    f"{_S3A}auth.IAMInstanceCredentialsProvider"
)
_REGIONAL: Final = re.compile(r"(?:https?://)?s3[.-]([a-z]{2}(?:-[a-z]+)+-\d)\.amazonaws\.com/?")
# Hadoop has these where nothing else is set; Spark writes the first one into each session.
_CENTRAL: Final = ("s3.amazonaws.com", "https://s3.amazonaws.com")
_ENCRYPTIONS: Final = {"SSE-S3": "AES256", "AES256": "AES256", "SSE-KMS": "aws:kms"}
_TENANT: Final = re.compile(r"https://[^/]+/([^/]+)/")
_GOOGLE: Final = "https://storage.googleapis.com"

# Spark Connect gives a session this variable and a folder, in which its workers run.
_ARTIFACTS: Final = "SPARK_JOB_ARTIFACT_UUID"
_SHARED: Final = "default"

URI_SCHEME: Final = re.compile(r"([A-Za-z][A-Za-z0-9+.:-]*?):(?=/)")
"""The scheme of a URI; a path without one may have a colon, too."""
_HOST: Final = re.compile(r"[A-Za-z][A-Za-z0-9+.:-]*?://[^/]")

_Get = Callable[[str], str | None]


def absolute_path(uri: str) -> str:
    """Return a relative path as an absolute one; anything else unchanged."""
    is_relative = uri.strip() and uri[0] != "/" and URI_SCHEME.match(uri) is None
    return os.path.abspath(os.path.expanduser(uri)) if is_relative and "\0" not in uri else uri


def resolve_path(path: str, settings: Mapping[str, str]) -> str:
    """Return the URI that a path means in a session, as Hadoop resolves it.

    A path without a scheme is in the default file system, or in that of the storage option
    ``working_directory``; a URI without a host, ``hdfs:///path``, is on the host of that one, if it
    has the same scheme. Local paths are returned unchanged.

    ``settings``: Hadoop's settings of the session, and storage options, under any of their names.
    """
    directory = working_directory(settings)
    if not directory:
        _check_working_directory(path)
        return path
    scheme, _, rest = directory.partition("://")
    host, _, folder = rest.partition("/")
    match = URI_SCHEME.match(path)
    if match is None:
        if not path.startswith("/"):
            path = "/".join(filter(None, (folder, path)))
        return f"{scheme}://{host}/{path.lstrip('/')}"
    inside = path[match.end() :]
    if match[1].lower() != scheme.lower() or has_host(path):
        return path
    return f"{scheme}://{host}/{inside.lstrip('/')}"


def _check_working_directory(path: str) -> None:
    """Refuse a relative path in a worker of Spark Connect, whose folder ends with the session."""
    has_own_folder = os.environ.get(_ARTIFACTS, _SHARED) != _SHARED
    if has_own_folder and not path.startswith("~") and absolute_path(path) != path:
        raise InvalidInputError(
            f"the relative path {path!r} would begin at a temporary folder of the session",
            hint="give an absolute path",
        )


def working_directory(settings: Mapping[str, str]) -> str:
    """Return the URI of the folder of relative paths; '' if it is that of the process."""
    for name, text in settings.items():
        if name.strip().lower().removeprefix("storage.") == WORKING_DIRECTORY:
            return text.strip().rstrip("/")
    default = settings.get(DEFAULT_FS, "")
    scheme, _, rest = default.partition("://")
    host = rest.partition("/")[0]
    if is_local(default):
        return ""
    if hadoop_prefix(f"{scheme}://") == "fs.gs.":
        folder = settings.get(_GOOGLE_DIRECTORY, "")
    else:
        folder = f"{(settings.get(_HOMES) or '/user').rstrip('/')}/{settings.get(USER, '')}"
    return f"{scheme}://{host}/{folder.strip('/')}".rstrip("/")


def settings_of_site() -> dict[str, str]:
    """Read the file system settings of ``core-site.xml``, for a process without a session."""
    folders = [
        os.environ.get("SPARK_CONF_DIR") or os.path.join(os.environ.get("SPARK_HOME", ""), "conf")
    ]
    folders += [os.environ.get(name, "") for name in ("HADOOP_CONF_DIR", "YARN_CONF_DIR")]
    files = (os.path.join(folder, "core-site.xml") for folder in folders if os.path.isabs(folder))
    file = next(filter(os.path.isfile, files), None)
    if file is None:
        return {}
    from xml.etree import ElementTree  # noqa: PLC0415

    read = {
        one.findtext("name"): one.findtext("value") or ""
        for one in ElementTree.parse(file).iter("property")
    }
    known: dict[str, str] = {name: read[name].strip() for name in OF_PATHS if name in read}
    return {**known, USER: user_name()} if DEFAULT_FS in known else {}


def user_name() -> str:
    """The name of the user in Hadoop, where it is not known from a session."""
    return os.environ.get("HADOOP_USER_NAME") or getpass.getuser()


def has_host(uri: str) -> bool:
    """Return whether a URI has a host or a bucket, so that no setting changes its meaning."""
    return _HOST.match(uri) is not None


def is_local(default_fs: str) -> bool:
    """Return whether paths without a scheme are local with this value of ``fs.defaultFS``."""
    return default_fs.strip().lower().partition(":")[0] in ("", "file", "local")


def with_scheme(path: str, settings: Mapping[str, str]) -> str:
    """Return a resolved path so that it is not resolved again; ``settings``: see above."""
    if not working_directory(settings) or URI_SCHEME.match(path):
        return path
    return f"file://{os.path.abspath(path)}"


def hadoop_of(uri: str, settings: Mapping[str, str]) -> dict[str, str]:
    """Select a session's Hadoop settings for the kind of store of ``uri``."""
    prefix = hadoop_prefix(uri)
    if not prefix:
        return {}
    return {name: text for name, text in settings.items() if name.startswith(prefix)}


def hadoop_prefix(uri: str) -> str | tuple[str, ...]:
    """Return the prefix of Hadoop's settings for the store of ``uri``; '' if it has none.

    For ``str.startswith``.
    """
    return _SCHEMES.get(uri.partition("://")[0].lower(), "")


def is_hadoop(name: str) -> bool:
    """Return whether a storage option is one of Hadoop's settings."""
    return name.startswith(PREFIXES)


def translate_hadoop(
    protocol: str, authority: str, settings: Mapping[str, str], given: Collection[str]
) -> dict[str, str]:
    """The storage options that Hadoop's settings translate to.

    ``protocol``: fsspec's name. ``authority``: bucket, or ``container@account.host``. ``settings``:
    by their names in small letters. ``given``: arguments of the file system that storage options
    set, which take precedence.
    """
    if not settings:
        return {}
    if protocol == "s3":
        return dict(_translate_s3(_of_bucket(settings, authority), given))
    if protocol == "abfs":
        account = authority.partition("@")[2]
        return dict(_translate_azure(_of_account(settings, account), account, given))
    if protocol == "gcs":
        return dict(_translate_google(settings.get, given))
    return {}


# S3 -----------------------------------------------------------------------------------------------


def _of_bucket(settings: Mapping[str, str], bucket: str) -> _Get:
    """Read a setting of S3A without its prefix: that of the bucket, else that of all buckets."""

    def get(name: str) -> str | None:
        own = settings.get(f"fs.s3a.bucket.{bucket.lower()}.{name}")
        text = settings.get(f"fs.s3a.{name}") if own is None else own
        return (text or "").strip() or None

    return get


def _translate_s3(get: _Get, given: Collection[str]) -> Iterator[tuple[str, str]]:
    if not {"key", "secret", "token", "anon", "profile"} & set(given):
        yield from _s3_credentials(get)
    endpoint, region = get("endpoint"), get("endpoint.region")
    regional = _REGIONAL.fullmatch(endpoint or "")
    if regional is not None:
        region = region or regional[1]
    if region is not None and region != "sdk" and "client_kwargs.region_name" not in given:
        yield "region", region
    if "endpoint_url" not in given:
        is_custom = endpoint is not None and endpoint not in _CENTRAL and regional is None
        yield from _s3_endpoint(get, endpoint if is_custom else None, given)
    yield from _s3_encryption(get, given)
    if _is_true(get("requester.pays.enabled")) and "requester_pays" not in given:
        yield "requester_pays", "true"
    host, port = get("proxy.host"), get("proxy.port")
    if host is not None and "config_kwargs.proxies" not in given:
        yield "proxy_url", f"http://{host}:{port or 80}"


def _s3_endpoint(
    get: _Get, endpoint: str | None, given: Collection[str]
) -> Iterator[tuple[str, str]]:
    """Endpoint, scheme and addressing style, as S3A takes them together."""
    is_plain = (get("connection.ssl.enabled") or "true").lower() == "false"
    uses_paths = _is_true(get("path.style.access"))
    if endpoint is None:
        if is_plain and "allow_http" not in given:
            yield "allow_http", "true"
        if uses_paths and "virtual_hosted" not in given:
            yield "virtual_hosted_style_request", "false"
        return
    if "://" not in endpoint and "allow_http" not in given:
        endpoint = f"{'http' if is_plain else 'https'}://{endpoint}"
    yield "endpoint_url", endpoint
    if "virtual_hosted" not in given:
        is_virtual = not uses_paths and not _is_address(urlsplit(endpoint).hostname or "")
        yield "virtual_hosted_style_request", str(is_virtual).lower()


def _is_address(host: str) -> bool:
    """Return whether a host cannot be prefixed with a bucket, as in S3A's client."""
    try:
        ip_address(host)
    except ValueError:
        return host == "localhost"
    return True


def _s3_credentials(get: _Get) -> Iterator[tuple[str, str]]:
    """Yield the credentials of the first provider that has any, in Hadoop's order."""
    key, secret, token = get("access.key"), get("secret.key"), get("session.token")
    providers = get("aws.credentials.provider") or _DEFAULT_PROVIDERS
    for provider in filter(None, re.split(r"[\s,]+", providers)):
        name = provider.rpartition(".")[2]
        if provider == f"{_S3A}AnonymousAWSCredentialsProvider" or name == (
            "AnonymousCredentialsProvider"
        ):
            yield "anon", "true"
            return
        is_simple = provider == f"{_S3A}SimpleAWSCredentialsProvider"
        is_temporary = provider == f"{_S3A}TemporaryAWSCredentialsProvider"
        if is_simple or is_temporary:
            if key and secret and (is_simple or token):
                yield from (("key", key), ("secret", secret))
                if is_temporary and token:
                    yield "token", token
                return
            continue
        if name in _BOTO_FINDS and provider.startswith(_AMAZON):
            profile = get("auth.profile.name") if "Profile" in name else None
            if profile is not None:
                yield "profile", profile
            return
        raise UnsupportedFeatureError(
            f"fs.s3a.aws.credentials.provider names {provider}, which runs in Java only",
            hint="set storage.aws_access_key_id, storage.aws_secret_access_key (and "
            "storage.aws_session_token); or storage.anon=false, for the credentials that boto3 "
            "finds by itself",
        )


def _s3_encryption(get: _Get, given: Collection[str]) -> Iterator[tuple[str, str]]:
    algorithm = get("encryption.algorithm") or get("server-side-encryption-algorithm")
    key = get("encryption.key") or get("server-side-encryption.key")  # the old names
    if algorithm is None or "s3_additional_kwargs.ServerSideEncryption" in given:
        return
    chosen = _ENCRYPTIONS.get(algorithm.upper())
    if chosen is None:
        raise UnsupportedFeatureError(
            f"fs.s3a.encryption.algorithm is {algorithm}, which is not supported",
            hint="SSE-S3 and SSE-KMS are; storage.aws_server_side_encryption sets it for Lance "
            "tables only",
        )
    yield "aws_server_side_encryption", chosen
    if chosen == "aws:kms" and key is not None:
        yield "aws_sse_kms_key_id", key


# Azure --------------------------------------------------------------------------------------------


def _of_account(settings: Mapping[str, str], account: str) -> _Get:
    """Read a setting without its prefix: that of the account's host, else that of all."""
    host = account.lower()

    def get(name: str) -> str | None:
        names = [f"fs.azure.{name}.{host}", f"fs.azure.{name}.{host.replace('.dfs.', '.blob.')}"]
        found = (settings.get(one) for one in (*names, f"fs.azure.{name}"))
        return next((text.strip() for text in found if text and text.strip()), None)

    return get


def _translate_azure(get: _Get, account: str, given: Collection[str]) -> Iterator[tuple[str, str]]:
    credentials = ("account_key", "sas_token", "connection_string", "client_id", "client_secret")
    if not account or {*credentials, "anon", "credential"} & set(given):
        return
    kind = (get("account.auth.type") or "SharedKey").lower()
    if kind == "sharedkey":
        key = get("account.key")
        if key is not None:
            yield "account_key", key
        return
    if kind == "sas":
        token = get("sas.fixed.token")
        if token is not None:
            yield "sas_token", token.removeprefix("?")
            return
        if get("sas.token.provider.type") is None:
            raise _azure_lacks("sas.fixed.token", "SAS")
        raise _azure_provider("sas.token.provider.type", get("sas.token.provider.type"))
    provider = get("account.oauth.provider.type")
    if kind != "oauth":
        raise _azure_provider("account.auth.type", get("account.auth.type"))
    if provider is None:
        raise _azure_lacks("account.oauth.provider.type", "OAuth")
    name = provider.rpartition(".")[2]
    if name == "ClientCredsTokenProvider":
        yield from _azure_client(get)
    elif name in ("MsiTokenProvider", "WorkloadIdentityTokenProvider"):
        yield "anon", "false"  # then adlfs looks for the identity of the machine
    else:
        raise _azure_provider("account.oauth.provider.type", provider)


def _azure_client(get: _Get) -> Iterator[tuple[str, str]]:
    client, secret = get("account.oauth2.client.id"), get("account.oauth2.client.secret")
    endpoint = _TENANT.match(get("account.oauth2.client.endpoint") or "")
    if client is None or secret is None or endpoint is None:
        raise InvalidInputError(
            "fs.azure.account.oauth2.client.id, .client.secret and .client.endpoint belong "
            "together, and one is missing or no https://…/TENANT/oauth2/token"
        )
    yield from (("client_id", client), ("client_secret", secret), ("tenant_id", endpoint[1]))


def _azure_lacks(name: str, kind: str) -> InvalidInputError:
    return InvalidInputError(
        f"fs.azure.account.auth.type is {kind}, and fs.azure.{name} is not set for the account",
        hint=f"set fs.azure.{name} (check its spelling and the account's name), or storage.*",
    )


def _azure_provider(name: str, value: str | None) -> UnsupportedFeatureError:
    return UnsupportedFeatureError(
        f"fs.azure.{name} is {value}, which has no counterpart outside of Java",
        hint="set storage.account_key, storage.sas_token, or storage.client_id, "
        "storage.client_secret and storage.tenant_id",
    )


# Google -------------------------------------------------------------------------------------------


def _translate_google(read: _Get, given: Collection[str]) -> Iterator[tuple[str, str]]:
    def get(name: str) -> str | None:
        return (read(f"fs.gs.{name}") or "").strip() or None

    if "token" not in given:
        yield from _google_token(get)
    project, root = get("project.id"), get("storage.root.url")
    if project is not None and "project" not in given:
        yield "project", project
    if root is not None and root.rstrip("/") != _GOOGLE and "endpoint_url" not in given:
        yield "endpoint_url", root.rstrip("/")


def _google_token(get: _Get) -> Iterator[tuple[str, str]]:
    file, kind = get("auth.service.account.json.keyfile"), (get("auth.type") or "").upper()
    email, key = get("auth.service.account.email"), get("auth.service.account.private.key")
    if kind == "UNAUTHENTICATED" or _is_true(get("auth.null.enable")):
        yield "anon", "true"
    elif file is not None and kind in ("", "COMPUTE_ENGINE", "SERVICE_ACCOUNT_JSON_KEYFILE"):
        yield "token", file
    elif email is not None and key is not None:
        account = {
            "type": "service_account",
            "client_email": email,
            "private_key_id": get("auth.service.account.private.key.id") or "",
            "private_key": key.replace("\\n", "\n"),
            "token_uri": "https://oauth2.googleapis.com/token",
        }
        yield "service_account_key", json.dumps(account)
    elif email is not None or key is not None:
        raise InvalidInputError(
            "fs.gs.auth.service.account.email and .private.key belong together, and one is missing"
        )
    elif kind not in ("", "COMPUTE_ENGINE", "APPLICATION_DEFAULT"):
        raise UnsupportedFeatureError(
            f"fs.gs.auth.type is {kind}, which has no counterpart here",
            hint="set storage.token or storage.google_service_account_key",
        )


def _is_true(text: str | None) -> bool:
    return (text or "").lower() == "true"
