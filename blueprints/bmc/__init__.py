"""Access to the management controllers (BMCs) of servers, shared by all kinds whose machines have one.

A driver (entry point group `drydock.bmc_drivers`) opens a session with one controller. What a controller can do follows
from the classes of `contract` that the session implements. Vendor libraries are imported only in the module of their
driver, and only when the driver is used.
"""
