"""The table: every way to survive that the suite tries, in the order in which it is planted."""

from __future__ import annotations

from blueprints.leftovers.files import FILES
from blueprints.leftovers.kernel import KERNEL
from blueprints.leftovers.processes import PROCESSES

ROWS = (*FILES, *KERNEL, *PROCESSES)
NAMES = tuple(row.name for row in ROWS)
