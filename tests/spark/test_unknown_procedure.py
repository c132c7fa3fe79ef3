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
def test_the_nearest_procedure_is_named(asked, near):
    with pytest.raises(InvalidInputError, match=f"did you mean {near}?") as refused:
        refuse_unknown(UnknownProcedureRequest(procedure=asked))
    assert asked in str(refused.value)
    assert all(name in str(refused.value) for name in PROCEDURES)


def test_a_name_like_no_other_gets_the_list_alone():
    with pytest.raises(InvalidInputError, match="namespace system: ") as refused:
        refuse_unknown(UnknownProcedureRequest(procedure="system.zzz"))
    assert "did you mean" not in str(refused.value)
