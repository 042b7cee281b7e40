"""Orders for tests: one machine on Debian in us-east-1a, and what differs."""

from __future__ import annotations

import itertools
from typing import Any

from blueprints.cloud.values import Instance, Order
from blueprints.ec2.client import Ec2

DEBIAN = "ami-0de0000000000012b"
"""The newest Debian 12 for x86_64 in images.json."""
TAGS = {"drydock-installation": "abc", "drydock-resource": "1"}
_numbers = itertools.count(1)


def order(**more: Any) -> Order:
    """Another name and token each time."""
    number = next(_numbers)
    given: dict[str, Any] = {
        "key": f"dd-abc-1-r{number}",
        "token": f"attempt-{number}",
        "location": "us-east-1",
        "zone": "us-east-1a",
        "type": "t3.micro",
        "image": DEBIAN,
        "ssh_from": ("192.0.2.0/24", "2001:db8::/32"),
        "user": "drydock",
        "user_data": "#cloud-config\n{}",
        "tags": TAGS,
    }
    return Order(**{**given, **more})


def made(ec2: Ec2, given: Order) -> Instance:
    """Prepared and created."""
    return ec2.create(given, ec2.prepare(given))


def again(ec2: Ec2, instance: Instance) -> Instance:
    """Read anew; it must be there."""
    found = ec2.instance(instance.location, instance.zone, instance.key, instance.id)
    assert found is not None
    return found
