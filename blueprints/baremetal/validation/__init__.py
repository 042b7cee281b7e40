"""The behaviour suite of one server: tests whether its BMC, its ramdisk and its disks do what Drydock relies on.

The checks are data (`suite.CHECKS`). They run as the act `validate`, whose plan consists of the steps of all checks,
and call the same functions as the plans of leases. A check that fails is recorded, and the next one follows. The last
check brings the host back to the power that it had, without media and without a boot override.
"""

from blueprints.baremetal.validation.record import FACT
from blueprints.baremetal.validation.suite import CHECKS, Choice, plan
from blueprints.baremetal.validation.values import Check, Verdict

__all__ = ["CHECKS", "FACT", "Check", "Choice", "Verdict", "plan"]
