"""HDFS that wants Kerberos: by a key, a ticket and a delegation token."""

import json
import os
import subprocess
import sys

import pytest
from hdfs_cluster import run_kerberos_cluster

# A cluster takes a JVM of its own.
pytestmark = pytest.mark.slow

SCRIPT = """
import json, sys
import pyarrow as pa
from pyspark_lance.errors import LanceError
from pyspark_lance.table.version.snapshot import open_existing
from pyspark_lance.table.version.table import Table
from pyspark_lance.table.write.write_plan import WriteSettings, plan_write
from pyspark_lance.table.write.write_table import commit_write, write_rows

given = json.loads(sys.argv[2])
table = Table(sys.argv[1], {f"storage.{name}": text for name, text in given.items()})
rows = pa.table({"id": [0, 1, 2]})
try:
    plan = plan_write(table, rows.schema, WriteSettings(), existing=open_existing(table))
    commit_write(plan, write_rows(plan, rows.to_batches()))
    print(open_existing(table).num_rows())
except LanceError as error:
    print(error)
"""
AS_CLUSTER = {"dfs.data.transfer.protection": "privacy"}


@pytest.fixture(scope="module")
def cluster():
    with run_kerberos_cluster("privacy") as running:
        yield running


def run(cluster, name, options, **environment):
    """Append to a table in a process of its own, since the library keeps what it has read."""
    kept = {key: text for key, text in os.environ.items() if not key.startswith(("KRB5", "HADOOP"))}
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT, f"{cluster.uri}/{name}", json.dumps(options)],
        env={
            **kept,
            "KRB5_CONFIG": cluster.krb5_conf,
            "KRB5CCNAME": "FILE:/nowhere",
            **environment,
        },
        capture_output=True,
        text=True,
        check=True,
        timeout=300,
    )
    return done.stdout.strip()


def test_key_in_options_opens_kerberos_tables(cluster):
    options = {"kerberos_principal": cluster.principal, "kerberos_keytab": cluster.keytab}
    assert run(cluster, "key", {**options, **AS_CLUSTER}) == "3"


def test_ticket_opens_kerberos_tables(cluster, tmp_path):
    settings = {**AS_CLUSTER, "hadoop.security.authentication": "kerberos"}
    ticket = f"FILE:{tmp_path}/ticket"
    # The library gets a ticket with a client's key, as kinit does.
    assert run(cluster, "a", settings, KRB5CCNAME=ticket, KRB5_CLIENT_KTNAME=cluster.keytab) == "3"
    assert run(cluster, "b", settings, KRB5CCNAME=ticket) == "3"


def test_delegation_token_opens_kerberos_tables(cluster):
    settings = {**AS_CLUSTER, "hadoop.security.authentication": "kerberos"}
    assert run(cluster, "token", settings, HADOOP_TOKEN_FILE_LOCATION=cluster.tokens) == "3"


def test_missing_ticket_error_names_what_to_do(cluster):
    settings = {**AS_CLUSTER, "hadoop.security.authentication": "kerberos"}
    message = run(cluster, "none", settings)
    assert "LANCE_STORAGE" in message and "kinit" in message and "kerberos_keytab" in message
