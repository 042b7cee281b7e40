"""`drydock console`: the serial console of a leased machine, its record and a terminal attached to it."""

from drydock.cli.console.command import add_console

__all__ = ["add_console"]
