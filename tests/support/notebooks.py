"""Execute a notebook: python tests/support/notebooks.py FROM [TO], with its outputs in TO or FROM.

Temporary folders are cut off of paths, and what a kernel writes to stderr is printed instead of
kept, so that the notebook is the same on every machine.
"""

from __future__ import annotations

import re
import sys
from pathlib import Path

_TEMPORARY = re.compile(r"/[\w/.-]*/tmp[a-z0-9_]{8}/")


def execute(source: Path, target: Path) -> None:
    """Run all cells in the folder of ``source``, and write them with what they show."""
    import nbformat
    from nbclient import NotebookClient

    notebook = nbformat.read(source, nbformat.NO_CONVERT)
    resources = {"metadata": {"path": str(source.parent)}}
    NotebookClient(notebook, timeout=600, kernel_name="python3", resources=resources).execute()
    for cell in notebook.cells:
        cell.metadata = {}
        for output in cell.get("outputs", ()):
            if output.get("name") == "stderr":
                sys.stderr.write(output.text)
        if cell.cell_type == "code":
            cell.outputs = [one for one in cell.outputs if one.get("name") != "stderr"]
    notebook.metadata.language_info = {"name": "python"}
    target.write_text(_TEMPORARY.sub("", nbformat.writes(notebook)) + "\n")


if __name__ == "__main__":
    execute(Path(sys.argv[1]).resolve(), Path(sys.argv[-1]).resolve())
