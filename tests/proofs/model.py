"""A model of commits, cleanups and long readers, checked over all schedules of three processes.

    python tests/proofs/model.py                     all triples of processes
    python tests/proofs/model.py --mutant NAME       with one rule broken: it must be caught
    python tests/proofs/model.py --mutant each       all mutants, one after another

A table is a set of manifests and a set of files.  Each process is a row of steps, every one a
single call of the store; after each step any other process may go on, and any process may die.
All states that can come about are visited once, and in each of them must hold:

* the newest version has all its files;
* every version is what its operation makes of the version before it (nothing is lost);
* a version whose tag was reported has its manifest and all its files;
* a reader gets the files of one version, or an error.

The steps are named after the functions that do them.
"""

from __future__ import annotations

import itertools
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

if __name__ == "__main__":
    _TESTS = Path(__file__).parents[1]
    sys.path[:0] = [str(one) for one in (_TESTS / "support", _TESTS, _TESTS.parent)]

from proofs.proof_report import Report, arguments

Files = frozenset[str]
OLDEST = 1


class Process(NamedTuple):
    """Where a process is.

    Attributes:
        kind: A key of ``STEPS``.
        step: What it does next; one of the ends when there is nothing.
        version: The version that it works on.
        files: Files that it has to do with: of that version, or those left to remove.
        own: The file that it has written.
        known: What else it remembers.
    """

    kind: str
    step: str
    version: int = 0
    files: Files = frozenset()
    own: str = ""
    known: tuple = ()


class State(NamedTuple):
    """A table and the processes that work on it.

    Attributes:
        manifests: Files by version.
        aside: The same for manifests that are set aside.
        files: Those that are there.
        needed: Numbers of the processes that have said that they need the oldest version.
        doomed: Numbers of those that have said that they remove it.
        processes: Each with its number.
    """

    manifests: tuple[tuple[int, Files], ...]
    aside: tuple[tuple[int, Files], ...]
    files: Files
    needed: frozenset[int]
    doomed: frozenset[int]
    processes: tuple[Process, ...]

    @property
    def newest(self) -> int:
        return self.manifests[-1][0]

    def has(self, version: int) -> bool:
        return any(number == version for number, _ in self.manifests)

    def of(self, version: int) -> Files:
        return dict(self.manifests)[version]

    def putting(self, version: int, files: Files) -> State:
        return self._replace(
            manifests=tuple(sorted({**dict(self.manifests), version: files}.items()))
        )

    def without(self, version: int) -> State:
        return self._replace(manifests=tuple(one for one in self.manifests if one[0] != version))

    def going_on(self, number: int, **changes: object) -> State:
        processes = list(self.processes)
        processes[number] = processes[number]._replace(**changes)
        return self._replace(processes=tuple(processes))


ENDS = ("done", "failed", "died")
# The first version has a file that no later one has; the second and third share one.
BEGINNING = ((1, frozenset({"a"})), (2, frozenset({"b"})), (3, frozenset({"b", "c"})))
UPDATED = "b"


class Anomaly(Exception):
    """Something that must not be."""


# Writers -----------------------------------------------------------------------------------


def append(state: State, number: int, rules: frozenset[str]) -> State:
    """``UnitOfWork.run``, ``commit_loop.commit``: an append can follow anything."""
    return _write(state, number, rules, replaced=None)


def update(state: State, number: int, rules: frozenset[str]) -> State:
    """The same for work that replaces a file: it cannot follow a version without that file."""
    return _write(state, number, rules, replaced=UPDATED)


def _write(state: State, number: int, rules: frozenset[str], replaced: str | None) -> State:
    me = state.processes[number]
    if me.step == "plan":  # Snapshot.open
        if replaced is not None and replaced not in state.of(state.newest):
            return state.going_on(number, step="done")  # there is no such row any more
        return state.going_on(number, step="write", version=state.newest)
    if me.step == "write":  # write_fragments
        own = f"{me.kind} {number}"
        files = state._replace(files=state.files | {own})
        planned = state.of(me.version) if state.has(me.version) else state.of(state.newest)
        return files.going_on(number, step="judge", own=own, known=(planned,))
    if me.step == "judge":  # _Commit.attempt: latest_version, check_newer
        latest = state.newest
        is_gone = replaced is not None and replaced not in state.of(latest)
        if is_gone and "commit without judging" not in rules:
            freed = state._replace(files=state.files - {me.own})  # UnitOfWork._remove_files
            return freed.going_on(number, step="plan", own="", known=(), version=0)
        before = me.known[0] if "commit what was planned" in rules else state.of(latest)
        files = before - {replaced} | {me.own} if replaced else before | {me.own}
        return state.going_on(number, step="put", version=latest, files=frozenset(files))
    return _put(state, number, rules, again="judge", replaced=replaced)


def _put(
    state: State, number: int, rules: frozenset[str], again: str, replaced: str | None
) -> State:
    """``put_if_absent`` of a manifest, then ``ManifestCommitter.confirm``."""
    me, version = state.processes[number], state.processes[number].version + 1
    if state.has(version) and "put replaces" not in rules:
        return state.going_on(number, step=again)
    if version <= state.newest and state.has(version):
        raise Anomaly(f"version {version} is made twice")
    if (
        version < state.newest
    ):  # other writers won, and a cleanup removed the version of this number
        return state.going_on(number, step=again)  # ManifestCommitter._is_in_history takes it back
    _check_step(state, me, version, replaced)
    return state.putting(version, me.files).going_on(number, step="done", files=frozenset())


def _check_step(state: State, me: Process, version: int, replaced: str | None) -> None:
    """Whether the version is what the operation makes of the one before it."""
    if me.kind == "restore":
        expected = BEGINNING[0][1]
    else:
        before = state.of(version - 1)
        if replaced is not None and replaced not in before:
            raise Anomaly(f"version {version} updates what version {version - 1} does not have")
        expected = frozenset(before - {replaced} | {me.own})
    if me.files != expected:
        raise Anomaly(f"version {version} is {set(me.files)}, expected {set(expected)}")


# Readers of an old version -------------------------------------------------------------------


def restore(state: State, number: int, rules: frozenset[str]) -> State:
    """``metadata_commits.restore``: says so by the file of its transaction, then looks again."""
    me = state.processes[number]
    if me.step == "plan":  # commit_loop._restored
        step = "say" if state.has(OLDEST) else "failed"
        return state.going_on(number, step=step, version=state.newest)
    if me.step == "say":  # _write_transaction
        said = state._replace(needed=state.needed | {number})
        return said.going_on(number, step="look", files=BEGINNING[0][1])
    if me.step == "look":  # check_kept
        if not _may_be_needed(state, rules):
            freed = state._replace(needed=state.needed - {number})
            return freed.going_on(number, step="failed", files=frozenset())
        return state.going_on(number, step="put", version=state.newest)
    return _put(state, number, rules, again="look", replaced=None)


def tag(state: State, number: int, rules: frozenset[str]) -> State:
    """``tags.set_tag``: a tag is put, and removed again if the version was removed concurrently."""
    me = state.processes[number]
    if me.step == "plan":
        return state.going_on(number, step="say" if state.has(OLDEST) else "failed")
    if me.step == "say":
        return state._replace(needed=state.needed | {number}).going_on(number, step="look")
    if _may_be_needed(state, rules):
        return state.going_on(number, step="done")
    return state._replace(needed=state.needed - {number}).going_on(number, step="failed")


def _may_be_needed(state: State, rules: frozenset[str]) -> bool:
    """``cleanup_marks.check_kept``."""
    if "do not look again" in rules:
        return True
    return state.has(OLDEST) and (not state.doomed or "do not look for marks" in rules)


# Cleanup -----------------------------------------------------------------------------------


def cleanup(state: State, number: int, rules: frozenset[str]) -> State:
    """``cleanup_old_versions`` of all versions but the newest."""
    me = state.processes[number]
    match me.step:
        case "plan":  # removable_files
            return state.going_on(number, step="survey", files=state.files)
        case "survey":  # _find_reachable_files: all manifests, those that were set aside before too
            old = tuple(one for one in state.manifests[:-1] if not _is_held(state, one[0]))
            begun = tuple(one for one in state.aside if not state.has(one[0]))
            step = "mark" if "do not mark" not in rules else "look for who needs it"
            return state.going_on(number, step=step, known=(old, begun))
        case "mark":  # cleanup_marks.mark
            doomed = state.doomed
            if any(version == OLDEST for version, _ in me.known[0]):
                doomed |= {number}
            return state._replace(doomed=doomed).going_on(number, step="look for who needs it")
        case "look for who needs it":  # _keep_referenced
            old, begun = me.known
            if "do not spare" not in rules:
                old = tuple(one for one in old if not _is_held(state, one[0]))
            return state.going_on(number, step="set aside", known=(old, begun))
        case "set aside":  # aside.move_to_pending_removal, the oldest first
            left = [one for one in me.known[0] if state.has(one[0])]
            if not left:
                return state.going_on(number, step="look for new versions")
            aside = tuple(sorted({*state.aside, left[0]}))
            return state.without(left[0][0])._replace(aside=aside).going_on(number)
        case "look for new versions":  # _ReachableFiles.add_references
            every = tuple(sorted({*me.known[0], *me.known[1]}))
            living = [files for one, files in state.manifests if (one, files) not in every]
            if "do not look at new versions" in rules:
                living = [files for one, files in BEGINNING if (one, files) not in every]
            doomed = _doomed(state, number, rules, every, frozenset().union(*living))
            return state.going_on(number, step="remove files", files=doomed, known=(every,))
        case "remove files":  # _remove
            if me.files:
                gone = min(me.files)
                state = state._replace(files=state.files - {gone})
                return state.going_on(number, files=me.files - {gone})
            return state.going_on(number, step="remove manifests")
        case "remove manifests":
            every = me.known[0]
            left = tuple(one for one in state.aside if one not in every)
            return state._replace(aside=left).going_on(number, step="unmark", known=())
        case _:  # cleanup_marks.unmark: its own, and those that say nothing any more
            doomed = state.doomed - {number} if state.has(OLDEST) else frozenset()
            return state._replace(doomed=doomed).going_on(number, step="done")


def _is_held(state: State, version: int) -> bool:
    """``_VersionReferences.referrers``, ``_VersionReferences.restored``."""
    return version == OLDEST and bool(state.needed)


def _doomed(state: State, number: int, rules: frozenset[str], old: tuple, kept: Files) -> Files:
    """``_is_removed``: of old versions only, or unreferenced and no longer young."""
    listed = state.processes[number].files
    verified = frozenset().union(*(files for _, files in old))
    young = {one.own for one in state.processes if one.step not in ENDS}
    if "ignore the age of files" in rules:
        young = set()
    return frozenset(file for file in listed - kept if file in verified or file not in young)


# Readers -----------------------------------------------------------------------------------


def read(state: State, number: int, rules: frozenset[str]) -> State:
    """A scan that pins a version and then reads one file after another."""
    me = state.processes[number]
    if me.step == "plan":  # Snapshot.open
        files = state.of(state.newest)
        return state.going_on(
            number, step="read", version=state.newest, files=files, known=(files, ())
        )
    pinned, got = me.known
    if "read the newest" in rules:
        me = me._replace(files=state.of(state.newest) - set(got))
    if not me.files:
        if frozenset(got) != pinned:
            raise Anomaly(f"a reader of {set(pinned)} got {set(got)}")
        return state.going_on(number, step="done", known=())
    file = min(me.files)
    if file not in state.files:  # MissingFileError
        return state.going_on(number, step="failed", known=(), files=frozenset())
    return state.going_on(number, files=me.files - {file}, known=(pinned, (*got, file)))


STEPS = {
    "append": append, "update": update, "restore": restore, "tag": tag, "cleanup": cleanup,
    "read": read,
}  # fmt: skip
MUTANTS = (
    "commit without judging", "commit what was planned", "put replaces", "do not look again",
    "do not look for marks", "do not mark", "do not spare", "do not look at new versions",
    "ignore the age of files", "read the newest",
)  # fmt: skip


# All schedules -----------------------------------------------------------------------------


def check(state: State) -> None:
    """What must hold in every state."""
    missing = state.of(state.newest) - state.files
    if missing:
        raise Anomaly(f"the newest version lacks {set(missing)}")
    for process in state.processes:
        if process.kind == "tag" and process.step == "done":
            if not BEGINNING[0][1] <= state.files:
                raise Anomaly("files of a tagged version are gone")
            if not state.has(OLDEST):
                raise Anomaly("the manifest of a tagged version is gone")


def next_states(state: State, rules: frozenset[str], *, deaths: bool) -> Iterator[State]:
    """What one step of one process makes of a state, or its death."""
    for number, process in enumerate(state.processes):
        if process.step in ENDS:
            continue
        yield STEPS[process.kind](state, number, rules)
        if deaths:
            yield state.going_on(number, step="died")


def explore(kinds: tuple[str, ...], mutant: str = "", *, deaths: bool = True) -> tuple[int, int]:
    """Visit all states; how many, and how many schedules lead through them.

    Raises:
        Anomaly: With the states that lead to it.
    """
    rules = frozenset({mutant} - {""})
    processes = tuple(Process(kind, "plan") for kind in kinds)
    files = frozenset().union(*(files for _, files in BEGINNING))
    first = State(BEGINNING, (), files, frozenset(), frozenset(), processes)
    schedules: dict[State, int] = {}
    path: list[tuple[State, Iterator[State], int]] = []

    def enter(state: State) -> None:
        check(state)
        path.append((state, next_states(state, rules, deaths=deaths), 0))

    try:
        enter(first)
        while path:
            state, following, count = path.pop()
            after = next(following, None)
            if after is None:
                is_over = all(process.step in ENDS for process in state.processes)
                schedules[state] = 1 if is_over else count
                if path:
                    above, rest, so_far = path.pop()
                    path.append((above, rest, so_far + schedules[state]))
            elif after in schedules:
                path.append((state, following, count + schedules[after]))
            else:
                path.append((state, following, count))
                enter(after)
    except Anomaly as anomaly:
        steps = [
            " | ".join(f"{one.kind}: {one.step}" for one in state.processes) for state, *_ in path
        ]
        raise Anomaly("\n  ".join([f"{anomaly}, of {', '.join(kinds)}", *steps])) from None
    return len(schedules), schedules[first]


def prove(triples: list[tuple[str, ...]], mutant: str = "") -> Report:
    """Explore all triples; a mutant stops at the first anomaly."""
    report = Report(f"model{f' with mutant {mutant!r}' if mutant else ''}", 0)
    report.counts["triples of processes"] = len(triples)
    for kinds in triples:
        try:
            states, schedules = explore(kinds, mutant)
        except Anomaly as anomaly:
            report.anomalies.append(str(anomaly))
            if mutant:
                break
            continue
        report.counts["states"] += states
        report.counts["schedules"] += schedules
    return report


TRIPLES = list(itertools.combinations_with_replacement(STEPS, 3))


def main() -> int:
    parser = arguments(__doc__)
    parser.add_argument("--mutant", default="", choices=["", "each", *MUTANTS])
    given = parser.parse_args()
    if given.mutant != "each":
        return prove(TRIPLES[: given.runs], given.mutant).show()
    survivors = 0
    for mutant in MUTANTS:
        started, report = time.monotonic(), prove(TRIPLES, mutant)
        caught = "caught" if report.anomalies else "SURVIVED"
        first = report.anomalies[0].splitlines()[0] if report.anomalies else ""
        print(f"{caught:8} {time.monotonic() - started:4.0f} s  {mutant}: {first}")
        survivors += not report.anomalies
    return int(survivors > 0)


if __name__ == "__main__":
    sys.exit(main())
