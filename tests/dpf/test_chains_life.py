"""Chains of leases on DPUs that DPF has installed: none is left, whatever dies, and interfaces are locked."""

from __future__ import annotations

from typing import Any

import pytest

from blueprints.dpf.services import LEASE
from blueprints.dpu.dpf.objects import DpfChains
from drydock.core.errors import Conflict
from drydock_client.values import DpuChart
from interfaces.errors import LeaseEnded
from leases.engine.core import specs
from leases.engine.lifecycle import release
from leases.engine.resources import retirement
from leases.local import LocalClient
from leases.models import Resource, SlotLock
from leases.operations.callers import caller
from leases.reasons import Reason
from tests.dpf.conftest import Lab
from tests.dpf.test_services_life import pods, settled
from tests.dpus.api import CHAIN, INTERFACE, IPAM, SERVICE, SERVICE_CHAIN, name_of
from tests.leases.conftest import _database as _database
from tests.leases.conftest import ask as ask
from tests.leases.conftest import owner as owner

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
FIREWALL = DpuChart(repository="oci://charts.example.org/doca", name="firewall", version="1.2.0")
CONFIG: dict[str, Any] = {
    "charts": [{"repository": FIREWALL.repository, "name": FIREWALL.name, "versions": ["1.2.0"]}],
    "chains": {"vfs": 8},
    "networks": ["10.20.0.0/16"],
}
WEB = [["p0", "edge:net1@blue"], ["edge:net2", "pf0vf3"]]


def left(site: Lab) -> list[str]:
    """Return services, chains, interfaces and networks that are there, also those in the DPU cluster."""
    found = [f"{kind.name} {name_of(one)}" for kind in (CHAIN, INTERFACE, IPAM, SERVICE) for one in site.user.all(kind)]
    return [*found, *site.double.chains.left(), *(name_of(one) for one in pods(site))]


def connected(site: Lab, ada: LocalClient, lease: Any) -> None:
    ada.apply_dpu_service(lease.pk, "edge", chart=FIREWALL, interfaces=["net1", "net2"])
    ada.create_dpu_network(lease.pk, "blue", subnet="10.20.1.0/24")
    ada.connect_dpu_chain(lease.pk, "web", switches=WEB)
    settled(site)
    assert ada.dpu_chain(lease.pk, "web").state == "ready"
    assert ada.dpu_service(lease.pk, "edge").state == "ready"


def test_a_worker_that_dies_after_each_call_leaves_no_chain(lab, ask, owner, request):
    site = lab(**CONFIG)
    site.host("h1", "MT2400X00001")
    site.discover()
    lease = site.until(ask("dpu"), state="active")
    ada = LocalClient(caller(owner))
    connected(site, ada, lease)
    ada.connect_dpu_chain(lease.pk, "plain", switches=[["p1", "pf1"]])
    assert SlotLock.objects.filter(lease=lease).count() == 8
    deaths = request.getfixturevalue("deaths")
    following = ask("dpu")
    release.release(lease.pk, actor="ada")
    site.until(lease, state="destroyed")
    assert left(site) == []
    assert not SlotLock.objects.filter(lease=lease).exists()
    site.until(following, state="active")
    assert following.resource_id == lease.resource_id
    assert deaths.count >= 3  # in the deactivation, and in both steps of the activation
    connected(site, ada, following)


def test_chains_live_as_long_as_their_lease(lab, ask, owner, monkeypatch):
    site = lab(**CONFIG)
    site.host("h1", "MT2400X00001")
    site.discover()
    lease = site.until(ask("dpu"), state="active")
    ada = LocalClient(caller(owner))
    connected(site, ada, lease)
    with pytest.raises(Conflict, match="edge:net1 is used by chain web"):
        ada.remove_dpu_service(lease.pk, "edge")
    with pytest.raises(Conflict, match="network blue is used by chain web"):
        ada.remove_dpu_network(lease.pk, "blue")
    (node,) = site.user.members()
    assert {one["spec"]["node"] for one in _chains_in_cluster(site)} == {node}

    # A request that is on its way while the lease ends writes after the cleaning, and takes it back.
    create = DpfChains.create

    def late(self: DpfChains, *given: Any) -> Any:
        release.release(lease.pk, actor="ada")
        site.until(lease, state="destroyed")
        assert left(site) == []
        return create(self, *given)

    monkeypatch.setattr(DpfChains, "create", late)
    with pytest.raises(LeaseEnded):
        ada.connect_dpu_chain(lease.pk, "late", switches=[["p1", "pf1"]])
    monkeypatch.undo()
    settled(site)
    assert left(site) == []
    assert not SlotLock.objects.filter(lease=lease).exists()

    # What is left if the process of that request dies is removed with the DPU.
    dpu = Resource.objects.get(pk=lease.resource_id)
    labels = specs.tags(dpu)
    template = {"metadata": {"labels": {"a": "b"}}, "spec": {"interfaceType": "pf", "pf": {"pfID": 1}}}
    spec = {"template": {"spec": {"nodeSelector": {"matchLabels": labels}, "template": template}}}
    site.user.api.create(
        INTERFACE, {"metadata": {"name": "stray", "labels": {**labels, LEASE: specs.key("l", lease.pk)}}, "spec": spec}
    )
    site.double.settle()
    assert f"{INTERFACE.name} stray" in left(site)
    assert retirement.retire_idle(dpu.pk, reason=Reason.OPERATOR, message="The test has ended.")
    site.until(dpu, state="destroyed")
    assert site.user.left() == []
    assert left(site) == []


def _chains_in_cluster(site: Lab) -> list[Any]:
    return [one for api in site.double.state.pod_links.apis for one in api.all(SERVICE_CHAIN)]
