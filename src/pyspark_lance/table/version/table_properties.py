"""The properties of a table, which its manifest keeps in two places."""

from __future__ import annotations

from pyspark_lance.table.version.snapshot import Snapshot

OWN_PREFIX = "pyspark_lance."
"""Keys of this package, which are no properties of the user's."""


def properties_of(snapshot: Snapshot) -> dict[str, str]:
    """The properties of a table, by key."""
    manifest = snapshot.manifest
    own = {key: value for key, value in manifest.config.items() if not key.startswith(OWN_PREFIX)}
    return dict(sorted({**manifest.table_metadata, **own}.items()))
