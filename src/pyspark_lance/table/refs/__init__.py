"""Names of versions: tags, branches, and the consumers that keep a version.

May import: table.version, commit and all below.
"""
