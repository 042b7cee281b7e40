"""The life of DPU clusters that are built or registered, on real API servers with the double of DPF's controllers."""

from __future__ import annotations

from typing import Any

import pytest

from blueprints.models import Blueprint, RememberedError
from leases.engine.lifecycle import release
from leases.engine.resources import retirement
from leases.models import Resource, Run
from leases.operations import resources
from leases.reasons import Reason
from tests.dpf.conftest import Lab
from tests.dpus.api import CLUSTER, SECRET, labels_of, name_of
from tests.dpus.clusterlinks import secret_of
from tests.leases.conftest import _database as _database
from tests.leases.conftest import ask as ask
from tests.leases.conftest import owner as owner

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
FINALIZER = "example.org/keep"


def version(site: Lab) -> dict[str, str]:
    """Return the version that clusters of 24.10 must have."""
    return {} if site.double.generation.devices else {"version": "v1.30.0"}


def empty(lab: Any, **config: Any) -> Lab:
    """Return a lab without clusters, whose blueprint builds them."""
    site: Lab = lab()
    site.user.api.delete(CLUSTER, "tenant")
    config = {**site.server, "build": {"max_nodes": 2, **version(site)}, **config}
    Blueprint.objects.filter(name="clusters").update(config=config)
    return site


def retire(site: Lab, row: Resource) -> None:
    assert retirement.retire_idle(row.pk, reason=Reason.OPERATOR, message="The test has ended.")
    site.until(row, state="destroyed")


def nothing_left(site: Lab) -> bool:
    site.double.settle()
    names = [name_of(one) for one in site.user.all(SECRET)]
    return not site.user.all(CLUSTER) and not [one for one in names if one.endswith("-admin-kubeconfig")]


def _dpu_in_its_own_cluster(site: Lab, ask: Any) -> None:
    site.host("h1", "MT2400X00001")
    site.discover()
    lease = site.until(ask("dpu"), turns=200, state="active")
    cluster = Resource.objects.get(blueprint__name="clusters", gone_at=None)
    assert (cluster.origin, cluster.total_slots, cluster.used_slots) == ("built", 2, 1)
    assert [name_of(one) for one in site.user.all(CLUSTER)] == [cluster.facts["name"]]
    assert len(site.user.members()) == 1
    release.release(lease.pk, actor="ada")
    site.until(lease, state="destroyed")
    retire(site, Resource.objects.get(pk=lease.resource_id))
    site.until(cluster, used_slots=0)
    retire(site, cluster)
    assert nothing_left(site)


def test_a_dpu_joins_a_cluster_that_is_built_for_it_and_nothing_is_left(lab, ask):
    _dpu_in_its_own_cluster(empty(lab), ask)


def test_a_worker_that_dies_after_each_call_leaves_no_cluster(lab, ask, deaths):
    site = empty(lab)
    lease = site.until(ask("dpu_cluster"), state="active")
    release.release(lease.pk, actor="ada")
    site.until(lease, state="destroyed")
    retire(site, Resource.objects.get(pk=lease.resource_id))
    assert deaths.count > 4
    assert nothing_left(site)


def test_a_cluster_that_stays_in_a_phase_shows_it_and_then_fails_without_a_trace(lab, ask):
    site = empty(lab)
    site.double.faults.stick("Creating", kind="DPUCluster")
    lease = ask("dpu_cluster")
    for _ in range(8):
        site.turn()
    run = Run.objects.get(phase="build", resource__blueprint__name="clusters")
    assert "Creating" in run.sentence
    assert run.percent == 40
    config = Blueprint.objects.get(name="clusters").config
    Blueprint.objects.filter(name="clusters").update(config={**config, "build_timeout": 0.01})
    failed = site.until(run.resource, state="broken")
    assert "Creating" in failed.message
    assert RememberedError.objects.get().code == "cluster_timeout"
    release.release(lease.pk, actor="ada")
    site.until(lease, state="destroyed")
    assert nothing_left(site)


def test_a_deletion_that_hangs_is_reported_and_repeated(lab, ask):
    site = empty(lab)
    lease = site.until(ask("dpu_cluster"), state="active")
    row = Resource.objects.get(pk=lease.resource_id)

    def finalizers(*wanted: str) -> None:
        def put(body: dict[str, Any]) -> None:
            body["metadata"]["finalizers"] = list(wanted)

        site.double.state.stranger.change(CLUSTER, row.facts["name"], put)

    finalizers(FINALIZER)
    release.release(lease.pk, actor="ada")
    site.until(lease, state="destroyed")
    assert retirement.retire_idle(row.pk, reason=Reason.OPERATOR, message="The test has ended.")
    for _ in range(6):
        site.turn()
    row.refresh_from_db()
    assert row.state == "released"
    run = Run.objects.get(phase="destroy", resource=row)
    assert FINALIZER in run.sentence
    assert "Its phase was Ready." in run.sentence
    finalizers()
    site.until(row, state="destroyed")
    assert nothing_left(site)


def _registered(site: Lab, name: str) -> Resource:
    given = {"name": name, "kubeconfig": "tenant-secret", "max_nodes": 3, **version(site)}
    return Resource.objects.get(pk=resources.register(site.root, "clusters", given).id)


def test_a_registered_cluster_waits_for_its_secret_and_is_removed_with_its_registration(lab):
    site = empty(lab)
    row = _registered(site, "edge")
    for _ in range(3):
        site.turn()
    row.refresh_from_db()
    assert (row.state, site.user.all(CLUSTER)) == ("pending", [])
    site.user.api.create(SECRET, secret_of("tenant-secret", site.user.kubeconfig))
    site.until(row, state="active")
    assert (row.total_slots, row.attributes) == (3, {"cluster": "edge", "manager": "static"})
    assert len(site.user.all(CLUSTER)) == 1
    retire(site, row)
    assert nothing_left(site)
    assert site.user.api.get(SECRET, "tenant-secret") is not None, "the secret is the operator's"


def test_a_registered_cluster_of_somebody_else_is_used_and_left(lab):
    site = empty(lab)
    site.user.api.create(SECRET, secret_of("tenant-secret", site.user.kubeconfig))
    spec = {"type": "static", "maxNodes": 7, "kubeconfig": "tenant-secret", **version(site)}
    site.double.state.admin.create(CLUSTER, {"metadata": {"name": "theirs"}, "spec": spec})
    row = site.until(_registered(site, "theirs"), state="active")
    assert row.total_slots == 7
    retire(site, row)
    left = site.user.api.get(CLUSTER, "theirs")
    assert left is not None
    assert not labels_of(left)
