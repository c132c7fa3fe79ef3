"""FragmentsById: the fragments of a version during changes; pure, no I/O."""

from __future__ import annotations

from collections.abc import Iterable, Iterator, MutableMapping

from pyspark_lance.format.fragment import Fragment
from pyspark_lance.format.fragments import Fragments


class FragmentsById(MutableMapping[int, Fragment]):
    """Mutable mapping of fragments by id; unchanged fragments are not decoded."""

    def __init__(self, fragments: Iterable[Fragment] = ()) -> None:
        self._before = Fragments.of(fragments)
        self._put: dict[int, Fragment] = {}
        self._gone: set[int] = set()

    def __getitem__(self, fragment_id: int) -> Fragment:
        put = self._put.get(fragment_id)
        if put is not None:
            return put
        place = None if fragment_id in self._gone else self._before.place_of(fragment_id)
        if place is None:
            raise KeyError(fragment_id)
        return self._before[place]

    def __contains__(self, fragment_id: object) -> bool:
        if fragment_id in self._put:
            return True
        is_gone = fragment_id in self._gone or not isinstance(fragment_id, int)
        return not is_gone and self._before.place_of(fragment_id) is not None  # type: ignore[arg-type]

    def __setitem__(self, fragment_id: int, fragment: Fragment) -> None:
        self._put[fragment_id] = fragment
        self._gone.discard(fragment_id)

    def __delitem__(self, fragment_id: int) -> None:
        if fragment_id not in self:
            raise KeyError(fragment_id)
        self._put.pop(fragment_id, None)
        self._gone.add(fragment_id)

    def __iter__(self) -> Iterator[int]:
        return iter(self.fragments().ids.tolist())

    def __len__(self) -> int:
        return len(self.fragments())

    def fragments(self) -> Fragments:
        """Return all fragments in ascending order of their ids."""
        if not self._put and not self._gone:
            return self._before
        return self._before.changed(self._put.values(), self._gone)
