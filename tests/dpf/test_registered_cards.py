"""The life of cards that an operator registers with DPF, on real API servers with the double of DPF's controllers."""

from __future__ import annotations

import pytest

from drydock.core.errors import InvalidRequest
from leases.engine.lifecycle import release
from leases.engine.resources import retirement
from leases.models import Resource
from leases.operations import resources
from leases.reasons import Reason
from tests.dpf.conftest import Lab
from tests.dpus.api import DEVICE, DPU_NODE, Api, labels_of, name_of
from tests.dpus.world import Host
from tests.leases.conftest import _database as _database
from tests.leases.conftest import ask as ask
from tests.leases.conftest import owner as owner

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1500)]
SERIALS = ("MT2400X00001", "MT2400X00002")


def machine(site: Lab) -> Host:
    """Add a host with two cards, of which DPF knows nothing."""
    made = site.double.world.host("h1", SERIALS, register=False)
    resources.register(site.root, "hosts", {"name": made.name, "identity": made.name})
    site.discover()
    return made


def card(site: Lab, host: Host, serial: str) -> Resource:
    given = {"serial": serial, "node": host.name, "bmc": "127.0.0.1"}
    return Resource.objects.get(pk=resources.register(site.root, "cards", given).id)


def removed(site: Lab, row: Resource) -> None:
    assert retirement.retire_idle(row.pk, reason=Reason.OPERATOR, message="The test has ended.")
    site.until(row, state="destroyed")


def _life(site: Lab, ask: object) -> None:
    host = machine(site)
    first, second = (card(site, host, serial) for serial in SERIALS)
    if not site.double.generation.devices:
        for _ in range(40):
            site.turn()
            first.refresh_from_db()
            if "dpu-enabled" in first.message:
                break
        assert first.state == "pending"
        assert "feature.node.kubernetes.io/dpu-enabled=true" in first.message
        assert f"on Node {host.name}" in first.message
        for row in (first, second):
            removed(site, row)
        return
    for row in (first, second):
        site.until(row, state="active")
        assert (row.part_of.name, row.attributes["model"], row.attributes["via"]) == (host.name, "BlueField3", "dpf")
    (node,) = site.user.all(DPU_NODE)
    devices = {one["spec"]["serialNumber"]: name_of(one) for one in site.user.all(DEVICE)}
    assert {one["name"] for one in node["spec"]["dpus"]} == {devices[one] for one in SERIALS}
    site.discover()
    assert Resource.objects.filter(type="dpu_card", gone_at=None).count() == 2, "they are discovered as the same cards"
    lease = site.until(ask("dpu"), turns=200, state="active")  # type: ignore[operator]
    dpu = Resource.objects.get(pk=lease.resource_id)
    assert dpu.part_of_id in (first.pk, second.pk)
    release.release(lease.pk, actor="ada")
    site.until(lease, state="destroyed")
    removed(site, dpu)
    removed(site, first)
    (node,) = site.user.all(DPU_NODE)
    assert [one["name"] for one in node["spec"]["dpus"]] == [devices[SERIALS[1]]]
    assert labels_of(node)["drydock-key"] == devices[SERIALS[1]], "the other card has taken it over"
    removed(site, second)
    assert site.user.all(DPU_NODE) == site.user.all(DEVICE) == []


def test_registered_cards_are_known_to_dpf_used_and_removed_without_a_trace(lab, ask):
    _life(lab(), ask)


def test_a_worker_that_dies_after_each_call_changes_nothing_about_that(lab, ask, deaths):
    _life(lab(), ask)
    assert deaths.count > 5


def changed(site: Lab, row: Resource, **given: object) -> None:
    """Correct a registration, and let Drydock apply it."""
    resources.change_registration(site.root, row.pk, given)
    for _ in range(12):
        Resource.objects.filter(pk=row.pk).exclude(check_at=None).update(check_at="2020-01-01T00:00Z")
        site.turn()
    row.refresh_from_db()


def test_a_corrected_registration_is_applied_and_a_conflict_names_the_other_manager(lab):
    site = lab()
    if not site.double.generation.devices:
        pytest.skip("DPF 24.10 has no objects for cards")
    host = machine(site)
    other = site.double.world.host("h2", (), register=False)
    resources.register(site.root, "hosts", {"name": other.name, "identity": other.name})
    row = site.until(card(site, host, SERIALS[0]), state="active")
    site.until(Resource.objects.get(name=other.name), state="active")
    (before,) = site.user.all(DEVICE)

    for name, value in (("serial", "MT2400X00009"), ("bmc_port", 8443)):
        with pytest.raises(
            InvalidRequest, match=f"The field {name} of an active dpu_card cannot be changed"
        ) as refused:
            resources.change_registration(site.root, row.pk, {name: value})
        assert refused.value.field == name
    changed(site, row, bmc="127.0.0.2", node=other.name)
    (device,), (node,) = site.user.all(DEVICE), site.user.all(DPU_NODE)
    assert (device["spec"]["bmcIp"], device["metadata"]["uid"]) == ("127.0.0.2", before["metadata"]["uid"])
    assert (name_of(node), [one["name"] for one in node["spec"]["dpus"]]) == (other.name, [name_of(device)])
    assert (row.state, row.in_maintenance, row.suspect_since, row.part_of.name) == ("active", False, None, other.name)

    site.double.violations.tolerated.add("kubectl-edit")
    somebody = Api(site.user.kubeconfig, namespace=site.double.state.api.namespace, manager="kubectl-edit")
    somebody.change(DEVICE, name_of(device), lambda body: body["spec"].update(bmcIp="127.0.0.9"))
    somebody.close()
    changed(site, row, bmc="127.0.0.3")
    (device,) = site.user.all(DEVICE)
    assert device["spec"]["bmcIp"] == "127.0.0.9", "it is never forced"
    assert "kubectl-edit" in row.message
    assert not row.claimable or row.suspect_since is not None, "it serves nobody meanwhile"
    changed(site, row, bmc="127.0.0.9")
    assert (row.state, row.in_maintenance, row.suspect_since) == ("active", False, None)
