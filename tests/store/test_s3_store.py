import contextlib
import json
import multiprocessing
import os
import signal
import sys
import threading
import traceback

import pyarrow as pa
import pytest
from s3_server import s3_server, s3_table_root  # noqa: F401
from store_conformance import StoreConformance, paths

from pyspark_lance.errors import CorruptFileError, StorageError
from pyspark_lance.store import s3_requests
from pyspark_lance.store.object_store import ByteRange
from pyspark_lance.store.open_store import open_store
from pyspark_lance.table.version.snapshot import Snapshot
from pyspark_lance.table.version.table import Table
from pyspark_lance.table.write.write_plan import WriteSettings
from pyspark_lance.table.write.write_table import create_table

pytestmark = pytest.mark.s3


@pytest.fixture(params=["s3fs", "obstore"])
def options(request, s3_server):  # noqa: F811
    return s3_server.options | {"s3_client": request.param}


@pytest.fixture
def store(s3_table_root, options):  # noqa: F811
    return open_store(s3_table_root, options)


class TestS3Store(StoreConformance):
    @pytest.fixture
    def store(self, s3_table_root, options):  # noqa: F811
        return open_store(s3_table_root, options)


def _bucket(root):
    return root.split("/")[2]


def _requests(server, call):
    server.requests.clear()
    result = call()
    return result, [method for method, *_ in server.requests]


def test_read_takes_one_request(s3_server, store):  # noqa: F811
    store.put("x", b"0123456789" * 1000)
    for call in (
        lambda: store.get("x"),
        lambda: store.get_tail("x", 100),
        lambda: store.get_tail("x", 1 << 20),
        lambda: store.get_range("x", 5, 50),
        lambda: store.get_ranges("x", [ByteRange(0, 5), ByteRange(1000, 1005), ByteRange(3, 9)]),
    ):
        assert _requests(s3_server, call)[1] == ["GET"]
    assert _requests(s3_server, lambda: store.size("x"))[1] == ["HEAD"]
    assert _requests(s3_server, lambda: store.exists("nothing"))[1] == ["HEAD"]
    assert _requests(s3_server, lambda: store.put_if_absent("y", b"1"))[1] == ["PUT"]


def test_distant_ranges_are_separate_requests(s3_server, store):  # noqa: F811
    content = os.urandom(4 << 20)
    store.put("x", content)
    wanted = [ByteRange(3 << 20, (3 << 20) + 10), ByteRange(0, 10), ByteRange(20, 30)]
    found, methods = _requests(s3_server, lambda: store.get_ranges("x", wanted))
    assert methods == ["GET", "GET"]
    assert [bytes(piece) for piece in found] == [content[a:b] for a, b in wanted]


def test_first_listed_object_takes_one_page(s3_server, store):  # noqa: F811
    for number in range(3):
        store.put(f"v/{number}", b"x")
    first, methods = _requests(s3_server, lambda: next(store.list("v")))
    assert first.path == "v/0"
    assert methods == ["GET"]


def test_listing_spans_all_pages(
    s3_server,  # noqa: F811
    s3_table_root,  # noqa: F811
    store,
    monkeypatch,
):
    monkeypatch.setenv("MOTO_S3_DEFAULT_MAX_KEYS", "10")
    monkeypatch.setattr(s3_requests, "MAX_KEYS_PER_DELETE", 20)
    client, bucket = s3_server.client(), _bucket(s3_table_root)
    for number in range(25):
        store.put(f"v/{number:04}", b"x")
    client.put_object(Bucket=bucket, Key="warehouse/table/v/", Body=b"")  # as consoles do
    client.put_object(Bucket=bucket, Key="warehouse/table2/v/0", Body=b"")
    found, methods = _requests(s3_server, lambda: paths(store))
    assert found == [f"v/{number:04}" for number in range(25)]
    # obstore looks up what may be a folder of a console.
    assert [method for method in methods if method != "HEAD"] == ["GET", "GET", "GET"]
    _, methods = _requests(s3_server, lambda: store.delete_many(found))
    assert methods == ["POST", "POST"]
    assert paths(store) == []
    assert bytes(open_store(s3_table_root + "2", s3_server.options).get("v/0")) == b""


def _race(root, options, barrier, results, me):
    mine = open_store(root, options)
    for number in range(10):
        barrier.wait()
        if mine.put_if_absent(f"_versions/{number}.manifest", b"%d" % me):
            results.put((number, me))


def test_concurrent_processes_create_each_object_once(
    s3_server,  # noqa: F811
    s3_table_root,  # noqa: F811
):
    context = multiprocessing.get_context("spawn")
    barrier, results = context.Barrier(2), context.Queue()
    racers = [
        context.Process(target=_race, args=(s3_table_root, s3_server.options, barrier, results, me))
        for me in (1, 2)
    ]
    for racer in racers:
        racer.start()
    winners = [results.get(timeout=60) for _ in range(10)]
    for racer in racers:
        racer.join(60)
        assert racer.exitcode == 0
    assert results.empty()
    store = open_store(s3_table_root, s3_server.options)
    for number, me in winners:
        assert bytes(store.get(f"_versions/{number}.manifest")) == b"%d" % me


def test_s3_store_works_after_fork(store):
    store.put("x", b"parent")
    child = os.fork()
    if child == 0:
        # A child that waits for threads of its parent ends by the signal.
        signal.signal(signal.SIGALRM, signal.SIG_DFL)
        signal.alarm(30)
        code = 1
        with contextlib.suppress(BaseException):
            if bytes(store.get("x")) == b"parent" and store.put_if_absent("y", b"child"):
                code = 0
        os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    assert bytes(store.get("y")) == b"child"
    assert bytes(store.get("x")) == b"parent"


def test_aborted_upload_is_removed(s3_server, s3_table_root, store):  # noqa: F811
    client, bucket = s3_server.client(), _bucket(s3_table_root)
    output = store.open_output("data/x.lance")
    for _ in range(5):
        output.write(bytes(5 << 20))
    assert len(client.list_multipart_uploads(Bucket=bucket)["Uploads"]) == 1
    output.abort()
    assert "Uploads" not in client.list_multipart_uploads(Bucket=bucket)
    del output
    assert paths(store) == []


def test_upload_uses_parts(s3_server, s3_table_root, store):  # noqa: F811
    output = store.open_output("data/x.lance")
    for _ in range(20):
        output.write(bytes(2 << 20))
    s3_server.requests.clear()
    output.close()
    head = s3_server.client().head_object(
        Bucket=_bucket(s3_table_root), Key="warehouse/table/data/x.lance"
    )
    assert head["ContentLength"] == 40 << 20
    assert head["ETag"].strip('"').endswith("-3")


def test_repeated_put_if_absent_returns_false(
    s3_server,  # noqa: F811
    store,
):
    s3_server.lose_answers.append("PUT")
    created, methods = _requests(s3_server, lambda: store.put_if_absent("x", b"ours"))
    assert methods == ["PUT", "PUT"]
    assert created is False
    assert bytes(store.get("x")) == b"ours"


def test_reads_and_puts_survive_server_error(s3_server, store):  # noqa: F811
    s3_server.lose_answers.extend(["PUT", "GET", "HEAD"])
    store.put("x", b"ours")
    assert bytes(store.get_range("x", 0, 2)) == b"ou"
    assert store.size("x") == 4
    assert s3_server.lose_answers == []


def test_missing_bucket_is_storage_error(options):
    store = open_store("s3://no-such-bucket/t", options)
    for call in (
        lambda: store.put("x", b""),
        lambda: store.put_if_absent("x", b""),
        lambda: list(store.list("")),
    ):
        with pytest.raises(StorageError, match="no-such-bucket") as caught:
            call()
        assert isinstance(caught.value.__cause__, FileNotFoundError)
    with pytest.raises(FileNotFoundError):
        store.get("x")


def test_truncated_object_is_corrupt(store):
    store.put("x", bytes(1000))
    assert store.size("x") == 1000
    store.put("x", bytes(10))
    with pytest.raises(CorruptFileError):
        store.get_range("x", 900, 1000)
    with pytest.raises(CorruptFileError):
        store.get_range("x", 5, 1000)


def test_unreachable_server_error_hides_secrets(s3_server, options):  # noqa: F811
    options = options | {
        "aws_endpoint": "http://127.0.0.1:1",
        "aws_session_token": "session/token+1=",
        "client_max_retries": "0",
        "connect_timeout": "200ms",
    }
    store = open_store("s3://bucket/t", options)
    with pytest.raises(StorageError) as caught:
        store.get("x")
    shown = "".join(traceback.format_exception(caught.value)) + repr(store)
    for secret in (s3_server.access_key, s3_server.secret_key, "session/token", "session%2Ftoken"):
        assert secret not in shown


def test_missing_credentials_error_has_hint(s3_server, monkeypatch, tmp_path):  # noqa: F811
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    store = open_store("s3://bucket/t", {"endpoint": s3_server.endpoint, "region": "us-east-1"})
    with pytest.raises(StorageError, match="skip_signature"):
        store.get("x")


CREDENTIALS = """
import datetime, json, pathlib, sys
calls = pathlib.Path(sys.argv[1])
calls.write_text(calls.read_text() + "x")
end = datetime.datetime.now(datetime.timezone.utc) + datetime.timedelta(seconds=30)
key = f"KEY{len(calls.read_text())}"
print(json.dumps({"Version": 1, "AccessKeyId": key, "SecretAccessKey": "s", "SessionToken": "t",
                  "Expiration": end.isoformat()}))
"""


@pytest.mark.parametrize("said_by", ["option", "environment"])
def test_expiring_credentials_are_renewed_by_provider_chain(
    s3_server,  # noqa: F811
    s3_table_root,  # noqa: F811
    monkeypatch,
    tmp_path,
    said_by,
):
    program, calls, config = (tmp_path / name for name in ("program.py", "calls", "config"))
    program.write_text(CREDENTIALS)
    calls.write_text("")
    config.write_text(f"[profile job]\ncredential_process = {sys.executable} {program} {calls}\n")
    monkeypatch.setenv("AWS_CONFIG_FILE", str(config))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "none"))
    options = {"endpoint_url": s3_server.endpoint, "region": "us-east-1", "allow_http": "true"}
    if said_by == "option":
        options["profile"] = "job"
    else:
        monkeypatch.setenv("AWS_PROFILE", "job")
        monkeypatch.delenv("AWS_ACCESS_KEY_ID", raising=False)
        monkeypatch.delenv("AWS_SECRET_ACCESS_KEY", raising=False)
        # s3fs keeps file systems by their arguments.
        options["client_kwargs"] = json.dumps({"use_ssl": False})
    store = open_store(s3_table_root, options)
    s3_server.access_keys.clear()
    store.put("x", b"1")
    threading.Event().wait(0.2)  # obstore asks for credentials at most ten times a second
    assert bytes(store.get("x")) == b"1"
    first, second = s3_server.access_keys
    assert first.startswith("KEY")
    # They end within less time than a client trusts them.
    assert int(second.removeprefix("KEY")) > int(first.removeprefix("KEY"))


@pytest.fixture(params=["s3fs", "obstore"])
def of_file(request, s3_server, s3_table_root, monkeypatch, tmp_path):  # noqa: F811
    """A table with keys from a file, and a function that replaces them and ends the old ones."""
    for name in ("AWS_ACCESS_KEY_ID", "AWS_SECRET_ACCESS_KEY", "AWS_SESSION_TOKEN"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_CONFIG_FILE", str(tmp_path / "none"))
    monkeypatch.setenv("AWS_SHARED_CREDENTIALS_FILE", str(tmp_path / "credentials"))
    options = {"endpoint_url": s3_server.endpoint, "region": "us-east-1", "allow_http": "true"}

    def write(key):
        (tmp_path / "credentials").write_text(
            f"[job]\naws_access_key_id = {key}\naws_secret_access_key = s\naws_session_token = t\n"
        )

    def replace_keys():
        write("second-of-file")
        s3_server.ended_keys.add("first-of-file")

    write("first-of-file")
    chosen = {"s3_client": request.param, "profile": "job"}
    yield Table(s3_table_root, options | chosen), replace_keys
    s3_server.ended_keys.clear()


@pytest.mark.parametrize("client", ["s3fs", "obstore"])
def test_expired_token_error_names_renewed_credentials(client, s3_server, s3_table_root):  # noqa: F811
    storage = {**s3_server.options, "aws_access_key_id": "ended", "s3_client": client}
    s3_server.ended_keys.add("ended")
    try:
        with pytest.raises(StorageError, match=r"token has expired: set new[^$]*renewed"):
            Table(s3_table_root, storage).store().get("x")
    finally:
        s3_server.ended_keys.clear()


def test_changed_credential_files_are_read_again(of_file):
    table, replace_keys = of_file
    first = table.store()
    first.put("x", b"1")
    replace_keys()
    with pytest.raises(StorageError, match="expired"):
        first.get("x")
    assert bytes(table.store().get("x")) == b"1"


def test_cached_versions_are_read_with_new_credentials(of_file):
    table, replace_keys = of_file
    create_table(table, pa.schema([("id", pa.int64())]), WriteSettings())
    old = Snapshot.open(table)
    replace_keys()
    found = Snapshot.open(table)
    assert found.file is old.file  # from the cache
    assert list(found.store.list("_versions"))


def test_equal_options_share_connections(
    s3_server,  # noqa: F811
    s3_table_root,  # noqa: F811
):
    options = s3_server.options | {"s3_client": "s3fs"}
    first, second = (open_store(s3_table_root, options) for _ in range(2))
    assert first._fs is second._fs
