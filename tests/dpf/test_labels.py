"""Labels on DPU clusters, which are changed while leases hold the clusters, on real API servers of both versions."""

from __future__ import annotations

import pytest
from pydantic import ValidationError

from blueprints.dpu.dpf_cluster.kind import Config, DpfCluster
from blueprints.models import Blueprint
from drydock_client.values import BlueprintChange
from leases.engine.lifecycle import release
from leases.engine.resources import retirement
from leases.messaging.inline import settle
from leases.models import Event, Failure, Resource, Run, Sync
from leases.operations import blueprints, resources
from leases.reasons import Reason
from tests.dpus.api import CLUSTER
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
    site.discover()
    cluster = site.until(Resource.objects.get(type="dpu_cluster"), generation=1)
    assert (cluster.in_maintenance, labels(site)["tier"]) == (False, "gold")
    site.user.api.change(CLUSTER, "tenant", _replaced)
    Sync.objects.update(due_at=PAST)
    site.discover()
    site.until(cluster, generation=1)
    for _ in range(3):
        site.turn()
    assert (labels(site)["tier"], labels(site)["theirs"]) == ("gold", "x")
    change(site, {"theirs": "y"})
    for _ in range(3):
        site.turn()
    assert "theirs" in Failure.objects.get(act="update").message
    assert labels(site)["theirs"] == "x"
    assert resources.get(site.root, cluster.pk).state == "active"
    assert not Run.objects.filter(phase="build").exists()


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
