"""The queue: serves pending leases in order, and grants groups, which it places in one host and builds there if need be.

A host is the top of a tree of resources. Devices are parts of it, and so are resources that are built on a device.
"""

__all__ = ["carriers", "colocation", "groups", "opinions", "serve"]
