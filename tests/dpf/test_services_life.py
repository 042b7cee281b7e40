"""Services of leases on DPUs that DPF has installed: from the first request to the destruction of the DPU."""

from __future__ import annotations

from typing import Any

import pytest

from blueprints.dpf import services as objects
from blueprints.dpu.dpf.services import DpfServices
from drydock_client.errors import NotFound
from drydock_client.values import DpuChart
from interfaces.errors import LeaseEnded
from leases.engine.core import specs
from leases.engine.core.runs import start
from leases.engine.lifecycle import release
from leases.engine.resources import retirement
from leases.local import LocalClient
from leases.models import Event, Lease, Resource, Run
from leases.operations.callers import caller
from leases.reasons import Reason
from tests.dpf.conftest import Lab
from tests.dpus.api import POD, SERVICE, annotations_of, labels_of
from tests.leases.conftest import _database as _database
from tests.leases.conftest import ask as ask
from tests.leases.conftest import owner as owner

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
CHART = {"repository": "oci://charts.example.org/doca", "name": "firewall"}
FIREWALL = DpuChart(**CHART, version="1.2.0")


def names(site: Lab) -> list[str]:
    return [labels_of(one)[objects.NAME] for one in site.user.all(SERVICE)]


def pods(site: Lab) -> list[Any]:
    return [pod for api in site.double.state.pod_links.apis for pod in api.all(POD)]


def settled(site: Lab, turns: int = 6) -> None:
    for _ in range(turns):
        site.turn()


def test_services_live_as_long_as_their_lease(lab, ask, owner, django_user_model, monkeypatch):
    site = lab(charts=[{**CHART, "versions": ["1.2.0"]}])
    site.host("h1", "MT2400X00001")
    site.discover()
    lease = site.until(ask("dpu"), state="active")
    ada = LocalClient(caller(owner))
    assert ada.lease(lease.pk).interfaces == ("dpu_services",)

    ada.apply_dpu_service(lease.pk, "edge", chart=FIREWALL, values={"token": "hunter2"})
    settled(site)
    assert ada.dpu_service(lease.pk, "edge").state == "ready"
    (pod,) = pods(site)
    assert [pod["spec"]["nodeName"]] == site.user.members()
    assert annotations_of(pod)[objects.VERSION]

    # A transfer leaves the services to the new owner, and takes them from the former one.
    grace = django_user_model.objects.create_user("grace")
    LocalClient(site.root).transfer(lease.pk, to="grace")
    settled(site)
    with pytest.raises(NotFound):
        ada.dpu_services(lease.pk)
    hers = LocalClient(caller(grace))
    assert hers.dpu_service(lease.pk, "edge").values == {"token": "hunter2"}

    # A check leaves services of leases alone.
    dpu = Resource.objects.get(pk=lease.resource_id)
    checked(site, dpu)
    assert names(site) == ["edge"]

    # A request that is on its way while the lease ends writes after the cleaning, and takes it back.
    create = DpfServices.create

    def late(self: DpfServices, *given: Any) -> Any:
        release.release(lease.pk, actor="grace")
        site.until(lease, state="destroyed")
        assert names(site) == []
        assert pods(site) == []
        return create(self, *given)

    monkeypatch.setattr(DpfServices, "create", late)
    with pytest.raises(LeaseEnded):
        hers.apply_dpu_service(lease.pk, "late", chart=FIREWALL)
    monkeypatch.undo()
    settled(site)
    assert names(site) == []
    assert pods(site) == []

    # What is left if the process of that request dies is removed by a check, or with the DPU.
    site.user.api.create(SERVICE, stray(lease))
    site.double.settle()
    assert len(pods(site)) == 1
    checked(site, dpu)
    assert names(site) == []
    told = Event.objects.filter(kind="step.log", resource=dpu, message__contains="stray")
    assert told.count() == 1
    site.user.api.create(SERVICE, stray(lease))
    site.double.settle()
    assert retirement.retire_idle(dpu.pk, reason=Reason.OPERATOR, message="The test has ended.")
    site.until(dpu, state="destroyed")
    assert site.user.left() == []
    assert names(site) == []
    assert pods(site) == []


def test_a_worker_that_dies_after_each_call_leaves_no_service(lab, ask, owner, request):
    site = lab(charts=[{**CHART, "versions": ["1.2.0"]}])
    site.host("h1", "MT2400X00001")
    site.discover()
    lease = site.until(ask("dpu"), state="active")
    ada = LocalClient(caller(owner))
    for name in ("edge", "metrics"):
        ada.apply_dpu_service(lease.pk, name, chart=FIREWALL)
    settled(site)
    assert [one.state for one in ada.dpu_services(lease.pk)] == ["ready", "ready"]
    deaths = request.getfixturevalue("deaths")
    following = ask("dpu")
    release.release(lease.pk, actor="ada")
    site.until(lease, state="destroyed")
    assert names(site) == []
    assert pods(site) == []
    site.until(following, state="active")
    assert following.resource_id == lease.resource_id
    assert deaths.count >= 3  # in the step of the deactivation, and in both steps of the activation
    ada.apply_dpu_service(following.pk, "edge", chart=FIREWALL)
    settled(site)
    assert ada.dpu_service(following.pk, "edge").state == "ready"


def checked(site: Lab, dpu: Resource) -> None:
    """Let a health check of the DPU run to its end."""
    assert start(resource_id=dpu.pk, phase="check") is not None
    settled(site)
    assert not Run.objects.filter(resource=dpu).exists()
    dpu.refresh_from_db()
    assert dpu.health == "ok"


def stray(lease: Lease) -> dict[str, Any]:
    """Return the object of a service of a lease that is over."""
    proof = specs.tags(Resource.objects.get(pk=lease.resource_id))
    labels = {**proof, objects.LEASE: specs.key("l", lease.pk), objects.NAME: "stray"}
    node = [{"key": key, "operator": "In", "values": [value]} for key, value in proof.items()]
    pods = {"labels": labels, "nodeSelector": {"nodeSelectorTerms": [{"matchExpressions": node}]}}
    source = {"repoURL": CHART["repository"], "chart": "firewall", "version": "1.2.0", "releaseName": "stray"}
    spec = {"helmChart": {"source": source}, "serviceDaemonSet": pods}
    return {"metadata": {"name": "stray", "labels": labels}, "spec": spec}
