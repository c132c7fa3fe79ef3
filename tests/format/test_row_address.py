import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from pyspark_lance.errors import InvalidInputError
from pyspark_lance.format import row_address as ra

U32 = st.integers(0, 2**32 - 1)


@given(fragment=U32, offsets=st.lists(U32, max_size=20))
def test_row_address_splits_into_fragment_and_offset(fragment, offsets):
    addresses = ra.row_addresses(fragment, np.array(offsets, dtype=np.uint32))
    assert addresses.dtype == np.uint64
    assert addresses.tolist() == [fragment << 32 | offset for offset in offsets]
    assert ra.offsets(addresses).tolist() == offsets
    assert set(ra.fragment_ids(addresses).tolist()) == ({fragment} if offsets else set())


@given(pairs=st.lists(st.tuples(st.sampled_from([0, 1, 7, 2**32 - 1]), U32), max_size=40))
def test_grouping_keeps_every_address_in_order(pairs):
    groups = ra.group_by_fragment([fragment << 32 | offset for fragment, offset in pairs])
    found = [(fragment, o) for fragment, offsets in groups.items() for o in offsets.tolist()]
    assert found == sorted(pairs)


@pytest.mark.parametrize(("fragment", "offset"), [(2**32, 0), (-1, 0), (0, 2**32), (0, -1)])
def test_numbers_beyond_32_bits_are_refused(fragment, offset):
    with pytest.raises(InvalidInputError):
        ra.row_addresses(fragment, [offset])


def test_grouping_no_addresses_returns_no_groups():
    assert ra.group_by_fragment([]) == {}
    assert ra.row_addresses(3, []).tolist() == []
