"""Labels of DPU clusters and of DPUs are changed while leases hold them, on real API servers of both versions."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from blueprints.dpu.dpf.config import Config as DpuConfig
from blueprints.dpu.dpf.kind import Dpf
from blueprints.dpu.dpf_cluster.config import Config
from blueprints.dpu.dpf_cluster.kind import DpfCluster
from blueprints.models import Blueprint
from drydock.core.errors import NotSupported
from drydock_client.values import BlueprintChange
from leases.engine.lifecycle import release
from leases.engine.resources import retirement
from leases.messaging.inline import settle
from leases.models import Event, Failure, Resource, Run, Sync
from leases.operations import blueprints, resources
from leases.reasons import Reason
from tests.dpf.conftest import FLAVOR
from tests.dpus.api import CLUSTER, DPU
from tests.dpus.user import URL
from tests.leases.conftest import _database as _database
from tests.leases.conftest import ask as ask
from tests.leases.conftest import owner as owner

PAST = "2020-01-01T00:00Z"


def labels(site):
    return site.user.api.get(CLUSTER, "tenant")["metadata"].get("labels") or {}


def _replaced(body):
    body["metadata"]["labels"] = {"theirs": "x"}


def change(site, given):
    config = {**Blueprint.objects.get(name="clusters").config, "labels": given}
    blueprints.change(site.root, "clusters", BlueprintChange(config=config))
    settle()


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_labels_are_changed_while_a_lease_holds_the_cluster_and_removed_at_its_end(lab, ask):
    site = lab()
    site.host("h1", "MT2400X00001")
    site.discover()
    cluster = site.until(Resource.objects.get(type="dpu_cluster"), state="active")
    lease = site.until(ask("dpu_cluster", slots=2), state="active")
    change(site, {"example.org/site": "north", "tier": "gold"})
    site.until(cluster, generation=2)
    assert {"example.org/site": "north", "tier": "gold"}.items() <= labels(site).items()
    change(site, {"tier": "silver"})
    site.until(cluster, generation=3)
    assert labels(site).get("tier") == "silver"
    assert "example.org/site" not in labels(site)
    lease.refresh_from_db()
    assert (lease.state, cluster.in_maintenance) == ("active", False)
    assert not Event.objects.filter(kind="lease.maintenance").exists()
    release.release(lease.pk, actor="ada")
    site.until(lease, state="destroyed")
    assert retirement.retire_idle(cluster.pk, reason=Reason.OPERATOR, message="enough")
    site.until(cluster, state="destroyed")
    assert "tier" not in labels(site)


@pytest.mark.slow
@pytest.mark.timeout(600)
def test_a_cluster_that_is_found_gets_its_labels_and_keeps_those_of_others(lab, ask):
    site = lab()
    Blueprint.objects.filter(name="clusters").update(config={**site.server, "labels": {"tier": "gold"}})
    site.host("h1", "MT2400X00001")
    site.discover()
    cluster = site.until(Resource.objects.get(type="dpu_cluster"), generation=1)
    assert (cluster.in_maintenance, labels(site)["tier"]) == (False, "gold")
    site.double.state.admin.change(CLUSTER, "tenant", _replaced)
    Sync.objects.update(due_at=PAST)
    site.discover()
    site.until(cluster, generation=1)
    for _ in range(3):
        site.turn()
    assert (labels(site)["tier"], labels(site)["theirs"]) == ("gold", "x")
    change(site, {"theirs": "y"})
    for _ in range(10):  # the step is tried several times
        site.turn()
    assert "theirs" in Failure.objects.get(act="update").message
    assert labels(site)["theirs"] == "x"
    assert resources.get(site.root, cluster.pk).state == "active"
    assert not Run.objects.filter(phase="build").exists()


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_labels_of_a_dpu_are_changed_while_it_is_leased_and_another_flavor_waits(lab, ask):
    site = lab(node_labels={"tier": "gold"})
    host = site.host("h1", "MT2400X00001")
    site.discover()
    lease = site.until(ask("dpu"), turns=200, state="active")
    config = Blueprint.objects.get(name="dpus").config
    changed = {**config, "node_labels": {"tier": "silver", "rack": "3"}, "doca": "3.3.0"}
    blueprints.change(site.root, "dpus", BlueprintChange(config=changed))
    resource = site.until(lease.resource, generation=2)
    (dpu,) = site.user.api.all(DPU)
    assert {"tier": "silver", "rack": "3"}.items() <= dpu["spec"]["cluster"]["nodeLabels"].items()
    assert ([card.imaged for card in host.cards], host.reboots) == ([[URL]], ["drydock"])
    assert (resource.attributes["doca"], resource.in_maintenance) == ("3.3.0", False)
    other = {**FLAVOR, "bfcfgParameters": []}
    blueprints.change(site.root, "dpus", BlueprintChange(config={**changed, "flavor": other}))
    for _ in range(3):
        site.turn()
    update = resources.get(site.root, resource.pk).update
    assert (update.state, update.leases) == ("waiting", (lease.pk,))
    assert update.disruption == "The DPU is installed anew for another flavor."
    elsewhere = {**changed, "flavor": other, "cluster": {"cluster": "tenant"}}
    blueprints.change(site.root, "dpus", BlueprintChange(config=elsewhere))
    with pytest.raises(NotSupported, match="replaced once its leases have ended"):
        resources.update(site.root, resource.pk, reason="now")
    lease.refresh_from_db()
    assert lease.state == "active"
    release.release(lease.pk, actor="ada")
    site.until(resource, turns=200, state="destroyed")


def test_only_what_is_installed_disturbs_the_lease_of_a_dpu():
    before = DpuConfig(credential="dpf", image="https://x/a.bfb", flavor="plain")
    for mild in ({"node_labels": {"a": "b"}}, {"reimage": 2}, {"doca": "3.3.0"}, {"outage": 60}):
        assert Dpf().disruption(before, before.model_copy(update=mild)) == ""
    for name, value in (("image", "https://x/b.bfb"), ("flavor", "other"), ("mode", "zero-trust")):
        assert name in Dpf().disruption(before, before.model_copy(update={name: value}))
    assert Dpf().disruption(None, before)


def test_no_label_of_dpf_or_kubernetes_can_be_configured():
    given = {"credential": "dpf"}
    assert Config(**given, labels={"example.org/site": "north", "tier": ""}).labels
    for name, value in (
        ("provisioning.dpu.nvidia.com/x", "a"), ("kubernetes.io/x", "a"), ("drydock-resource", "1"), ("a b", "a"),
        ("/x", "a"), ("x", "a b"), ("x" * 64, "a"),
    ):  # fmt: skip
        with pytest.raises(ValidationError, match="label"):
            Config(**given, labels={name: value})


def test_a_change_of_labels_disturbs_no_dpu():
    kind, config = DpfCluster(), Config(credential="dpf", labels={"tier": "gold"})
    assert kind.disruption(None, config) == kind.disruption(Config(credential="dpf"), config) == ""
