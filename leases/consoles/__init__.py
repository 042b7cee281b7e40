"""The serial consoles of leases: one process holds the open line, and any process serves those who read and type.

`operations` has what the faces call. `attachments` stores who reads and who types, `record` stores what the machine
printed, and `pump` moves bytes between these rows and the line. The database is the truth: a process that holds a line
may die at any time, and the next one that serves a reader opens the line again.
"""

from leases.consoles.operations import attach, detach, read, recorded, shown, write

__all__ = ["attach", "detach", "read", "recorded", "shown", "write"]
