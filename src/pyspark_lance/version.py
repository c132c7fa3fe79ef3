"""The release of this package: the only place that has it.

It imports nothing, so that what writes it into manifests and the build of the package both read it.
"""

__version__ = "0.1.0"
