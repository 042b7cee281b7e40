"""Serial consoles that are reached on their own: over an SSH server, or by a program of the operator's.

Kinds whose machines have such a console share the drivers. The console that a BMC offers belongs to its BMC driver
(`blueprints.bmc.contract.Serial`). `contract` says what a driver is, and `registry` finds it by name.
"""
