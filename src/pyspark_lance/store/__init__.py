"""Where bytes live: local disks, S3 and other stores; knows nothing of Lance.

May import: errors.
"""
