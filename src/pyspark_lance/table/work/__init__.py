"""UnitOfWork: an operation planned on the newest version and committed once.

May import: table.cleanup, table.refs and all below.
"""
