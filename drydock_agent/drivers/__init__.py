"""The drivers that ship with the package, one module for each family of devices.

They are registered as entry points and use only public interfaces, like the drivers of other packages.
"""
