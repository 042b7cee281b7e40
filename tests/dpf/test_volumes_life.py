"""Volumes and VPCs of leases on DPUs that DPF 26.4 has installed: none is left, whatever dies."""

from __future__ import annotations

from typing import Any

import pytest

from leases.engine.lifecycle import release
from leases.engine.resources import retirement
from leases.local import LocalClient
from leases.models import Resource, SlotLock
from leases.operations.callers import caller
from leases.reasons import Reason
from tests.dpf.conftest import Lab
from tests.dpf.test_services_life import settled
from tests.dpus.api import ATTACHMENT, INTERFACE, ISOLATION, POLICY, VIRTUAL_NETWORK, VOLUME, VPC, name_of
from tests.dpus.generations import V26_4
from tests.leases.conftest import _database as _database
from tests.leases.conftest import ask as ask
from tests.leases.conftest import owner as owner

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
BLUE = {"name": "blue", "subnet": "10.30.1.0/24", "interfaces": ["pf0vf1", "pf1"]}


def left(site: Lab) -> list[str]:
    """Return volumes and VPCs that are there, what DPF has made of them, and their slot locks."""
    kinds = (VOLUME, ATTACHMENT, VPC, VIRTUAL_NETWORK, INTERFACE)
    found = [f"{kind.name} {name_of(one)}" for kind in kinds for one in site.user.all(kind)]
    locks = SlotLock.objects.exclude(value__startswith="MT").values_list("key", flat=True)
    return [*found, *site.double.storage.left(), *site.double.vpcs.members(), *site.double.chains.left(), *locks]


def created(site: Lab, ada: LocalClient, lease: Any, isolation: str) -> None:
    ada.create_dpu_volume(lease.pk, "data", policy="fast", size_gib=20)
    ada.create_dpu_vpc(lease.pk, "lab", isolation=isolation, networks=[BLUE])  # type: ignore[list-item]
    settled(site)
    volume = ada.dpu_volume(lease.pk, "data")
    assert (volume.state, sorted(volume.attached)) == ("ready", ["device", "pci_address"]), volume
    assert ada.dpu_vpc(lease.pk, "lab").state == "ready", ada.dpu_vpc(lease.pk, "lab")
    (node,) = site.user.members()
    assert list(site.double.vpcs.members()) == [node]


@pytest.mark.parametrize("dpf", [V26_4.name], indirect=True)
def test_a_worker_that_dies_after_each_call_leaves_no_volume_and_no_vpc(lab, dpf, ask, owner, request):
    # Isolation classes are of no namespace, so those of other tests are on the server too.
    isolation = f"ovn-{dpf.double.state.api.namespace}"
    vpcs = {"isolations": [isolation], "subnets": ["10.30.0.0/16"], "vfs": 4}
    site = lab(volumes={"policies": ["fast"]}, vpcs=vpcs)
    site.host("h1", "MT2400X00001")
    site.discover()
    lease = site.until(ask("dpu"), state="active")
    ada = LocalClient(caller(owner))
    admin = site.double.state.admin
    admin.create(POLICY, {"metadata": {"name": "fast"}, "spec": {"dpuStorageVendors": ["vendor"]}})
    admin.create(ISOLATION, {"metadata": {"name": isolation}, "spec": {"provisioner": "ovn.vpc.dpu.nvidia.com"}})
    before = left(site)
    created(site, ada, lease, isolation)
    deaths = request.getfixturevalue("deaths")
    release.release(lease.pk, actor="ada")
    site.until(lease, state="destroyed")
    assert left(site) == before
    assert deaths.count >= 2  # in both steps of the deactivation
    dpu = Resource.objects.get(pk=lease.resource_id)
    assert retirement.retire_idle(dpu.pk, reason=Reason.OPERATOR, message="The test has ended.")
    site.until(dpu, state="destroyed")
    assert (site.user.left(), left(site)) == ([], [])
