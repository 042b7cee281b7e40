"""The building blocks of commands: options, output, exit codes, connections, and waiting for leases.

Nothing in this package depends on a command of `drydock.cli`.
"""
