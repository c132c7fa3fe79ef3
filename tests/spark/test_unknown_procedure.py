"""A CALL of what is no procedure names the nearest, and all."""

from __future__ import annotations

import pytest

from pyspark_lance.errors import InvalidInputError
from pyspark_lance.spark.sql.plugin_requests import UnknownProcedureRequest
from pyspark_lance.spark.sql.procedures import PROCEDURES, refuse_unknown


@pytest.mark.parametrize(
    ("asked", "near"),
    [
        ("system.compct", "system.compact"),
        ("sistem.cleanup", "system.cleanup"),
        ("system.VERIFI", "system.verify"),
    ],
)
def test_unknown_procedure_error_suggests_nearest(asked, near):
    with pytest.raises(InvalidInputError, match=f"did you mean {near}?") as refused:
        refuse_unknown(UnknownProcedureRequest(procedure=asked))
    assert asked in str(refused.value)
    assert all(name in str(refused.value) for name in PROCEDURES)


def test_dissimilar_procedure_error_lists_names_only():
    with pytest.raises(InvalidInputError, match="namespace system: ") as refused:
        refuse_unknown(UnknownProcedureRequest(procedure="system.zzz"))
    assert "did you mean" not in str(refused.value)
