"""The life of a DPU that is installed by a DPUDeployment, on real API servers with DPF's double."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from blueprints.dpf import deployments
from leases.engine.lifecycle import release
from leases.engine.resources import retirement
from leases.local import LocalClient
from leases.models import Lease, Resource
from leases.operations.callers import caller
from leases.reasons import Reason
from tests.dpf.conftest import FLAVOR, Lab
from tests.dpus import api
from tests.dpus.api import POD, SET, Kind
from tests.dpus.user import URL
from tests.dpus.world import Host
from tests.leases.conftest import _database as _database
from tests.leases.conftest import ask as ask
from tests.leases.conftest import owner as owner

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
CHART = {"repository": "oci://charts.example.org/doca", "name": "firewall"}
DEPLOYED = {
    "image": URL,
    "flavor": FLAVOR,
    "services": {"edge": {"chart": {**CHART, "version": "1.2.0"}, "interfaces": ["net1"], "values": {"token": "x"}}},
    "chains": [[{"service": "edge", "interface": "net1"}]],
}
CONFIG = {"charts": [{**CHART, "versions": ["1.2.0", "1.3.0"]}], "deployment": DEPLOYED}
OURS = (api.DEPLOYMENT, api.TEMPLATE, api.CONFIGURATION, api.FLAVOR)
MADE = (api.SERVICE, api.INTERFACE, api.CHAIN, SET)


def left(site: Lab) -> list[str]:
    """Return what is there of ours, and of what DPF makes of it, also in the DPU cluster."""
    kinds: tuple[Kind, ...] = (*OURS, *MADE)
    there = [f"{kind.name} {api.name_of(one)}" for kind in kinds for one in site.user.all(kind)]
    pods = [api.name_of(pod) for one in site.double.state.pod_links.apis for pod in one.all(POD)]
    return [*there, *pods, *site.user.left(), *site.double.chains.left()]


def end(site: Lab, lease: Lease) -> Resource:
    """Release a lease, and let its DPU be destroyed."""
    release.release(lease.pk, actor="ada")
    site.until(lease, state="destroyed")
    dpu = Resource.objects.get(pk=lease.resource_id)
    assert retirement.retire_idle(dpu.pk, reason=Reason.OPERATOR, message="The test has ended.")
    return dpu


def test_a_dpu_is_deployed_leased_and_destroyed_and_leaves_nothing(lab, ask, owner):
    site = lab(**CONFIG)
    _live(site, site.host("h1", "MT2400X00001"), ask, LocalClient(caller(owner)))


def _live(site: Lab, host: Host, ask: Callable[..., Lease], ada: LocalClient) -> None:
    site.discover()
    lease = site.until(ask("dpu"), turns=200, state="active")
    assert (host.cards[0].imaged, host.reboots) == ([URL], ["drydock"])
    (deployment,), (made,) = site.user.all(api.DEPLOYMENT), site.user.all(SET)
    assert deployments.OWNED_BY in api.labels_of(made)
    assert deployments.NOTHING not in str(made)
    (dpu,) = site.user.all(api.DPU)
    proof = {key: value for key, value in api.labels_of(deployment).items() if key != "drydock-key"}
    proof = {key: value for key, value in proof.items() if key.startswith("drydock-")}
    assert proof
    assert proof.items() <= api.labels_of(dpu).items()
    assert proof.items() <= dpu["spec"]["cluster"]["nodeLabels"].items()
    (shown,) = ada.dpu_services(lease.pk)
    assert (shown.name, shown.state, shown.of_blueprint) == ("edge", "ready", True)
    gone = end(site, lease)
    site.until(gone, turns=200, state="destroyed")
    assert left(site) == []
    site.until(Resource.objects.get(blueprint__name="cards"), used_slots=0)
