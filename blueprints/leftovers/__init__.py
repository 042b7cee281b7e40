"""A table of ways to survive the end of a lease, and the suite that plants each one and looks for it afterwards.

One lease plants every row. After it has ended, the next lease looks for what is left. If the host can also be inspected
from outside (as root on the same machine, or with the host's control account), an outside party looks too. Used by
`drydock validate host` and by the conformance tests of kinds.
"""

from blueprints.leftovers.parties import Outside, Pages, Party, Run
from blueprints.leftovers.suite import NAMES, ROWS, Planted, Suite
from blueprints.leftovers.values import Finding, Report, Row, Verdict

__all__ = [
    "NAMES", "ROWS", "Finding", "Outside", "Pages", "Party", "Planted", "Report", "Row", "Run", "Suite", "Verdict",
]  # fmt: skip
