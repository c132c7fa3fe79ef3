import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_lance.format.deletion_vector import DeletionFile, DeletionFileType
from pyspark_lance.metafile.paths import (
    NamingScheme,
    branch_path,
    deletion_path,
    manifest_name,
    parse_manifest_name,
    parse_reference_name,
    tag_path,
    transaction_path,
)


@given(st.integers(1, 2**63 - 1), st.sampled_from(NamingScheme))
def test_manifest_names_round_trip(version, scheme):
    name = manifest_name(version, scheme)
    found = parse_manifest_name(name)
    # A V1 name of 20 characters would be taken for V2; no version has so many digits.
    assert (found.version, found.scheme, found.is_detached) == (version, scheme, False)


@given(st.integers(2**63, 2**64 - 1))
def test_detached_manifests_have_their_own_names(version):
    name = manifest_name(version, NamingScheme.V2)
    assert name == f"d{version}.manifest"
    found = parse_manifest_name(name)
    assert (found.version, found.is_detached) == (version, True)


@given(st.lists(st.integers(1, 2**63 - 1), min_size=2, max_size=5, unique=True))
def test_names_of_scheme_v2_sort_newest_first(versions):
    names = sorted(manifest_name(version, NamingScheme.V2) for version in versions)
    assert [parse_manifest_name(name).version for name in names] == sorted(versions, reverse=True)


def test_file_names_follow_format():
    assert manifest_name(1, NamingScheme.V2) == "18446744073709551614.manifest"
    assert manifest_name(13, NamingScheme.V2) == "18446744073709551602.manifest"
    assert manifest_name(13, NamingScheme.V1) == "13.manifest"
    assert transaction_path(3, "c650018c") == "_transactions/3-c650018c.txn"
    arrow = DeletionFile(DeletionFileType.ARROW_ARRAY, 2, 2**64 - 1, 1)
    assert deletion_path(7, arrow) == "_deletions/7-2-18446744073709551615.arrow"
    bitmap = DeletionFile(DeletionFileType.BITMAP, 2, 5, 1)
    assert deletion_path(7, bitmap) == "_deletions/7-2-5.bin"
    assert tag_path("v1.0") == "_refs/tags/v1.0.json"
    assert branch_path("feat/x") == "_refs/branches/feat%2Fx.json"


@pytest.mark.parametrize(
    "name",
    [
        "latest_version_hint.json",
        "18446744073709551614.manifest-3f",
        "18446744073709551614.manifest#1",
        ".manifest",
        "x.manifest",
        "d.manifest",
        "d1.manifest",
        "d18446744073709551616.manifest",
        "01.manifest",
        "0.manifest",
        "-1.manifest",
        "٣.manifest",
        "99999999999999999999.manifest",
        "18446744073709551615.manifest",
        "00000000000000000001.manifest",
        "9223372036854775808000000.manifest",
    ],
)
def test_other_names_are_not_manifests(name):
    assert parse_manifest_name(name) is None


@given(st.text(st.characters(codec="utf-8"), min_size=1, max_size=8))
def test_reference_names_round_trip(name):
    assert parse_reference_name(tag_path(name).removeprefix("_refs/tags/")) == name
    assert parse_reference_name(branch_path(name).removeprefix("_refs/branches/")) == name


def test_other_files_are_not_references():
    for name in ("x.tmp", ".json", "a/b.json"):
        assert parse_reference_name(name) is None
