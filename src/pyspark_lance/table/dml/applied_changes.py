"""Record up to which version the changes of a source table are applied to this table.

The commit that applies the changes also records the version, so both are atomic.
"""

from __future__ import annotations

from dataclasses import replace

from pyspark_lance.commit.application_versions import (
    CONFIG_PREFIX,
    application_version,
    applied_changes,
    recorded_version,
)
from pyspark_lance.format.operation import UpdateConfig, UpdateMap
from pyspark_lance.table.dml.commit_changes import PreparedCommit
from pyspark_lance.table.dml.row_change import ChangeResult, DmlPlan
from pyspark_lance.table.version.snapshot import Snapshot
from pyspark_lance.table.work.unit_of_work import UnitOfWork


def applied_version(snapshot: Snapshot, source: str) -> int:
    """The version up to which the changes of ``source`` are applied; 0 for none."""
    return recorded_version(snapshot.manifest.config, applied_changes(source)) or 0


def with_applied_version(plan: DmlPlan, commit: PreparedCommit) -> PreparedCommit:
    """Return a commit that records the applied version even if no row changes."""

    def run(work: UnitOfWork) -> ChangeResult:
        done = commit(work)
        number = application_version(plan.settings.properties)
        if done.version is not None or number is None:
            return done
        note = UpdateMap(((CONFIG_PREFIX + number.application, str(number.version)),))
        result = work.commit(work.propose(plan.base, UpdateConfig(config_updates=note)))
        return done if result is None else replace(done, version=result.version)

    return run
