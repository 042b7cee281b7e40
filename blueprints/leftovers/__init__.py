"""Ways to survive the end of a lease: a table of them, and the suite that plants each and looks for it afterwards.

One lease plants every row. When it has ended, the next lease looks for what is left of them, and where there is a way
(root on the same machine, the control account of the host) so does somebody outside. Used by `drydock validate host`
and by the conformance tests of kinds.
"""

from blueprints.leftovers.parties import Outside, Pages, Party, Run
from blueprints.leftovers.rows import NAMES, ROWS
from blueprints.leftovers.suite import Planted, Suite
from blueprints.leftovers.values import Finding, Report, Row, Verdict

__all__ = [
    "NAMES", "ROWS", "Finding", "Outside", "Pages", "Party", "Planted", "Report", "Row", "Run", "Suite", "Verdict",
]  # fmt: skip
