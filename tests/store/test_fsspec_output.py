import os

import pytest

from pyspark_lance.store.fsspec_store import MultipartOutput, SpooledOutput


class UploadFile:
    """The part of fsspec's writable files that is used."""

    def __init__(self, *, fails):
        self.fails, self.parts, self.completed, self.discarded, self.closed = (
            fails,
            [],
            False,
            False,
            False,
        )

    def write(self, view):
        self.parts.append(bytes(view))

    def close(self):
        if self.fails:
            raise OSError("no connection")
        self.completed = self.closed = True

    def discard(self):
        self.discarded = True


def run(action):
    return action()


def test_failing_close_discards_upload():
    file = UploadFile(fails=True)
    output = MultipartOutput(file, run)
    output.write(b"abc")
    with pytest.raises(OSError, match="no connection"):
        output.close()
    assert file.discarded
    assert file.closed  # or it would be completed when it is collected
    output.close()
    assert not file.completed


def test_completed_upload_is_not_discarded():
    file = UploadFile(fails=False)
    output = MultipartOutput(file, run)
    output.write(memoryview(b"abc"))
    output.close()
    output.abort()
    assert file.completed
    assert not file.discarded
    assert file.parts == [b"abc"]


def test_spooled_output_uploads_and_removes_temporary_file():
    seen = []

    def upload(name):
        with open(name, "rb") as file:
            seen.append((name, file.read()))

    output = SpooledOutput(upload)
    output.write(b"abc")
    output.write(b"def")
    assert output.tell() == 6
    output.close()
    output.close()
    assert [content for _, content in seen] == [b"abcdef"]
    assert not os.path.exists(seen[0][0])


def test_failed_upload_removes_temporary_file():
    names = []

    def upload(name):
        names.append(name)
        raise OSError("no connection")

    output = SpooledOutput(upload)
    with pytest.raises(OSError, match="no connection"):
        output.close()
    assert not os.path.exists(names[0])
