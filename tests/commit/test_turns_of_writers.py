"""Of many writers of one local table all get on: they take turns, and the unlucky go first."""

from __future__ import annotations

import random
import threading

import pytest
from commit_tables import FakeTime, append, create_table, environment, latest, names, new_fragment

from pyspark_lance.commit.base_version import BaseVersion
from pyspark_lance.commit.commit_handler import ConditionalPutCommitHandler
from pyspark_lance.commit.retries import Environment, Retries
from pyspark_lance.errors import CommitConflictError, RetryableCommitError
from pyspark_lance.format.operation import Append, UpdateConfig, UpdateMap
from pyspark_lance.metafile.paths import TRANSACTIONS, VERSIONS
from pyspark_lance.store.local_store import LocalStore
from pyspark_lance.store.turns import turn
from pyspark_lance.table.version.table import Table
from pyspark_lance.table.work import unit_of_work
from pyspark_lance.table.work.commit_settings import CommitSettings
from pyspark_lance.table.work.unit_of_work import UnitOfWork

LONG_S = 120.0  # nobody waits for so long unless something is wrong


@pytest.fixture
def path(tmp_path):
    create_table(LocalStore(str(tmp_path)), 2)
    return str(tmp_path)


class BeforePut(ConditionalPutCommitHandler):
    """Does something before the manifest is put."""

    def __init__(self, action):
        self.action = action

    def put(self, store, location, data, *, uuid):
        self.action()
        return super().put(store, location, data, uuid=uuid)


class NotingStore(LocalStore):
    """Says when a transaction was written."""

    def __init__(self, root):
        super().__init__(root)
        self.written = threading.Event()

    def put(self, path, data):
        super().put(path, data)
        if path.startswith(TRANSACTIONS):
            self.written.set()


def test_a_writer_that_comes_meanwhile_waits_and_needs_no_second_attempt(path):
    store, told, first_is_done = NotingStore(path), [], threading.Event()

    def second():
        late = Environment(handler=BeforePut(lambda: first_is_done.wait(LONG_S)))
        try:
            told.append(append(store, 1, 1, retries=0, environment=late).version)
        except RetryableCommitError as error:
            told.append(error)

    thread = threading.Thread(target=second)

    def while_the_first_puts():
        thread.start()
        assert store.written.wait(LONG_S)

    first = Environment(handler=BeforePut(while_the_first_puts))
    told.append(append(LocalStore(path), 1, 1, retries=0, environment=first).version)
    first_is_done.set()
    thread.join()
    assert told == [2, 3]
    assert len(names(store, TRANSACTIONS)) == 3


def test_what_was_written_while_waiting_goes_when_the_work_is_pointless(path):
    store, told = NotingStore(path), []

    def second():
        with pytest.raises(CommitConflictError) as failure:
            append(store, 7, 1, retries=0)
        told.append(failure.value.what)

    thread = threading.Thread(target=second)
    with turn(LocalStore(path), VERSIONS, LONG_S):
        thread.start()
        assert store.written.wait(LONG_S)
    thread.join()
    assert told == ["the work was planned on version 7, but the newest is 1"]
    assert len(names(store, TRANSACTIONS)) == 1


def has_nobody(path, folder):
    """Whether nobody has the turn, as a writer in another thread is told."""
    told = []

    def ask():
        with turn(LocalStore(path), folder, 0.0) as mine:
            told.append(mine)

    thread = threading.Thread(target=ask)
    thread.start()
    thread.join()
    return told[0]


def changing_config(key):
    return UpdateConfig(config_updates=UpdateMap(((key, "1"),)))


@pytest.mark.parametrize(
    ("operation", "others_may_change"),
    [(Append((new_fragment(1),)), True), (changing_config("k"), False)],
    ids=["append", "change"],
)
def test_no_work_is_overtaken_at_its_commit_by_what_may_make_it_plan_again(
    path, operation, others_may_change
):
    seen = []

    def look():
        seen.append((has_nobody(path, VERSIONS), has_nobody(path, TRANSACTIONS)))

    work = UnitOfWork(
        Table(path), CommitSettings(), environment=Environment(handler=BeforePut(look))
    )
    base = BaseVersion.of(latest(LocalStore(path)).manifest)
    work.run(lambda work: work.commit(work.propose(base, operation)))
    assert seen == [(False, others_may_change)]
    assert has_nobody(path, VERSIONS)
    assert has_nobody(path, TRANSACTIONS)


def test_work_that_met_a_conflict_has_the_turn_until_it_is_done(path):
    seen = []

    def attempt(work):
        seen.append((has_nobody(path, TRANSACTIONS), has_nobody(path, VERSIONS)))
        if len(seen) < 3:
            raise RetryableCommitError("others were faster")

    UnitOfWork(Table(path), CommitSettings(), environment=environment()).run(attempt)
    assert seen == [(True, True), (False, True), (False, True)]
    assert has_nobody(path, TRANSACTIONS)


class Widest(random.Random):
    """Always draws the longest wait."""

    def uniform(self, low, high):
        return high


def test_waits_grow_first_and_shrink_with_age():
    fake = FakeTime(step_s=0.0)
    left = Retries(9, 1000.0, environment(fake, chance=Widest()))
    while left.again(slot_s=0.01):
        pass
    assert len(fake.slept) == 9
    longest = fake.slept.index(max(fake.slept))
    assert fake.slept[: longest + 1] == sorted(fake.slept[: longest + 1])
    assert fake.slept[longest:] == sorted(fake.slept[longest:], reverse=True)
    assert fake.slept[-1] < fake.slept[0]
    assert 0 < longest < 4


def test_after_a_conflict_the_next_works_begin_with_their_turn(path, monkeypatch):
    monkeypatch.setattr(unit_of_work, "_REMEMBERED", 2)
    seen = []

    def attempt(work):
        seen.append(has_nobody(path, TRANSACTIONS))
        if len(seen) == 1:
            raise RetryableCommitError("others were faster")

    for _ in range(4):
        UnitOfWork(Table(path), CommitSettings(), environment=environment()).run(attempt)
    assert seen == [True, False, False, False, True]
    assert path not in unit_of_work._conflicts
