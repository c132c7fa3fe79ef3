import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_lance.errors import InvalidInputError
from pyspark_lance.store.object_store import as_byte_view, check_path, folder_prefix, missing


@given(st.text(alphabet="a./\0"))
def test_checked_path_stays_below_root(path):
    try:
        check_path(path)
    except InvalidInputError:
        return
    assert path
    assert not path.startswith("/")
    assert "\0" not in path
    assert all(part.strip(".") or len(part) > 2 for part in path.split("/"))


def test_folder_prefix_ends_with_slash():
    assert folder_prefix("") == folder_prefix("/") == ""
    assert folder_prefix("a/b") == folder_prefix("a/b/") == "a/b/"
    with pytest.raises(InvalidInputError):
        folder_prefix("../a")


def test_byte_view_copies_nothing():
    values = np.arange(4, dtype="<u8")
    view = as_byte_view(values.reshape(2, 2))
    assert view.nbytes == len(view) == 32
    values[0] = 255
    assert view[0] == 255
    assert as_byte_view(np.empty((0, 3))).nbytes == 0


def test_missing_object_error_names_object():
    assert missing("s3://b/t", "x/y").filename == "s3://b/t/x/y"
