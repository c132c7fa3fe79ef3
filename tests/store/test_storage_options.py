import json
import pickle
import re
import traceback
from pathlib import Path
from urllib.parse import quote

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pyspark_lance.errors import InvalidInputError, StorageError
from pyspark_lance.store import storage_options
from pyspark_lance.store.storage_options import StorageOptions, parse_storage_options


def arguments(protocol, bucket="", **options):
    return parse_storage_options(protocol, options, bucket=bucket).arguments


@pytest.mark.parametrize("name", ["aws_access_key_id", "access_key_id", "key", "AWS_ACCESS_KEY_ID"])
@pytest.mark.parametrize("prefix", ["", "storage."])
def test_access_key_names_are_equivalent(name, prefix):
    assert parse_storage_options("s3", {prefix + name: "AKIA1"}).arguments == {"key": "AKIA1"}


def test_object_store_names_become_s3fs_arguments():
    assert arguments(
        "s3",
        aws_access_key_id="AKIA1",
        aws_secret_access_key="shh-secret",
        aws_session_token="token-1",
        aws_region="eu-central-1",
        aws_endpoint="http://127.0.0.1:9000",
        allow_http="true",
        timeout="30s",
        connect_timeout="500ms",
        aws_request_payer="true",
        aws_server_side_encryption="aws:kms",
        aws_sse_kms_key_id="arn:key",
        client_max_retries="7",
        allow_invalid_certificates="true",
    ) == {
        "key": "AKIA1",
        "secret": "shh-secret",
        "token": "token-1",
        "client_kwargs": {"region_name": "eu-central-1", "verify": False},
        "endpoint_url": "http://127.0.0.1:9000",
        "requester_pays": True,
        "config_kwargs": {
            "read_timeout": 30.0,
            "connect_timeout": 0.5,
            "retries": {"max_attempts": 7},
            "s3": {"addressing_style": "path"},
        },
        "s3_additional_kwargs": {"ServerSideEncryption": "aws:kms", "SSEKMSKeyId": "arn:key"},
    }


def test_fsspec_option_names_pass_through():
    assert arguments(
        "s3",
        secret="123456",
        client_kwargs='{"region_name": "x", "verify": false}',
        aws_region="x",
        default_block_size="1048576",
        cache_regions="true",
        unheard_of="value",
    ) == {
        "secret": "123456",
        "client_kwargs": {"region_name": "x", "verify": False},
        "default_block_size": 1048576,
        "cache_regions": True,
        "unheard_of": "value",
    }


def test_plain_bucket_needs_no_options():
    assert arguments("s3") == {}
    assert arguments("s3", skip_signature="true") == {"anon": True}


def test_endpoint_without_scheme_gets_one():
    assert arguments("s3", endpoint="minio:9000")["endpoint_url"] == "https://minio:9000"
    plain = arguments("s3", endpoint="minio:9000", allow_http="true")
    assert plain["endpoint_url"] == "http://minio:9000"


def test_forbidden_http_endpoint_is_refused():
    with pytest.raises(InvalidInputError, match="allow_http"):
        arguments("s3", endpoint="http://minio:9000", allow_http="false")


def test_virtual_hosted_endpoint_drops_bucket():
    found = arguments(
        "s3",
        bucket="mine",
        endpoint="https://mine.oss.example.com",
        aws_virtual_hosted_style_request="true",
    )
    assert found["endpoint_url"] == "https://oss.example.com"
    assert found["config_kwargs"]["s3"]["addressing_style"] == "virtual"


def test_misspelled_option_error_suggests_nearest():
    with pytest.raises(InvalidInputError, match="did you mean 'aws_secret_access_key'"):
        arguments("s3", aws_secret_acces_key="shh")


def test_conflicting_options_are_refused_without_values():
    with pytest.raises(InvalidInputError, match="disagree") as caught:
        arguments("s3", aws_region="a-region", region="b-region")
    assert "a-region" not in str(caught.value)
    assert arguments("s3", aws_region="a", region="a") == {"client_kwargs": {"region_name": "a"}}


@pytest.mark.parametrize(
    ("name", "text"),
    [
        ("allow_http", "perhaps"),
        ("timeout", "hunter22"),
        ("client_kwargs", '{"aws_secret_access_key": "hunter22"'),
        ("client_max_retries", "hunter22"),
        ("allow_unsafe_put", "hunter22"),
    ],
)
def test_invalid_value_error_hides_value(name, text):
    with pytest.raises(InvalidInputError, match=name) as caught:
        arguments("s3", **{name: text})
    assert text not in "".join(traceback.format_exception(caught.value))


def test_azure_and_google_options_are_translated():
    assert arguments(
        "abfs", azure_storage_account_name="acc", azure_storage_account_key="a2V5"
    ) == {"account_name": "acc", "account_key": "a2V5"}
    assert arguments("gcs", google_service_account="/key.json") == {"token": "/key.json"}
    key = {"client_email": "a@b", "private_key": "pem-text"}
    parsed = parse_storage_options("gcs", {"google_service_account_key": json.dumps(key)})
    assert parsed.arguments == {"token": key}
    assert parsed.scrub("bad key pem-text") == "bad key ***"


def test_unsafe_put_requires_option():
    assert parse_storage_options("sftp", {}).allow_unsafe_put is False
    parsed = parse_storage_options("sftp", {"storage.allow_unsafe_put": "true", "port": "2222"})
    assert parsed.allow_unsafe_put is True
    assert parsed.arguments == {"port": 2222}


def test_repr_hides_option_values():
    parsed = parse_storage_options("s3", {"aws_secret_access_key": "hunter22", "key": "AKIA99"})
    for text in (repr(parsed), str(parsed), f"{parsed}"):
        assert "hunter22" not in text
        assert "AKIA99" not in text
        assert "secret=***" in text


def test_options_pickle():
    parsed = parse_storage_options("s3", {"key": "AKIA99"})
    assert pickle.loads(pickle.dumps(parsed)) == parsed


@pytest.mark.parametrize(
    ("text", "hidden"),
    [
        ("GET https://b.s3.amazonaws.com/k?X-Amz-Signature=abc123&x=1", "abc123"),
        ("https://h/k?X-Amz-Credential=AKIA%2F2026&X-Amz-Date=1", "AKIA"),
        ("https://h/k?X-Amz-Security-Token=tok123", "tok123"),
        ("https://acc.blob.core.windows.net/c/b?sv=2021&sig=s1gn%3D", "s1gn"),
        ("https://h/k?AWSAccessKeyId=AKIA5&Signature=abc", "AKIA5"),
        ("proxy http://user:pa55word@proxy:3128", "pa55word"),
        ("Authorization: Bearer ya29.token", "ya29"),
        ("Credential=AKIA7/2026/us-east-1/s3/aws4_request", "AKIA7"),
    ],
)
def test_signed_urls_and_url_credentials_are_scrubbed(text, hidden):
    assert hidden not in StorageOptions({}).scrub(text)


@given(
    secret=st.text(st.characters(codec="ascii", categories=["L", "N", "P"]), min_size=4),
    around=st.text(max_size=20),
)
@example(secret='{"not json', around="")
@example(secret="[]]{}", around="a")
@example(secret="a%2Fb+c/d==", around="")
def test_no_secret_survives_scrubbing(secret, around):
    if secret.lower() in ("true", "false"):
        return
    parsed = parse_storage_options("s3", {"aws_secret_access_key": secret})
    for text in (f"{around}{secret} {secret}", quote(secret, safe=""), quote(secret)):
        assert secret not in parsed.scrub(text).replace("***", "")
        assert quote(secret) not in parsed.scrub(text).replace("***", "")


def test_cause_with_secret_is_replaced():
    parsed = parse_storage_options("s3", {"aws_secret_access_key": "hunter22"})
    harmless = OSError("disk")
    assert parsed.safe_cause(harmless) is harmless
    telling = ValueError("outer")
    telling.__cause__ = OSError("no access with hunter22")
    stand_in = parsed.safe_cause(telling)
    error = StorageError("cannot read")
    error.__cause__ = stand_in
    assert "hunter22" not in "".join(traceback.format_exception(error))
    assert "ValueError: outer" in str(stand_in)


def test_documented_option_names_are_known():
    text = (Path(__file__).parents[2] / "docs" / "storage.md").read_text(encoding="utf-8")
    table = text.partition("| for | S3 |")[2].partition("\n\n")[0]
    rows = [line.split("|")[2:5] for line in table.splitlines()[2:]]
    assert len(rows) >= 6
    for protocol, cells in zip(("s3", "gcs", "abfs"), zip(*rows, strict=True), strict=True):
        names = [name for cell in cells for name in re.findall(r"`(\w+)`", cell)]
        known = storage_options._TABLES[protocol]
        unknown = [n for n in names if n not in known and not n.endswith("_")]
        assert names
        assert not unknown, protocol
