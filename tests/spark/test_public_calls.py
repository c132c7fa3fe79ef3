"""Nothing that a public method is given is passed over in silence: walked by inspection."""

from __future__ import annotations

import inspect
import subprocess
import sys
import types
from collections.abc import Sequence
from datetime import UTC

import numpy as np
import pytest
from pyspark.sql.classic.dataframe import DataFrame
from table_access import append

import pyspark_lance
from pyspark_lance import LanceTable, plugin
from pyspark_lance.errors import (
    InvalidInputError,
    LanceError,
    TableNotFoundError,
    UnsupportedFeatureError,
    VersionNotFoundError,
)
from pyspark_lance.spark.api.dml import LanceMergeBuilder, LanceOptimizeBuilder
from pyspark_lance.spark.api.public_methods import (
    COMMIT_OPTIONS,
    FILE_OPTIONS,
    accepted_options,
    checks_calls,
)
from pyspark_lance.spark.api.table_creation import LanceTableBuilder
from pyspark_lance.spark.jobs.merge_job import MergeRequest
from pyspark_lance.spark.options.option_table import OPTIONS, canonical_options
from pyspark_lance.table.dml.row_change import RewriteMode

# Every other method changes the table.
READS = {
    "alias", "appliedVersion", "branches", "branchPath", "changeCounts", "changes",
    "clusteringColumns", "consumers", "create", "createIfNotExists", "createOrReplace", "detail",
    "findValue", "forName", "forPath", "fragments", "history", "hybridSearch", "indices",
    "isLanceTable", "leftoverFiles", "lineageAudit", "nearDuplicates", "nearest", "optimize",
    "primaryKey", "properties", "replace", "rowHistory", "scan", "search", "tags", "take", "toDF",
    "verify",
}  # fmt: skip
OF_BUILDER = LanceMergeBuilder(MergeRequest(None, "true", (), "target"), lambda merge: None)
OF_TABLE_BUILDER = LanceTable.create(None)


def public_calls(path):
    """Every public method by name, bound as a user calls it; without a session."""
    found = {"LanceTable": (LanceTable, ("spark",))}
    for kind, of in (
        (LanceTable, LanceTable(None, path)),
        (LanceMergeBuilder, OF_BUILDER),
        (LanceTableBuilder, OF_TABLE_BUILDER),
        (LanceOptimizeBuilder, LanceTable(None, path).optimize()),
    ):
        for name, member in inspect.getmembers(of, callable):
            if not name.startswith("_"):
                found[f"{kind.__name__}.{name}"] = member, ()
    return found


def needed(call):
    """A value of the right type for each parameter that has no default."""
    parameters = inspect.signature(call).parameters.values()
    plain = (inspect.Parameter.POSITIONAL_OR_KEYWORD, inspect.Parameter.KEYWORD_ONLY)
    values = {"int": 1, "Sequence[int]": [1], "Sequence[str]": ["x"]}
    values["DataFrame"] = object.__new__(DataFrame)  # looked at by its type alone
    return {
        p.name: {"x": "x"} if p.annotation.startswith("Mapping") else values.get(p.annotation, "x")
        for p in parameters
        if p.default is p.empty and p.kind in plain
    }


def names_of(call):
    parameters = inspect.signature(call).parameters.values()
    return [p.name for p in parameters if p.kind not in (p.VAR_KEYWORD, p.VAR_POSITIONAL)]


def test_unknown_keyword_error_suggests_nearest(tmp_path):
    path = str(tmp_path / "none")
    calls = public_calls(path)
    assert len(calls) > 55
    for name, (call, _) in calls.items():
        with pytest.raises(InvalidInputError, match="takes no argument 'quitewrong'") as caught:
            call(**needed(call), quitewrong="1")
        if name.startswith("LanceTable.") and "__self__" in dir(call):
            of = call.__self__
            assert inspect.isclass(of) or path in str(caught.value), name
        for known in [*names_of(call), *(accepted_options(call) or ())]:
            has_low_latency = len(known) <= 3 or known[:-1] in names_of(call)
            misspelt = known + "x" if has_low_latency else known[:-1] + "x"
            # Nothing is near to a single letter.
            if known in ("self", "spark", "k") or misspelt in names_of(call):
                continue
            with pytest.raises(InvalidInputError, match=rf"did you mean {known}\?"):
                call(**needed(call), **{misspelt: "1"})


# Values, and the annotations that mean them; ``columns="id"`` would be the columns i and d.
OF_ALL_TYPES = (
    ("x", {"str"}),
    (5, {"int", "float"}),
    (1.5, {"float"}),
    (True, {"bool"}),
    (None, {"None"}),
    (b"x", set()),
    (["x"], {"Sequence[str]"}),
    ([5], {"Sequence[int]"}),
    ({5: "x"}, set()),
)
MAPPINGS = {"Mapping[str, str]", "Mapping[str, str | None]", "Mapping[str, object]"}


def test_methods_have_one_wrapper(tmp_path):
    for name, (call, _) in public_calls(str(tmp_path)).items():
        method = getattr(call, "__func__", vars(call).get("__init__", call))
        assert not hasattr(method.__wrapped__, "__wrapped__"), name


def test_missing_argument_error_hides_cause():
    with pytest.raises(TypeError, match="forPath: missing a required argument: 'path'") as raised:
        LanceTable.forPath("/data/events")
    assert raised.value.__suppress_context__
    with pytest.raises(InvalidInputError, match="version cannot be 'x'") as raised:
        LanceTable.forPath(types.SimpleNamespace(conf={}), "/data/events", version="x")
    assert raised.value.__cause__ is None


def test_arguments_of_wrong_type_are_refused(tmp_path):
    """By the annotations of all parameters; for those of Spark's types see below."""
    path = str(tmp_path / "t")
    append(path, 0)
    known = MAPPINGS.union({"datetime"}, *(kinds for _, kinds in OF_ALL_TYPES))
    looked_at = set()
    for name, (call, _) in public_calls(path).items():
        for parameter in inspect.signature(call).parameters.values():
            kinds = {str(parameter.annotation).removesuffix(" | None")}
            if kinds.isdisjoint(MAPPINGS):
                kinds = set(str(parameter.annotation).split(" | "))
            if parameter.kind is parameter.VAR_KEYWORD or not kinds <= known:
                continue
            looked_at |= kinds
            if parameter.default is None:
                kinds.add("None")
            for value, meant in OF_ALL_TYPES:
                if meant.isdisjoint(kinds):
                    with pytest.raises(InvalidInputError, match="cannot be") as caught:
                        if parameter.kind is parameter.VAR_POSITIONAL:
                            call(value)
                        else:
                            call(**{**needed(call), parameter.name: value})
                    assert f"the argument {parameter.name} of " in str(caught.value), name
    assert looked_at == known


def test_parameter_and_its_alias_are_refused(tmp_path):
    table = LanceTable(None, str(tmp_path))
    with pytest.raises(TypeError, match="olderThan is given twice, also as retentionHours"):
        table.leftoverFiles(olderThan=1, retentionHours=1)


def test_numpy_integers_become_plain_integers(tmp_path):
    """They reach a method as plain ones, wherever its annotation names a number."""

    @checks_calls
    class Asked:
        def of(self, k: int, versions: Sequence[int] = (), at: int | str | None = None, *more: int):
            return k, versions, at, more

    def kinds(value):
        return [kinds(one) for one in value] if isinstance(value, list | tuple) else type(value)

    given = Asked().of(np.int64(5), [np.uint8(1), 2], np.int32(7), np.array(3))
    assert given == (5, [1, 2], 7, (3,))
    assert kinds(given) == [int, [int, int], int, [int]]
    for wrong in (np.float64(5), np.bool_(True), np.array([5]), np.array([[1, 2]])):
        with pytest.raises(InvalidInputError, match="the argument k of of cannot be"):
            Asked().of(wrong)
    path = str(tmp_path / "t")
    append(path, 0)
    table = LanceTable(None, path)
    table.createTag("first", np.int64(1))
    with pytest.raises(VersionNotFoundError, match="version 9"):
        table.createTag("last", np.int64(9))


@pytest.mark.parametrize(
    ("call", "hint"),
    [
        (lambda table: table.scan(columns="id"), "give a list of texts"),
        (lambda table: table.rowHistory("first"), "give a whole number"),
        (lambda table: table.compact(materializeDeletionsThreshold="x"), "give a number"),
        (lambda table: table.setProperties("owner"), "give a dict whose keys are texts"),
        (lambda table: LanceTable.forPath(None, "x", storageOptions="x"), "give a dict"),
        (lambda table: LanceTable.forPath(None, "x", branch=5), "give a text"),
        (lambda table: LanceTable("x", table), "give a text"),
        (lambda table: table.merge("rows", "target.id = source.id"), "give a DataFrame of Spark"),
        (lambda table: table.merge(None, "target.id = source.id"), "give a DataFrame of Spark"),
        (lambda table: table.applyChanges([(1,)], keys=["id"]), "give a DataFrame of Spark"),
        (lambda table: table.delete(5), "give a SQL text or a Column"),
        (lambda table: table.leftoverFiles(b"x"), "give a timedelta or a text or a number"),
        (lambda table: table.leftoverFiles(retentionHours=b"x"), "give a timedelta or a text"),
        (lambda table: table.update(["id = 1"], {"id": "2"}), "give a SQL text or a Column"),
    ],
)
def test_wrong_argument_type_error_has_hint(tmp_path, call, hint):
    path = str(tmp_path / "t")
    append(path, 0)
    with pytest.raises(InvalidInputError, match=hint):
        call(LanceTable(None, path))


def test_method_options_are_accepted_or_refused(tmp_path):
    path = str(tmp_path / "none")
    taking = 0
    for name, (call, _) in public_calls(path).items():
        accepted = accepted_options(call)
        takes = any(p.kind is p.VAR_KEYWORD for p in inspect.signature(call).parameters.values())
        assert takes == bool(accepted), name
        if not accepted:
            continue
        taking += 1
        for option in OPTIONS:
            if option.name not in accepted and option.name not in names_of(call):
                for spelling in (option.name, option.name.upper(), *option.aliases):
                    with pytest.raises(InvalidInputError, match="takes no argument"):
                        call(**needed(call), **{spelling: "1"})
    assert taking > 12


def test_public_functions_take_no_arbitrary_keywords():
    for module in (pyspark_lance, plugin, pyspark_lance.errors):
        for name, member in vars(module).items():
            if isinstance(member, types.FunctionType) and not name.startswith("_"):
                kinds = {p.kind for p in inspect.signature(member).parameters.values()}
                assert inspect.Parameter.VAR_KEYWORD not in kinds, name


def test_method_options_are_checked_before_work(tmp_path):
    path = str(tmp_path / "none")
    bad = {"commitRetries": "many", "commitTimeout": "never", "maxRowsPerFile": "0"}
    table = LanceTable(session_without_spark(), path)
    for option, value in bad.items():
        with pytest.raises(InvalidInputError, match=f"the option {option} cannot be"):
            table.delete("id = 1", **{option: value})
    assert set(bad) < {*COMMIT_OPTIONS, *FILE_OPTIONS}


def session_without_spark():
    """What a table asks a session for before it plans: one setting."""
    return types.SimpleNamespace(conf={})


def test_table_held_at_version_is_read_only(tmp_path):
    path = str(tmp_path / "t")
    append(path, 0)
    held = LanceTable(None, path, version=1)
    assert repr(held) == f"LanceTable({path!r}, version=1)"
    names = [n for n, m in inspect.getmembers(held, callable) if not n.startswith("_")]
    assert set(names) > READS
    for name in names:
        call = getattr(held, name)
        if name in READS:
            assert accepted_options(call) is None, name
            continue
        with pytest.raises(InvalidInputError, match=f"{name} changes the table") as caught:
            call(**needed(call))
        assert path in str(caught.value)


@pytest.mark.parametrize("version", ["first", 0, -1, 1.5, ""])
def test_invalid_versions_are_refused(tmp_path, version):
    path = str(tmp_path / "t")
    append(path, 0)
    with pytest.raises(InvalidInputError, match="version"):
        LanceTable.forPath(None, path, version=version)


def test_create_accepts_only_applicable_options(tmp_path):
    path = str(tmp_path / "t")
    for name in ("version", "branch", "writeMode", "replaceWhere", "mergeSchema", "path"):
        with pytest.raises(InvalidInputError, match=f"create takes no argument '{name}'"):
            LanceTable.create(None, path, "id bigint", options={name: "1"})
    with pytest.raises(InvalidInputError, match="did you mean enableStableRowIds"):
        LanceTable.create(None, path, "id bigint", options={"enable_stable_rowid": "true"})


def test_column_option_as_keyword_error_names_options(tmp_path):
    with pytest.raises(InvalidInputError, match=r"as options=\{'b.blob': …\}.*storageOptions"):
        LanceTable.create(None, str(tmp_path / "t"), "b binary", **{"b.blob": "true"})


def test_table_opens_on_branch_or_version(tmp_path):
    path = str(tmp_path / "t")
    session = session_without_spark()
    append(path, 0, 5)
    table = LanceTable.forPath(session, path)
    branch = table.createBranch("trial")
    table.setProperties({"owner": "main"})
    append(path, 5, 2)
    tag, consumer = table.createTag("second", 2), table.registerConsumer("mirror")
    moments = [branch.createdAt, tag.createdAt, tag.updatedAt, consumer.updatedAt]
    assert {moment.tzinfo for moment in moments} == {UTC}
    moved = table.replaceTag("second", 2)
    assert moved.createdAt == tag.createdAt <= moved.updatedAt

    old = LanceTable.forPath(session, path, version="1")
    assert (old.properties(), old.verify().version) == ({}, 1)
    assert old.alias("o").properties() == {}
    assert [one.version for one in old.changeCounts(0)] == [1]
    assert [one.version for one in table.changeCounts(0)] == [1, 3]
    second = LanceTable.forPath(session, path, tag="second")
    assert (second.properties(), second.verify().version) == ({"owner": "main"}, 2)

    trial = LanceTable.forPath(session, path, branch="trial")
    trial.setProperties({"owner": "trial"})
    assert trial.properties() == trial.alias("t").properties() == {"owner": "trial"}
    assert table.properties() == {"owner": "main"}
    assert [one.version for one in trial.changeCounts(3)] == []
    assert [one.version for one in trial.changeCounts(3, branch="main")] == [3]
    assert trial.branchPath("trial") == f"{path}/tree/trial"
    trial.createTag("on-trial")
    tagged = LanceTable.forPath(session, path, tag="on-trial")
    assert tagged.properties() == {"owner": "trial"}
    assert repr(tagged) == f"LanceTable('{path}', branch='trial', version=2)"
    with pytest.raises(InvalidInputError, match="delete changes the table"):
        tagged.delete()

    with pytest.raises(VersionNotFoundError, match="trail"):
        LanceTable.forPath(session, path, branch="trail")
    with pytest.raises(InvalidInputError, match="both choose a version"):
        LanceTable.forPath(session, path, version=1, tag="second")
    with pytest.raises(TableNotFoundError):
        LanceTable.forPath(session, str(tmp_path / "typo"), version=1)
    with pytest.raises(InvalidInputError, match=r"storageOptions=\{'region': …\}"):
        LanceTable.forPath(session, path, region="here")


@pytest.mark.spark
def test_spark_reads_branch_or_version_of_table(spark, tmp_path):
    path = str(tmp_path / "t")
    append(path, 0, 5)
    table = LanceTable.forPath(spark, path)
    table.createBranch("trial")
    append(path, 5, 2)
    trial = LanceTable.forPath(spark, path, branch="trial")
    assert trial.delete("id > 2").num_deleted_rows == 2
    assert trial.toDF().count() == 3
    assert LanceTable.forPath(spark, path, version="1").toDF().count() == 5
    assert trial.changes(2).count() == 2


def test_plugin_is_available_without_explicit_import():
    script = """
import sys
import pyspark  # that of Spark 4.1 imports numpy
before = set(sys.modules)
import pyspark_lance
heavy = {"pyarrow", "numpy", "s3fs", "pyspark_lance.plugin"}
assert not heavy & (set(sys.modules) - before)
print(pyspark_lance.plugin.enable.__name__, hasattr(pyspark_lance.spark, "plugins"))
"""
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60, check=False
    )
    assert done.stdout == "enable False\n", done.stderr


@pytest.mark.parametrize("more", ["insert", "insert all", "delete", "by source"])
def test_merge_clause_incompatible_with_column_rewrite_is_refused(more):
    builder = LanceMergeBuilder(
        MergeRequest(None, "true", (), "target", RewriteMode.COLUMNS), lambda merge: None
    ).whenMatchedUpdate(set={"a": "1"})
    clause = {
        "insert": lambda: builder.whenNotMatchedInsert(values={"a": "1"}),
        "insert all": builder.whenNotMatchedInsertAll,
        "delete": builder.whenMatchedDelete,
        "by source": builder.whenNotMatchedBySourceDelete,
    }[more]
    with pytest.raises(InvalidInputError, match="does not rewrite columns"):
        clause()


def test_unknown_option_error_lists_options():
    with pytest.raises(InvalidInputError) as caught:
        canonical_options({"quitewrong": "blue"}, "read")
    listed = str(caught.value)
    assert ".md" not in listed
    assert all(option.name in listed for option in OPTIONS if "." not in option.name)


@pytest.mark.parametrize(
    ("uri", "hint"),
    [
        ("dbfs:/x/t", "use the local path /dbfs/x/t"),
        ("s3:/bucket/t", "write it as s3://bucket/t"),
        ("gs://", "write it as gs://bucket/path"),
        ("s3a:///data/t", "write it as s3a://data/t"),
    ],
)
def test_uri_without_bucket_error_shows_correct_form(uri, hint):
    with pytest.raises(InvalidInputError, match="names no bucket") as caught:
        LanceTable.forPath(None, uri)
    assert hint in str(caught.value)


def test_feed_without_row_ids_error_names_method(tmp_path):
    path = str(tmp_path / "t")
    append(path, 0, enable_stable_row_ids=False)
    with pytest.raises(UnsupportedFeatureError, match=r"enableStableRowIds\(\)") as caught:
        LanceTable(None, path).changeCounts(0)
    assert path in str(caught.value)


@pytest.mark.parametrize(
    "change",
    [
        lambda table: table.dropColumns("none"),
        lambda table: table.renameColumn("none", "other"),
        lambda table: table.changeColumn("id"),
        lambda table: table.delete("id = 1", commitRetries="many"),
        lambda table: table.setProperties({"owner": 5}),
        lambda table: table.restore(),
        lambda table: table.compact(targetRowsPerFragment=0),
        lambda table: table.compact(materializeDeletionsThreshold=7),
        lambda table: table.cleanupOldVersions("a while"),
    ],
)
def test_method_errors_name_table(tmp_path, change):
    path = str(tmp_path / "t")
    append(path, 0)
    with pytest.raises(LanceError) as caught:
        change(LanceTable(session_without_spark(), path))
    assert path in str(caught.value)


def test_window_versions_may_be_strings(tmp_path):
    path = str(tmp_path / "t")
    append(path, 0)
    table = LanceTable(None, path)
    assert table.changeCounts("1", "1") == table.changeCounts(1, 1)
    with pytest.raises(InvalidInputError, match="startingVersion cannot be 'one'"):
        table.changeCounts("one")


@pytest.mark.parametrize(
    ("method", "name"),
    [
        ("whenMatchedUpdate", "set"),
        ("whenNotMatchedInsert", "values"),
        ("whenNotMatchedBySourceUpdate", "set"),
        ("whenMatchedDelete", None),
    ],
)
def test_dict_as_condition_error_names_parameter(method, name):
    request = MergeRequest(None, "target.id = source.id", (), "target", RewriteMode.AUTO)
    clause = getattr(LanceMergeBuilder(request, lambda _: None), method)
    with pytest.raises(InvalidInputError, match="condition of when") as raised:
        clause({"n": "1"})
    belongs = f"; a dict is given as {name}={{…}}" if name else ""
    assert raised.value.hint == f"give a SQL text or a Column{belongs}"
