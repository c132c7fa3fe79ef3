"""Object stores: local disks, S3 and other stores; independent of Lance.

May import: errors.
"""
