"""What Hadoop's settings mean for a store, and what takes precedence over them."""

import pickle
import re
from pathlib import Path

import pytest

from pyspark_lance.errors import InvalidInputError, UnsupportedFeatureError
from pyspark_lance.store.hadoop_options import (
    PREFIXES,
    hadoop_of,
    resolve_path,
    settings_of_site,
    with_scheme,
    working_directory,
)
from pyspark_lance.store.storage_options import hadoop_as_storage, parse_storage_options
from pyspark_lance.table.version.table import Table

_S3A = "org.apache.hadoop.fs.s3a."
KEYS = {"fs.s3a.access.key": "AKIA1", "fs.s3a.secret.key": "shh-secret"}


def s3(settings, bucket="b", **given):
    return parse_storage_options("s3", {**settings, **given}, bucket=bucket).arguments


def azure(settings, authority="c@acct.dfs.core.windows.net", **given):
    return parse_storage_options("abfs", {**settings, **given}, bucket=authority).arguments


def google(settings, **given):
    return parse_storage_options("gcs", {**settings, **given}, bucket="b").arguments


def test_s3a_settings_are_translated():
    assert s3(
        {
            **KEYS,
            "fs.s3a.session.token": "token-1",
            "fs.s3a.endpoint": "minio.example:9000",
            "fs.s3a.connection.ssl.enabled": "false",
            "fs.s3a.path.style.access": "true",
            "fs.s3a.endpoint.region": "eu-central-1",
            "fs.s3a.encryption.algorithm": "SSE-KMS",
            "fs.s3a.encryption.key": "arn:key",
            "fs.s3a.requester.pays.enabled": "true",
            "fs.s3a.proxy.host": "proxy",
            "fs.s3a.proxy.port": "8080",
        }
    ) == {
        "key": "AKIA1",
        "secret": "shh-secret",
        "token": "token-1",
        "endpoint_url": "http://minio.example:9000",
        "client_kwargs": {"region_name": "eu-central-1"},
        "config_kwargs": {
            "s3": {"addressing_style": "path"},
            "proxies": {"http": "http://proxy:8080", "https": "http://proxy:8080"},
        },
        "requester_pays": True,
        "s3_additional_kwargs": {"ServerSideEncryption": "aws:kms", "SSEKMSKeyId": "arn:key"},
    }


def test_bucket_settings_precede_general_settings():
    settings = {
        **KEYS,
        "fs.s3a.bucket.b.access.key": "AKIA2",
        "fs.s3a.bucket.b.secret.key": "another-secret",
        "fs.s3a.bucket.other.endpoint": "http://other",
    }
    assert s3(settings) == {"key": "AKIA2", "secret": "another-secret"}
    assert s3(settings, "c") == {"key": "AKIA1", "secret": "shh-secret"}
    assert s3(settings, "other")["endpoint_url"] == "http://other"


@pytest.mark.parametrize(
    ("endpoint", "region"),
    [
        ("s3.amazonaws.com", None),
        ("s3.eu-west-1.amazonaws.com", "eu-west-1"),
        ("https://s3-us-gov-west-1.amazonaws.com", "us-gov-west-1"),
    ],
)
def test_amazon_endpoint_sets_only_region(endpoint, region):
    expected = {} if region is None else {"client_kwargs": {"region_name": region}}
    assert s3({"fs.s3a.endpoint": endpoint}) == expected


@pytest.mark.parametrize(
    ("endpoint", "paths", "style"),
    [
        ("oss.example", None, "virtual"),
        ("oss.example", "true", "path"),
        ("http://127.0.0.1:9000", None, "path"),
        ("http://[::1]:9000", None, "path"),
        ("http://localhost:9000", "false", "path"),
    ],
)
def test_addressing_style_follows_s3a(endpoint, paths, style):
    settings = {"fs.s3a.endpoint": endpoint}
    if paths is not None:
        settings["fs.s3a.path.style.access"] = paths
    assert s3(settings)["config_kwargs"]["s3"]["addressing_style"] == style


TOKEN = {**KEYS, "fs.s3a.session.token": "token-1"}
KEY, TEMPORARY = {"key": "AKIA1", "secret": "shh-secret"}, {
    "key": "AKIA1", "secret": "shh-secret", "token": "token-1",
}  # fmt: skip


@pytest.mark.parametrize(
    ("providers", "settings", "expected"),
    [
        (None, KEYS, KEY),
        (None, TOKEN, TEMPORARY),
        (None, {"fs.s3a.access.key": "AKIA1"}, {}),
        ("SimpleAWSCredentialsProvider", TOKEN, KEY),
        ("TemporaryAWSCredentialsProvider", TOKEN, TEMPORARY),
        ("TemporaryAWSCredentialsProvider", KEYS, {}),
        ("TemporaryAWSCredentialsProvider,\n  SimpleAWSCredentialsProvider", KEYS, KEY),
        ("AnonymousAWSCredentialsProvider", TOKEN, {"anon": True}),
        ("SimpleAWSCredentialsProvider,AnonymousAWSCredentialsProvider", {}, {"anon": True}),
        ("auth.IAMInstanceCredentialsProvider", KEYS, {}),
        ("auth.IAMInstanceCredentialsProvider,SimpleAWSCredentialsProvider", KEYS, {}),
        (
            "auth.ProfileAWSCredentialsProvider",
            {"fs.s3a.auth.profile.name": "me"},
            {"profile": "me"},
        ),
    ],
)
def test_first_provider_with_credentials_wins(providers, settings, expected):
    if providers is not None:
        named = (_S3A + name.strip() for name in providers.split(","))
        settings = {**settings, "fs.s3a.aws.credentials.provider": ",\n ".join(named)}
    assert s3(settings) == expected


@pytest.mark.parametrize(
    "provider",
    [
        "software.amazon.awssdk.auth.credentials.EnvironmentVariableCredentialsProvider",
        "software.amazon.awssdk.auth.credentials.DefaultCredentialsProvider",
        "com.amazonaws.auth.DefaultAWSCredentialsProviderChain",
        "com.amazonaws.auth.WebIdentityTokenCredentialsProvider",
    ],
)
def test_boto3_providers_set_no_credentials(provider):
    assert s3({**KEYS, "fs.s3a.aws.credentials.provider": provider}) == {}


@pytest.mark.parametrize(
    "provider",
    [
        "com.example.DefaultCredentialsProvider",
        f"{_S3A}auth.AssumedRoleCredentialProvider",
        "com.example.Anything",
    ],
)
def test_java_only_provider_error_names_class(provider):
    settings = {**KEYS, "fs.s3a.aws.credentials.provider": provider}
    with pytest.raises(UnsupportedFeatureError) as caught:
        s3(settings)
    assert provider in str(caught.value)
    assert "shh-secret" not in str(caught.value)
    assert s3(settings, anon="false") == {"anon": False}
    with pytest.raises(UnsupportedFeatureError, match="CSE-KMS"):
        s3({"fs.s3a.encryption.algorithm": "CSE-KMS"})
    old = {
        "fs.s3a.server-side-encryption-algorithm": "SSE-KMS",
        "fs.s3a.server-side-encryption.key": "arn:key",
    }
    new = {"fs.s3a.encryption.algorithm": "SSE-KMS", "fs.s3a.encryption.key": "arn:key"}
    assert s3(old) == s3(new) != s3({})


@pytest.mark.parametrize(
    "given",
    [{"key": "AKIA3", "secret": "mine"}, {"aws_session_token": "t"}, {"skip_signature": "true"},
     {"aws_profile": "p"}],
)  # fmt: skip
def test_explicit_credential_disables_hadoop_credentials(given):
    expected = parse_storage_options("s3", given).arguments
    assert s3(TOKEN, **given) == expected
    with_endpoint = s3({**TOKEN, "fs.s3a.endpoint": "http://h"}, **given)
    assert with_endpoint["endpoint_url"] == "http://h"
    assert "shh-secret" not in str(with_endpoint)


def test_explicit_options_precede_hadoop_settings():
    settings = {
        "fs.s3a.endpoint": "h:1",
        "fs.s3a.path.style.access": "true",
        "fs.s3a.connection.ssl.enabled": "false",
        "fs.s3a.endpoint.region": "eu-west-1",
    }
    assert s3(settings, region="us-east-2")["client_kwargs"] == {"region_name": "us-east-2"}
    own = s3(settings, aws_endpoint="https://mine", virtual_hosted_style_request="true")
    assert own["endpoint_url"] == "https://mine"
    assert own["config_kwargs"]["s3"]["addressing_style"] == "virtual"
    assert s3(settings, allow_http="true")["endpoint_url"] == "http://h:1"
    assert s3({"fs.s3a.connection.ssl.enabled": "false"}) == {"use_ssl": False}


def test_azure_settings_are_translated():
    host = "acct.dfs.core.windows.net"
    assert azure({f"fs.azure.account.key.{host}": "k1"}) == {"account_key": "k1"}
    blob = {"fs.azure.account.key.acct.blob.core.windows.net": "k2"}
    assert azure(blob) == {"account_key": "k2"}
    assert azure(blob, "c@another.dfs.core.windows.net") == {}
    sas = {f"fs.azure.account.auth.type.{host}": "SAS", "fs.azure.sas.fixed.token": "?sv=1&sig=x"}
    assert azure(sas) == {"sas_token": "sv=1&sig=x"}
    assert azure(sas, sas_token="mine") == {"sas_token": "mine"}
    oauth = {
        "fs.azure.account.auth.type": "OAuth",
        "fs.azure.account.oauth.provider.type": "org.apache.hadoop.fs.azurebfs.oauth2."
        "ClientCredsTokenProvider",
        f"fs.azure.account.oauth2.client.id.{host}": "id",
        "fs.azure.account.oauth2.client.secret": "secret",
        "fs.azure.account.oauth2.client.endpoint": "https://login.microsoftonline.com/tid/oauth2/token",
    }
    assert azure(oauth) == {"client_id": "id", "client_secret": "secret", "tenant_id": "tid"}
    name = "fs.azure.account.oauth.provider.type"
    assert azure({**oauth, name: "org.apache.hadoop.fs.azurebfs.oauth2.MsiTokenProvider"}) == {
        "anon": False
    }
    with pytest.raises(UnsupportedFeatureError, match=r"com\.example\.Mine"):
        azure({**oauth, name: "com.example.Mine"})
    with pytest.raises(UnsupportedFeatureError, match="Custom"):
        azure({"fs.azure.account.auth.type": "Custom"})
    for kind, missing in (("SAS", "sas.fixed.token"), ("OAuth", "account.oauth.provider.type")):
        with pytest.raises(
            InvalidInputError, match=f"is {kind}, and fs.azure.{missing} is not set"
        ):
            azure({"fs.azure.account.auth.type": kind})
    with pytest.raises(UnsupportedFeatureError, match=r"com\.example\.Mine"):
        azure(
            {
                **sas,
                "fs.azure.sas.fixed.token": "",
                "fs.azure.sas.token.provider.type": "com.example.Mine",
            }
        )
    with pytest.raises(InvalidInputError, match="belong together"):
        azure({**oauth, "fs.azure.account.oauth2.client.endpoint": ""})


def test_google_settings_are_translated():
    assert google({"fs.gs.auth.service.account.json.keyfile": "/k.json"}) == {"token": "/k.json"}
    file = {"fs.gs.auth.service.account.json.keyfile": "/k.json", "fs.gs.project.id": "p"}
    assert google(file, anon="true") == {"token": "anon", "project": "p"}
    inline = {
        "fs.gs.auth.service.account.email": "me@p",
        "fs.gs.auth.service.account.private.key": "-----BEGIN\\nx",
        "fs.gs.storage.root.url": "http://127.0.0.1:4443/",
    }
    found = google(inline)
    assert found["token"]["private_key"] == "-----BEGIN\nx"
    assert found["endpoint_url"] == "http://127.0.0.1:4443"
    assert google({"fs.gs.auth.type": "UNAUTHENTICATED"}) == {"token": "anon"}
    assert google({"fs.gs.auth.type": "COMPUTE_ENGINE"}) == {}
    with pytest.raises(UnsupportedFeatureError, match="ACCESS_TOKEN_PROVIDER"):
        google({"fs.gs.auth.type": "ACCESS_TOKEN_PROVIDER"})
    with pytest.raises(InvalidInputError, match="belong together"):
        google({"fs.gs.auth.service.account.email": "me@p"})


def test_table_uses_only_settings_of_its_store():
    settings = {**KEYS, "fs.gs.project.id": "p", "fs.azure.account.key": "k"}
    for scheme in ("s3", "S3A", "s3n", "s3+ddb"):
        assert hadoop_of(f"{scheme}://b/t", settings) == KEYS
    assert hadoop_of("abfss://c@a/t", settings) == {"fs.azure.account.key": "k"}
    assert hadoop_of("gs://b/t", settings) == {"fs.gs.project.id": "p"}
    for path in ("/data/t", "file:///data/t", "memory://t", "hdfs://h/t"):
        assert hadoop_of(path, settings) == {}
    assert hadoop_as_storage("s3a://b/t", KEYS) == {"key": "AKIA1", "secret": "shh-secret"}
    assert hadoop_as_storage("/data/t", KEYS) == {}


def test_hadoop_secrets_are_hidden():
    parsed = parse_storage_options("s3", KEYS)
    assert parsed.scrub("denied for AKIA1 with shh-secret") == "denied for *** with ***"
    table = Table("s3://b/t", KEYS)
    assert b"shh-secret" not in pickle.dumps(table)
    assert "shh-secret" not in repr(table) + repr(parsed)
    assert pickle.loads(pickle.dumps(table)) == table


HOME = {"fs.defaultFS": "hdfs://nn:8020/ignored", "user.name": "ann"}


@pytest.mark.parametrize(
    ("path", "settings", "uri"),
    [
        ("/data/t", {}, "/data/t"),
        ("data/t", {"fs.defaultFS": "file:///some/root"}, "data/t"),
        ("/data/t", HOME, "hdfs://nn:8020/data/t"),
        ("/data/a%20b$history", HOME, "hdfs://nn:8020/data/a%20b$history"),
        ("data/t", HOME, "hdfs://nn:8020/user/ann/data/t"),
        ("a:b", HOME, "hdfs://nn:8020/user/ann/a:b"),
        ("data/t", {**HOME, "dfs.user.home.dir.prefix": "/homes/"}, "hdfs://nn:8020/homes/ann/data/t"),
        ("t", {"fs.defaultFS": "s3a://bucket", "user.name": "ann"}, "s3a://bucket/user/ann/t"),
        ("t", {"fs.defaultFS": "gs://bucket", "user.name": "ann"}, "gs://bucket/t"),
        ("t", {"fs.defaultFS": "gs://b", "fs.gs.working.dir": "/w/x"}, "gs://b/w/x/t"),
        ("hdfs:///data/t", HOME, "hdfs://nn:8020/data/t"),
        ("HDFS:/data/t", HOME, "hdfs://nn:8020/data/t"),
        ("hdfs://other/data/t", HOME, "hdfs://other/data/t"),
        ("file:///data/t", HOME, "file:///data/t"),
        ("file:/data/t", HOME, "file:/data/t"),
        ("s3:///data/t", HOME, "s3:///data/t"),
        ("/data/t", {"fs.defaultFS": "viewfs:///"}, "viewfs:///data/t"),
        ("t", {**HOME, "storage.Working_Directory": "s3://b/x/"}, "s3://b/x/t"),
        ("/t", {"working_directory": "s3://b/x"}, "s3://b/t"),
    ],
)  # fmt: skip
def test_paths_are_resolved_as_hadoop_does(path, settings, uri):
    assert resolve_path(path, settings) == uri
    assert resolve_path(uri, settings) == uri or not working_directory(settings)


def test_plugin_sends_all_settings_of_stores():
    source = Path(__file__).parents[2] / "src/plugin/org/pysparklance/python/HadoopSettings.java"
    listed = source.read_text().partition("PREFIXES = List.of(")[2].partition(")")[0]
    assert sorted(re.findall(r'"(.+?)"', listed)) == sorted(PREFIXES)


def test_name_services_are_settings_of_hdfs_only():
    settings = {**KEYS, "dfs.nameservices": "a", "fs.viewfs.mounttable.c.link./x": "hdfs://a/x"}
    settings["dfs.datanode.data.dir"] = "/disk"
    settings |= {"hadoop.security.authentication": "kerberos", "dfs.data.transfer.protection": "x"}
    found = hadoop_of("hdfs://a/t", settings)
    assert set(found) == set(settings) - set(KEYS) - {"dfs.datanode.data.dir"}
    assert hadoop_of("viewfs://c/x", settings) == found
    assert hadoop_of("s3a://b/t", settings) == KEYS
    assert hadoop_as_storage("hdfs://A/t", {"dfs.ha.namenodes.A": "N"}) == {
        "dfs.ha.namenodes.A": "N"
    }


def test_local_paths_of_catalogs_stay_local():
    assert with_scheme("/data/t", {}) == "/data/t"
    assert with_scheme("/data/t", HOME) == "file:///data/t"
    assert with_scheme("s3://b/t", HOME) == "s3://b/t"


def test_core_site_says_what_paths_mean(tmp_path, monkeypatch):
    for name in ("SPARK_CONF_DIR", "SPARK_HOME", "HADOOP_CONF_DIR", "YARN_CONF_DIR"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("HADOOP_USER_NAME", "ann")
    assert settings_of_site() == {}
    of_spark, of_hadoop = tmp_path / "spark" / "conf", tmp_path / "hadoop"
    for folder, host in ((of_hadoop, "of-hadoop"), (of_spark, "of-spark")):
        folder.mkdir(parents=True)
        site = f"<property><name>fs.defaultFS</name><value> hdfs://{host} </value></property>"
        (folder / "core-site.xml").write_text(f"<configuration>{site}</configuration>")
    monkeypatch.setenv("HADOOP_CONF_DIR", str(of_hadoop))
    assert resolve_path("t", settings_of_site()) == "hdfs://of-hadoop/user/ann/t"
    monkeypatch.setenv("SPARK_HOME", str(tmp_path / "spark"))
    assert settings_of_site()["fs.defaultFS"] == "hdfs://of-spark"


def test_working_directory_is_no_argument_of_a_store():
    assert "working_directory" not in s3({"storage.working_directory": "s3://b/x"})


def test_relative_path_in_folder_of_session_is_refused(monkeypatch):
    monkeypatch.setenv("SPARK_JOB_ARTIFACT_UUID", "6ad5b54c-8a6b-4b7e-8f5a-d35a2cfb8f0c")
    with pytest.raises(InvalidInputError, match="temporary folder of the session"):
        resolve_path("data/t", {})
    for path in ("/data/t", "~/t", "s3://bucket/t"):
        assert resolve_path(path, {}) == path
    monkeypatch.setenv("SPARK_JOB_ARTIFACT_UUID", "default")
    assert resolve_path("data/t", {}) == "data/t"
