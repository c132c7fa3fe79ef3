"""Tables from the command line, without Spark: look at them and keep them in order.

May import: table and all below.
"""
