"""Puts the JVM companion into the wheel when it can be built; everything works without it."""

from __future__ import annotations

import importlib.util
from pathlib import Path
from typing import Any

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

_SPEC = importlib.util.spec_from_file_location(
    "companion_build", Path(__file__).with_name("build.py")
)
assert _SPEC is not None and _SPEC.loader is not None
companion = importlib.util.module_from_spec(_SPEC)
_SPEC.loader.exec_module(companion)


class CompanionHook(BuildHookInterface):  # type: ignore[misc]
    """Builds the jar and adds it to the files of the wheel."""

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Called by hatchling before a wheel is made; an editable one finds the jar in src."""
        try:
            jar = companion.build()
        except (companion.CannotBuildError, OSError) as error:
            self.app.display_warning(f"the wheel goes without the JVM companion: {error}")
            return
        if version != "editable":
            build_data["force_include"][str(jar)] = f"pyspark_lance/jars/{companion.JAR_NAME}"
