"""The serial console of a leased machine: bytes in both directions, with a record without secrets."""

from interfaces.console.contract import Console, Line
from interfaces.console.record import Redaction, readable

__all__ = ["Console", "Line", "Redaction", "readable"]
