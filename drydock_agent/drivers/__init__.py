"""The drivers that ship with the package, one module for each family of devices.

They are registered as entry points like the drivers of other packages, and depend on nothing that those cannot use.
"""
