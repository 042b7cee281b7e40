"""Hosts of emulated clouds, from request to nothing left: every instance is a real SSH server."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from blueprints.models import Credential, Reading
from leases.engine import reading, readings
from leases.inline import settle
from leases.models import Lease, Resource
from tests.clouds.ec2.double import Double as Ec2Double
from tests.clouds.machines import USER, Machines
from tests.peers import require


@pytest.fixture
def machines() -> Iterator[Machines]:
    require("sshd")
    found = Machines()
    yield found
    found.close()


@pytest.fixture
def ec2(machines) -> Iterator[Ec2Double]:
    with Ec2Double(on_start=machines.start, on_end=machines.end) as double:
        yield double


@pytest.fixture
def aws(ec2, machines, blueprint):
    """A blueprint on the emulated EC2."""
    Credential.objects.create(name="aws", secrets={**ec2.secrets(), "price_list": False})

    def make(name: str = "aws", **config):
        said = {
            "credential": "aws", "regions": ["us-east-1"], "types": ["t3.*", "m6a.*"], "ready_by": "ssh", "user": USER,
            "ssh_port": machines.port, "homes": "/tmp", "min_free_mib": 0, **config,
        }  # fmt: skip
        return blueprint(name, kind="ec2", resource_type="host", config=said)

    return make


def look(what: str = "") -> None:
    """Make every reading now, those first of which others follow."""
    readings.due()
    for each in [what] if what else ["places", "inventory", "status"]:
        Reading.objects.filter(what=each).update(due_at="2020-01-01T00:00Z")
        for one in Reading.objects.filter(what=each):
            assert reading.read(one.pk)
            one.refresh_from_db()
            assert one.message == ""
    settle()


def test_a_host_is_built_used_and_gone_without_a_trace(aws, ec2, ask, until):
    aws()
    look()
    lease = ask("host", cpu_millicores=2000)
    settle()
    look("status")
    until(lease, state="active", seconds=60)
    assert lease.resource.attributes["instance_type"].startswith("t3.")
    Lease.objects.update(release_wanted="released")
    Resource.objects.update(drained=True)
    until(lease, state="destroyed", seconds=60)
    until(lease.resource, state="destroyed", seconds=60)
    assert ec2.objects() == {}
