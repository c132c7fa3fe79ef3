"""Hadoop's settings of a session, with which its tables are opened as its Parquet files are.

The plugin sends them with every call. ``LanceTable`` reads them from its session, and gives them to
the reads and writes that it plans. Without the plugin, ``spark.read.format("lance")`` cannot see
them: Spark passes a Python data source its options only.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any, Final
from xml.etree import ElementTree

from pyspark.sql import SparkSession

from pyspark_lance.spark.options.option_table import to_option_strings
from pyspark_lance.store.hadoop_options import (
    DEFAULT_FS,
    OF_PATHS,
    USER,
    WORKING_DIRECTORY,
    hadoop_of,
    hadoop_prefix,
    has_host,
    is_local,
    resolve_path,
    user_name,
    working_directory,
)
from pyspark_lance.store.storage_options import PREFIX, hadoop_as_storage
from pyspark_lance.table.version.table import Table

_OF_SPARK: Final = "spark.hadoop."
_DEFAULTS: Final = "-default.xml"
_PROVIDER_PATH: Final = "security.credential.provider.path"


def session_table(
    spark: SparkSession,
    path: str,
    storage: Mapping[str, object] | None = None,
    branch: str | None = None,
) -> Table:
    """The table at ``path``, opened as a session opens files there.

    ``storage``: storage options, which take precedence.
    """
    options = to_option_strings(storage or {})
    root = resolve_path(path, {**settings_of_paths(spark, path), **options})
    return Table(root, {**session_hadoop(spark, root), **options}, branch)


def hadoop_options(spark: SparkSession, path: str) -> dict[str, str]:
    """The options ``storage.*`` that the Hadoop settings of a session translate to.

    For reads, writes and streams without the plugin; with it, and for ``LanceTable``, they count
    by themselves.

    Args:
        spark: The session; of Spark Connect, only settings that ``spark.conf`` has.
        path: The path of the table, whose bucket or account the options are for.

    Examples:
        >>> spark.conf.set("fs.s3a.endpoint.region", "eu-west-1")
        >>> hadoop_options(spark, "s3a://bucket/table")
        {'storage.region': 'eu-west-1'}
        >>> spark.conf.unset("fs.s3a.endpoint.region")
    """
    directory = working_directory(settings_of_paths(spark, path))
    root = resolve_path(path, {WORKING_DIRECTORY: directory})
    translated = hadoop_as_storage(root, session_hadoop(spark, root))
    if root != path:
        translated[WORKING_DIRECTORY] = directory
    return {PREFIX + name: text for name, text in translated.items()}


def settings_of_paths(spark: SparkSession | None, path: str) -> dict[str, str]:
    """Settings of a session that resolve a path without a host; none if it is local."""
    if spark is None or has_host(path):
        return {}
    if not hasattr(spark, "_jsparkSession"):
        default = spark.conf.get(DEFAULT_FS, None) or spark.conf.get(_OF_SPARK + DEFAULT_FS, None)
        return {DEFAULT_FS: default or "", USER: user_name()}
    own = spark.conf.get(DEFAULT_FS, None)
    if is_local(own or str(spark.sparkContext._jsc.hadoopConfiguration().get(DEFAULT_FS))):
        return {}  # without copying all settings
    jvm: Any = spark._jvm
    conf, hadoop = spark._jsparkSession.sessionState().newHadoopConf(), jvm.org.apache.hadoop
    user = hadoop.security.UserGroupInformation.getCurrentUser().getShortUserName()
    others = {name: conf.get(name) for name in OF_PATHS}
    known = {
        **others, DEFAULT_FS: hadoop.fs.FileSystem.getDefaultUri(conf).toString(), USER: user
    }  # fmt: skip
    return {name: str(text) for name, text in known.items() if text}


def session_hadoop(spark: SparkSession | None, path: str) -> dict[str, str]:
    """The settings of a session for the store of ``path``, under Hadoop's names."""
    prefix = hadoop_prefix(path)
    if not prefix or spark is None:
        return {}
    if hasattr(spark, "_jsparkSession"):
        return dict(_of_classic(spark, prefix))
    known = dict(spark.conf.getAll)
    of_spark = {
        name.removeprefix(_OF_SPARK): text
        for name, text in known.items()
        if name.startswith(_OF_SPARK)
    }
    return hadoop_of(path, {**of_spark, **known})


def _of_classic(spark: Any, prefix: str | tuple[str, ...]) -> Iterator[tuple[str, str]]:
    """Yield settings that differ from Hadoop's defaults, and secrets of its credential files."""
    conf, jvm = spark._jsparkSession.sessionState().newHadoopConf(), spark._jvm
    writer = jvm.java.io.StringWriter()
    conf.writeXml(writer)  # in one call, as there are a thousand settings
    has_files = False
    for one in ElementTree.fromstring(writer.toString()):
        name, source = one.findtext("name") or "", one.findtext("source")
        is_set = not (source or "").endswith(_DEFAULTS) and bool(
            (one.findtext("value") or "").strip()
        )
        if name.startswith(prefix) and is_set:
            yield name, str(conf.get(name))  # with variables replaced
        has_files |= name.endswith(_PROVIDER_PATH) and is_set
    if has_files:
        yield from _of_credential_files(conf, jvm, prefix)


def _of_credential_files(
    conf: Any, jvm: Any, prefix: str | tuple[str, ...]
) -> Iterator[tuple[str, str]]:
    """Secrets that Hadoop keeps in files, ``hadoop.security.credential.provider.path``."""
    factory = jvm.org.apache.hadoop.security.alias.CredentialProviderFactory
    for provider in factory.getProviders(conf):
        for alias in provider.getAliases():
            if alias.startswith(prefix):
                secret = provider.getCredentialEntry(alias).getCredential()
                yield alias, "".join(secret)
