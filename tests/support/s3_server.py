"""A moto server on loopback: S3 for tests.

Import the fixtures into a test module, marked ``s3``::

    from s3_server import s3_server, s3_table_root  # noqa: F401

The server lives in a thread of this process, so it keeps its buckets until the process ends, and
forked or started processes reach it too.
"""

import functools
import itertools
import logging
from dataclasses import dataclass, field

import pytest

_numbers = itertools.count()


@dataclass
class S3Server:
    """Where the server is, and with which options it is reached.

    Attributes:
        endpoint: ``http://127.0.0.1:port``.
        requests: Method and path of every request, in order; clear it to count.
        access_keys: With which key each request was signed, in order.
        ignores_conditions: Whether a conditional put replaces an existing object.
        ended_keys: Keys whose requests are refused with ``ExpiredToken``.
        lose_answers: Methods whose next request is carried out but answered with an error 500.
    """

    endpoint: str
    requests: list = field(default_factory=list)
    access_keys: list = field(default_factory=list)
    ignores_conditions: bool = False
    lose_answers: list = field(default_factory=list)
    ended_keys: set = field(default_factory=set)
    access_key: str = "test-access-key-id"
    secret_key: str = "test-secret-access-key"

    @property
    def options(self):
        """Storage options as Lance names them, without the prefix ``storage.``."""
        return {
            "aws_access_key_id": self.access_key,
            "aws_secret_access_key": self.secret_key,
            "aws_region": "us-east-1",
            "aws_endpoint": self.endpoint,
            "allow_http": "true",
        }

    @property
    def hadoop_settings(self):
        """Settings of Hadoop's S3A file system."""
        return {
            "fs.s3a.access.key": self.access_key,
            "fs.s3a.secret.key": self.secret_key,
            "fs.s3a.endpoint": self.endpoint,
            "fs.s3a.endpoint.region": "us-east-1",
            "fs.s3a.path.style.access": "true",
        }

    def client(self, service="s3"):
        """A boto3 client, to see what is really there."""
        import boto3

        return boto3.client(
            service,
            endpoint_url=self.endpoint,
            aws_access_key_id=self.access_key,
            aws_secret_access_key=self.secret_key,
            region_name="us-east-1",
        )

    def new_bucket(self):
        """The name of a new, empty bucket."""
        name = f"bucket-{next(_numbers)}"
        self.client().create_bucket(Bucket=name)
        return name


@functools.cache
def running_server():
    """The server of this process, started on first use."""
    from moto.moto_server.threaded_moto_server import ThreadedMotoServer
    from moto.server import DomainDispatcherApplication

    logging.getLogger("werkzeug").setLevel(logging.ERROR)
    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
    found = S3Server("")
    dispatch = DomainDispatcherApplication.__call__

    def observed(self, environ, start_response):
        method = environ["REQUEST_METHOD"]
        if found.ignores_conditions:
            environ.pop("HTTP_IF_NONE_MATCH", None)
        found.requests.append((method, environ["PATH_INFO"], environ.get("HTTP_RANGE", "")))
        signed = environ.get("HTTP_AUTHORIZATION", "").partition("Credential=")[2]
        found.access_keys.append(signed.partition("/")[0])
        if found.access_keys[-1] in found.ended_keys:
            reply = b"<Error><Code>ExpiredToken</Code><Message>it has expired</Message></Error>"
            start_response("400 Bad Request", [("Content-Length", str(len(reply)))])
            return [reply]
        if method in found.lose_answers:
            found.lose_answers.remove(method)
            list(dispatch(self, environ, lambda *answer: None))
            start_response("500 Internal Server Error", [("Content-Length", "0")])
            return [b""]
        return dispatch(self, environ, start_response)

    DomainDispatcherApplication.__call__ = observed
    server.start()
    host, port = server.get_host_and_port()
    found.endpoint = f"http://{host}:{port}"
    return found


@pytest.fixture
def s3_server(monkeypatch):
    """The server; nothing of the machine's own AWS settings reaches the test."""
    for name in (
        "AWS_PROFILE",
        "AWS_ENDPOINT_URL",
        "AWS_ENDPOINT_URL_S3",
        "HTTP_PROXY",
        "http_proxy",
    ):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("AWS_EC2_METADATA_DISABLED", "true")
    return running_server()


@pytest.fixture
def s3_table_root(s3_server):
    """A URI in a new bucket; open it with ``s3_server.options``."""
    return f"s3://{s3_server.new_bucket()}/warehouse/table"
