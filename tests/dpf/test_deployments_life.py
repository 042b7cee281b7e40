"""The life of a DPU that is installed by a DPUDeployment, on real API servers with DPF's double."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from blueprints.dpf import deployments
from blueprints.models import Blueprint
from drydock.core.errors import Conflict, NotSupported
from drydock_client.values import BlueprintChange, DpuChart
from leases.engine.lifecycle import release
from leases.engine.resources import retirement
from leases.local import LocalClient
from leases.models import Event, Lease, Resource, Run
from leases.operations import blueprints, resources
from leases.operations.callers import caller
from leases.reasons import Reason
from tests.dpf.conftest import FLAVOR, Lab
from tests.dpus import api
from tests.dpus.api import POD, SET, Kind
from tests.dpus.images import Image
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
NEWER = "http://127.0.0.1:1/bf-bundle-3.3.0.bfb"
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


def test_a_dpu_is_deployed_leased_updated_and_destroyed_and_leaves_nothing_though_workers_die(lab, ask, owner, deaths):
    site = lab(**CONFIG)
    _live(site, site.host("h1", "MT2400X00001"), ask, LocalClient(caller(owner)))
    assert deaths.count > 20


def force(site: Lab, lease: Lease, **changes: object) -> Resource:
    """Change the config of the DPUs, and let an operator force the update of a leased one."""
    config = {**Blueprint.objects.get(name="dpus").config, **changes}
    blueprints.change(site.root, "dpus", BlueprintChange(config=config))
    dpu = Resource.objects.get(pk=lease.resource_id)
    resources.update(site.root, dpu.pk, reason="a security fix")
    assert Event.objects.filter(kind="lease.maintenance", lease=lease, message__contains="a security fix").exists()
    site.until(dpu, turns=200, generation=Blueprint.objects.get(name="dpus").generation)
    for _ in range(6):  # the lease is set up again
        site.turn()
    lease.refresh_from_db()
    dpu.refresh_from_db()
    assert (lease.state, lease.resource_id, dpu.in_maintenance) == ("active", dpu.pk, False), lease.message
    assert not Run.objects.filter(resource=dpu).exists()
    return dpu


def test_a_leased_dpu_is_installed_anew_if_an_operator_forces_that(lab, ask, owner, request):
    site = lab(charts=[{**CHART, "versions": ["1.2.0"]}])
    host = site.host("h1", "MT2400X00001")
    site.double.images[NEWER] = Image("3.3.0")
    images = Blueprint.objects.get(name="images")
    images.config = {**images.config, "images": [{"url": URL, "doca": "3.2.0"}, {"url": NEWER, "doca": "3.3.0"}]}
    images.save()
    site.discover()
    lease = site.until(ask("dpu"), turns=200, state="active")
    ada = LocalClient(caller(owner))
    ada.apply_dpu_service(lease.pk, "mine", chart=DpuChart(**CHART, version="1.2.0"))
    (before,) = site.user.all(api.DPU)
    deaths = request.getfixturevalue("deaths")
    dpu = force(site, lease, image=NEWER, flavor={**FLAVOR, "bfcfgParameters": []})
    assert deaths.count > 8
    (after,) = site.user.all(api.DPU)
    assert api.uid_of(after) != api.uid_of(before)
    assert (host.cards[0].imaged, host.reboots) == ([URL, NEWER], ["drydock"] * 2)
    assert (dpu.attributes["image"], dpu.attributes["doca"]) == (NEWER, "3.3.0")
    (flavor,) = site.user.all(api.FLAVOR)
    assert flavor["spec"]["bfcfgParameters"] == []
    assert [one.state for one in ada.dpu_services(lease.pk)] == ["ready"]
    former = Lease.objects.get(for_resource=dpu, need="image")
    site.until(former, state="destroyed")
    # What would need another card cannot be forced.
    config = {**Blueprint.objects.get(name="dpus").config, "card": {"model": "BlueField3"}}
    blueprints.change(site.root, "dpus", BlueprintChange(config=config))
    with pytest.raises(NotSupported, match="With another card, the DPU may have to move to another card"):
        resources.update(site.root, dpu.pk, reason="now")
    release.release(lease.pk, actor="ada")
    site.until(dpu, turns=200, state="destroyed")
    assert left(site) == []


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
    # The owner can neither change nor remove it, and sees nothing of its values.
    assert ada.dpu_service(lease.pk, "edge").values == {}
    for write in (
        ada.remove_dpu_service,
        lambda *given: ada.apply_dpu_service(*given, chart=DpuChart(**CHART, version="1.2.0")),
    ):
        with pytest.raises(Conflict, match="belongs to the blueprint"):
            write(lease.pk, "edge")
    # Another version of the service needs no other image, so an update that is forced installs nothing anew.
    service = {**DEPLOYED["services"]["edge"], "chart": {**CHART, "version": "1.3.0"}}
    force(site, lease, deployment={**DEPLOYED, "services": {"edge": service}}, node_labels={"rack": "r1"})
    (dpu,) = site.user.all(api.DPU)
    assert dpu["spec"]["cluster"]["nodeLabels"]["rack"] == "r1"
    (shown,) = ada.dpu_services(lease.pk)
    assert (shown.chart.version, shown.state) == ("1.3.0", "ready")
    assert (host.cards[0].imaged, host.reboots) == ([URL], ["drydock"])
    gone = end(site, lease)
    site.until(gone, turns=200, state="destroyed")
    assert left(site) == []
    site.until(Resource.objects.get(blueprint__name="cards"), used_slots=0)
