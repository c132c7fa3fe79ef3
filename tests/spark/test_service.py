"""The process that plans and commits for the JVM plugin: frames, threads, errors, its end."""

from __future__ import annotations

import dataclasses
import importlib
import inspect
import io
import logging
import os
import re
import signal
import struct
import subprocess
import sys
import threading
from pathlib import Path

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st
from table_access import write_table

from pyspark_lance.cancellation import check_cancelled
from pyspark_lance.errors import InvalidInputError, TableNotFoundError
from pyspark_lance.spark.options import internal_keys as keys
from pyspark_lance.spark.service.methods import METHODS
from pyspark_lance.spark.service.server import (
    PROTOCOL,
    Server,
    SparkLogHandler,
    encode_frame,
    read_frame,
    write_frame,
)
from pyspark_lance.spark.sql import plugin_requests, plugin_responses
from pyspark_lance.spark.sql.plugin_requests import ScanRequest, Session, TableRequest
from pyspark_lance.spark.sql.plugin_responses import (
    BoundsResponse,
    ColumnEstimate,
    CountsResponse,
    StatisticsResponse,
    encode_response,
)

JAVA = Path(__file__).parents[2] / "src" / "plugin" / "org" / "pysparklance"
# The classes that call methods of the service.
CALLING = ("Python", "PythonRead", "PythonWrite")
# The parameters of all requests about tables, and of those about scans.
TABLE = {one.name for one in dataclasses.fields(TableRequest)}
SCAN = {one.name for one in dataclasses.fields(ScanRequest)} - TABLE


def stream_of(*messages: dict) -> io.BytesIO:
    """The bytes of messages, from their start."""
    stream = io.BytesIO()
    for one in messages:
        write_frame(stream, encode_frame(one))
    stream.seek(0)
    return stream


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers(-(2**53), 2**53) | st.text(max_size=5)
    | st.binary(max_size=9),
    lambda inner: st.lists(inner, max_size=3)
    | st.dictionaries(st.text(max_size=4).filter(lambda name: name != "attachment"), inner,
                      max_size=3),
    max_leaves=8,
)  # fmt: skip
NAMES = st.text(max_size=9).filter(lambda name: name not in ("attachment", "attachments"))
MESSAGES = st.dictionaries(NAMES, VALUES, max_size=4)


@given(st.lists(MESSAGES, max_size=3))
def test_messages_round_trip(messages):
    stream = stream_of(*messages)
    received = []
    while (message := read_frame(stream)) is not None:
        assert message.pop("attachments") is not None
        received.append(message)
    assert received == messages


@given(MESSAGES, st.data())
def test_truncated_frame_raises_eof(message, data):
    whole = stream_of(message).getvalue()
    cut = data.draw(st.integers(1, len(whole) - 1))
    with pytest.raises(EOFError):
        read_frame(io.BytesIO(whole[:cut]))


def test_arrow_buffers_are_attachments():
    (message,) = [read_frame(stream_of({"batch": pa.py_buffer(b"rows")}))]
    assert message["batch"] == b"rows"


class Served:
    """A server in a thread, and the two streams to it."""

    def __init__(self, handlers: dict):
        (reads, to_server), (from_server, writes) = os.pipe(), os.pipe()
        self._requests = os.fdopen(to_server, "wb")
        self._responses = os.fdopen(from_server, "rb")
        self._ends = [os.fdopen(reads, "rb"), os.fdopen(writes, "wb")]
        self.server = Server(*self._ends, lambda: handlers)
        self._thread = threading.Thread(target=self.server.run)

    def __enter__(self):
        self._thread.start()
        return self

    def __exit__(self, *_):
        self._requests.close()
        self._thread.join(60)
        for stream in (*self._ends, self._responses):
            stream.close()

    def send(self, *messages: dict) -> None:
        for one in messages:
            write_frame(self._requests, encode_frame(one))

    def receive(self) -> dict:
        return read_frame(self._responses)


def served(handlers: dict, *requests: dict) -> list[dict]:
    """The responses to requests, in the order in which they come."""
    with Served(handlers) as server:
        server.send(*requests)
        return [server.receive() for _ in requests]


def test_requests_run_concurrently():
    both = threading.Barrier(2, timeout=60)

    def wait(request):
        both.wait()
        return {"of": request["id"]}

    responses = served({"wait": wait}, *({"id": n, "method": "wait"} for n in (1, 2)))
    assert sorted((one["id"], one["result"]["of"]) for one in responses) == [(1, 1), (2, 2)]


def test_error_response_has_parts():
    def fail(request):
        raise TableNotFoundError("no table", where="/t", hint="look")

    (response,) = served({"fail": fail}, {"id": 7, "method": "fail"})
    assert response["error"] == {
        "code": "LANCE_TABLE_NOT_FOUND",
        "message": "[LANCE_TABLE_NOT_FOUND] no table\n  at: /t\n  hint: look",
        "what": "no table",
        "where": "/t",
        "hint": "look",
    }


def test_unknown_methods_and_faults_fail_only_their_request():
    def fault(request):
        return {}["missing"]

    def unsendable(request):
        return {"value": object()}

    handlers = {"fault": fault, "unsendable": unsendable}
    requests = [{"id": n, "method": name} for n, name in enumerate(["no", "fault", "unsendable"])]
    by_id = {one["id"]: one["error"] for one in served(handlers, *requests)}
    assert by_id[0]["code"] == InvalidInputError.code and "'no'" in by_id[0]["message"]
    assert "KeyError" in by_id[1]["message"] and "code" not in by_id[1]
    assert "cannot hold a object" in by_id[2]["message"]


def test_cancelled_request_ends_at_next_check():
    started = threading.Event()

    def work(request):
        started.set()
        while True:
            check_cancelled()

    with Served({"work": work}) as server:
        server.send({"id": 1, "method": "work"})
        assert started.wait(60)
        server.send({"cancel": 1})
        response = server.receive()
    assert response["id"] == 1
    assert response["error"]["cancelled"]


def test_log_records_precede_response():
    logger = logging.getLogger("pyspark_lance.of_this_test")

    def work(request):
        logger.info("%d rows", 3)
        logger.debug("not sent")
        return {}

    with Served({"work": work}) as served:
        logger.setLevel(logging.DEBUG)
        logger.addHandler(SparkLogHandler(served.server))
        served.send({"id": 1, "method": "work"})
        line, response = served.receive(), served.receive()
    assert line["log"] == {"logger": logger.name, "level": "INFO", "message": "3 rows"}
    assert response["id"] == 1


@pytest.fixture
def process():
    """A service as the plugin starts it, after its first frame."""
    command = [sys.executable, "-m", "pyspark_lance.spark.service", "--protocol", str(PROTOCOL)]
    with subprocess.Popen(
        command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
    ) as started:
        assert read_frame(started.stdout)["protocol"] == PROTOCOL
        yield started
        started.kill()


def ask(process, message: dict) -> dict:
    """One request, and the next response."""
    write_frame(process.stdin, encode_frame(message))
    return read_frame(process.stdout)


def test_service_runs_until_end_of_input(process, tmp_path):
    write_table(str(tmp_path / "t"), pa.table({"id": [1, 2, 3]}))
    options = {"path": str(tmp_path / "t")}
    process.send_signal(signal.SIGINT)
    response = ask(process, {"id": 1, "method": "describe", "options": options})
    assert response["result"]["rows"] == 3
    missing = ask(process, {"id": 2, "method": "describe", "options": {"path": "/no/table"}})
    assert missing["error"]["code"] == TableNotFoundError.code
    process.stdin.close()
    assert process.wait(60) == 0


def test_tables_with_equal_names_have_their_own_types(process, tmp_path):
    values = {"a": pa.array([1], pa.int32()), "b": pa.array(["x"]), "c": pa.array([1], pa.uint64())}
    for name, (kind, value) in enumerate([*values.items(), *values.items()]):
        path = str(tmp_path / kind)
        if name < len(values):
            write_table(path, pa.table({"x": value, "y": [2.0]}))
        found = ask(process, {"id": name, "method": "find", "options": {"path": path}})
        types = found["result"]["table"]["types"]
        expected = {"a": "int", "b": "string", "c": "decimal(20,0)"}[kind]
        assert (types["x"], types["y"]) == (expected, "double")


def test_service_ends_on_truncated_frame(process):
    process.stdin.write(struct.pack(">I", 100) + b"{")
    process.stdin.close()
    assert process.wait(60) != 0


_WITHOUT_RESPONSE = """
import os
from pyspark_lance.errors import InvalidInputError
from pyspark_lance.spark.service.server import Server

def bad(request):
    raise InvalidInputError("bad", where=object())  # JSON has no objects

Server(os.fdopen(0, "rb"), os.fdopen(1, "wb"), lambda: {"bad": bad}).run()
"""


def test_service_unable_to_respond_ends():
    """The plugin would wait forever; the end of the process is an error there."""
    command = [sys.executable, "-c", _WITHOUT_RESPONSE]
    pipes = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL}
    with subprocess.Popen(command, **pipes) as process:
        patience = threading.Timer(60, process.kill)
        patience.start()
        assert ask(process, {"id": 1, "method": "bad"}) is None
        assert process.wait(60) == 70
        patience.cancel()


def test_request_with_unknown_parameters_is_refused(process):
    response = ask(process, {"id": 1, "method": "describe", "params": {"colour": "red"}})
    assert response["error"]["code"] == InvalidInputError.code
    assert "'describe' with other parameters" in response["error"]["what"]


def test_plugin_calls_methods_with_their_parameters():
    java = "".join((JAVA / "python" / f"{name}.java").read_text() for name in CALLING)
    called = re.findall(r'new Request\("(\w+)"\)(.*?);', java, re.DOTALL)
    assert {name for name, _ in called} == METHODS.keys()
    for name, chain in called:
        kind = METHODS[name].request
        known = {one.name for one in dataclasses.fields(kind)} - {"options"}
        if issubclass(kind, TableRequest):
            known -= TABLE | SCAN if issubclass(kind, ScanRequest) else TABLE
            assert ".of(" in chain, name
        assert set(re.findall(r'\.with\(\s*"(\w+)"', chain)) == known, name


# How Java reads a field of a response.
_READ = re.compile(r'\.(?:get|path|has)\("(\w+)"\)')


def fields_that_java_reads() -> dict[str, set[str]]:
    """By method, the names of fields, also those of the values in its response."""
    texts = [(JAVA / "python" / f"{name}.java").read_text() for name in CALLING]
    calls = [part for text in texts for part in re.split(r"\n  }\n", text)]
    parts = re.split(r"  public record ", (JAVA / "python" / "Responses.java").read_text())
    read_by = {one[: one.index("(")]: set(_READ.findall(one)) - {"result"} for one in parts[1:]}
    read_by["Estimates"] |= read_by["ColumnEstimate"]
    read_by["Description"] = set(_READ.findall((JAVA / "python" / "Description.java").read_text()))
    fields = {}
    for part in calls:
        for method in re.findall(r'new Request\("(\w+)"\)', part):
            classes = re.findall(r"(\w+)(?:\.of\(|::of)", part)
            own = set(_READ.findall(part)) - {"result"}
            fields[method] = own.union(*(read_by.get(one, set()) for one in classes))
            if "resultIn(" in part:
                fields[method].add("no_namespace")
    return fields


def all_fields(kind) -> set[str]:
    """The names of the fields of a response, and of the values in it."""
    inner = [
        getattr(plugin_responses, name)
        for one in dataclasses.fields(kind)
        for name in re.findall(r"\w+(?:Description|Estimate)\b", one.type)
    ]
    return {one.name for one in dataclasses.fields(kind)}.union(*map(all_fields, inner))


def test_plugin_reads_exactly_response_fields():
    read = fields_that_java_reads()
    assert read == {name: all_fields(method.response) for name, method in METHODS.items()}


def test_only_client_package_reads_responses():
    others = [path for path in JAVA.rglob("*.java") if path.parent.name != "python"]
    read = re.compile(r"facts\(\)\.(?:get|path|has)|\.result\(\)")
    assert [path.name for path in others if read.search(path.read_text())] == []


def test_encoded_response_omits_none_fields():
    estimate = ColumnEstimate(
        distinct=2, nulls=0, min=None, max=7, average_bytes=None, most_bytes=8
    )
    response = StatisticsResponse(rows=3, columns={"id": estimate})
    encoded = {"distinct": 2, "nulls": 0, "max": 7, "most_bytes": 8}
    assert encode_response(response) == {"rows": 3, "columns": {"id": encoded}}
    assert encode_response(BoundsResponse()) == {}
    # A value may be null.
    assert encode_response(BoundsResponse(bounds=(None, None))) == {"bounds": [None, None]}
    assert encode_response(CountsResponse(rows=[[None, 3]])) == {"rows": [[None, 3]]}


def test_methods_have_functions_of_same_name():
    for name, method in METHODS.items():
        function = getattr(importlib.import_module(method.module), name)
        signature = inspect.signature(function)
        (parameter,) = signature.parameters.values()
        assert issubclass(method.request, getattr(plugin_requests, parameter.annotation)), name
        assert method.response is getattr(plugin_responses, signature.return_annotation), name


def test_only_listed_classes_call_service():
    calling = {path.stem for path in JAVA.rglob("*.java") if "new Request(" in path.read_text()}
    assert calling == set(CALLING)


def test_request_parameters_equal_java():
    java = (JAVA / "python" / "Request.java").read_text()
    options = (JAVA / "python" / "Options.java").read_text()
    for name, value in re.findall(r'String (\w+) = ("[\w.]+");', options):
        java = java.replace(f"Options.{name},", f"{value},")
    carried = set(re.findall(r'"_lance\.(\w+)", (?:true|false)', java))
    assert carried == {key.removeprefix(keys.PREFIX) for key in keys.ALL} & TABLE
    given = set(re.findall(r'\.?with\(\s*"(\w+)", (?:table|creation)\.', java))
    assert carried | given == TABLE - {"options"}
    assert given == {"catalog", "name", "create", "replace", "properties", "cluster_by"}
    assert set(re.findall(r'\.with\("(\w+)", scan\.', java)) == SCAN
    session = java[java.index("ObjectNode session() {") :]
    settings = {one.name for one in dataclasses.fields(Session)}
    assert set(re.findall(r'\.(?:put|set)\("(\w+)"', session)) == settings


def test_only_read_methods_are_retried():
    java = (JAVA / "python" / "LanceService.java").read_text()
    (listed,) = re.findall(r"READS = Set\.of\((.*?)\);", java, re.DOTALL)
    changing = {"commit", "abort", "create", "alter", "delete", "analyze", "procedure", "register",
                "undeclare", "drop", "rename", "create_namespace", "alter_namespace",
                "drop_namespace", "no_procedure"}  # fmt: skip
    assert set(re.findall(r"\w+", listed)) == METHODS.keys() - changing


def test_plugin_and_service_share_protocol_version():
    java = (JAVA / "python" / "LanceService.java").read_text()
    assert f"int PROTOCOL = {PROTOCOL};" in java
