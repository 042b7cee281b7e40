"""Groups in one host: which host can serve a group, and what is built in it for the group.

A host is the top of a tree of resources. Devices are parts of it, and so are resources that are built on a device.
"""

__all__ = ["carriers", "colocation"]
