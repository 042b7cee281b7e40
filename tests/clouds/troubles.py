"""What goes wrong at the emulated clouds, by name: each takes the doubles and a chance, and strikes once or twice."""

from __future__ import annotations

import random
from collections.abc import Callable
from typing import Any, TypeAlias

Doubles: TypeAlias = dict[str, Any]
Trouble: TypeAlias = Callable[[Doubles, random.Random], object]

_EC2 = ("RunInstances", "TerminateInstances", "DescribeInstances", "CreateSecurityGroup", "DeleteSecurityGroup",
        "AuthorizeSecurityGroupIngress", "DescribeSecurityGroups")  # fmt: skip
_CHANGES = _EC2[:2] + _EC2[3:6]
_GCE = ("compute.instances.insert", "compute.instances.delete", "compute.firewalls.insert", "compute.firewalls.delete")
_AZURE = (("PUT", "/virtualMachines/"), ("DELETE", "/virtualMachines/"), ("PUT", "/networkInterfaces/"),
          ("DELETE", "/networkInterfaces/"), ("PUT", "/publicIPAddresses/"))  # fmt: skip


def _azure(chance: random.Random) -> dict[str, str]:
    method, path = chance.choice(_AZURE)
    return {"method": method, "path": path}


def _preempt(double: Any, chance: random.Random, take: Callable[[str], object]) -> None:
    if there := double.objects().get("instances"):
        take(chance.choice(there))


TROUBLES: dict[str, Trouble] = {
    "ec2 loses an answer": lambda on, chance: on["ec2"].plan.lose(chance.choice(_CHANGES)),
    "ec2 does it and says that it failed": lambda on, chance: on["ec2"].plan.fail("RunInstances", happens=True),
    "ec2 fails": lambda on, chance: on["ec2"].plan.fail(chance.choice(_EC2)),
    "ec2 throttles": lambda on, chance: on["ec2"].plan.throttle(chance.choice(_EC2), times=2),
    "ec2 has no capacity": lambda on, chance: on["ec2"].plan.no_capacity(times=2),
    "ec2 takes a machine back": lambda on, chance: _preempt(on["ec2"], chance, on["ec2"].preempt),
    "gce loses an answer": lambda on, chance: on["gce"].faults.lose(chance.choice(_GCE)),
    "gce does it and says that it failed": lambda on, chance: on["gce"].faults.answer_instead(_GCE[0]),
    "gce throttles": lambda on, chance: on["gce"].faults.refuse("", 403, "rateLimitExceeded", times=3),
    "gce fails while it works": lambda on, chance: on["gce"].faults.fail_operation(
        _GCE[0], "INTERNAL_ERROR", "Internal error."
    ),
    "gce is exhausted": lambda on, chance: on["gce"].faults.exhaust("", times=2),
    "gce takes a machine back": lambda on, chance: _preempt(on["gce"], chance, on["gce"].preempt),
    "azure loses an answer": lambda on, chance: on["azure"].lose(**_azure(chance)),
    "azure does it and says that it failed": lambda on, chance: on["azure"].fail(before=False, **_azure(chance)),
    "azure fails": lambda on, chance: on["azure"].fail(before=True, **_azure(chance)),
    "azure throttles": lambda on, chance: on["azure"].throttle(times=3, after=0.2),
    "azure refuses a size": lambda on, chance: on["azure"].refuse("SkuNotAvailable", times=2),
    "azure allocates in vain": lambda on, chance: on["azure"].fail_allocation(times=1),
}


def cleared(doubles: Doubles) -> None:
    """From now on everything works."""
    doubles["ec2"].plan.clear()
    doubles["gce"].faults.clear()
    doubles["azure"].faults.clear()
    doubles["azure"].ground.wants.clear()
