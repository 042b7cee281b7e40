"""What happens to a card after its DPU, and what others do to our objects, on real API servers with DPF's double."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import pytest

from blueprints.models import Blueprint, Credential, RememberedError
from leases.engine.core.runs import start
from leases.engine.lifecycle import release
from leases.engine.resources import retirement
from leases.models import Event, Failure, Lease, Resource, Run
from leases.operations import attention, installation
from leases.reasons import Reason
from tests.dpf.bmc import PASSWORD, CardBmc, card_bmc
from tests.dpf.conftest import Lab
from tests.dpus.api import DPU, FLAVOR, SET, Api
from tests.dpus.images import Image
from tests.dpus.user import URL
from tests.leases.conftest import _database as _database
from tests.leases.conftest import ask as ask
from tests.leases.conftest import owner as owner

pytestmark = [pytest.mark.slow, pytest.mark.timeout(1500)]
SERIAL = "MT2400X00001"
CLEAN = "http://127.0.0.1:1/clean.bfb"


@pytest.fixture
def bmc() -> Iterator[CardBmc]:
    with card_bmc(SERIAL) as running:
        yield running


def with_bmc(site: Lab, bmc: CardBmc) -> None:
    """Let the cards of a lab be reached by their BMC, and find them again."""
    Credential.objects.create(name="bmcs", secrets={"username": "root", "password": PASSWORD})
    row = Blueprint.objects.get(name="cards")
    card = site.double.world.cards[0]
    identity = SERIAL if site.double.generation.devices else f"{site.double.world.host_of(card).name}/{card.pci}"
    row.config = {**row.config, "bmc_credential": "bmcs", "bmcs": {identity: bmc.access()}}
    row.save()


def the_card() -> Resource:
    return Resource.objects.get(blueprint__name="cards")


def end(site: Lab, lease: Lease) -> Resource:
    """Release a lease, and let its DPU be destroyed."""
    release.release(lease.pk, actor="ada")
    site.until(lease, state="destroyed")
    dpu = Resource.objects.get(pk=lease.resource_id)
    retirement.retire_idle(dpu.pk, reason=Reason.OPERATOR, message="The test has ended.")
    return dpu


def test_a_card_is_switched_off_after_its_dpu_also_if_workers_die_and_is_used_again(lab, ask, bmc, request):
    site = lab(park="power_off")
    site.host("h1", SERIAL)
    with_bmc(site, bmc)
    site.discover()
    assert the_card().attributes["parks"] == ["leave", "power_off", "reimage", "wipe"]
    bmc.on_off = site.double.world.cards[0].power_off
    lease = site.until(ask("dpu"), turns=200, state="active")
    deaths = request.getfixturevalue("deaths")
    dpu = end(site, lease)
    site.until(dpu, state="destroyed")
    assert deaths.count > 5
    assert bmc.resets == ["ForceOff"]
    assert site.double.world.cards[0].running == ""
    assert site.user.left() == []
    assert site.user.all(SET) == site.user.all(FLAVOR) == []
    card = the_card()
    assert (card.health, card.quarantined, card.used_slots) == ("ok", False, 0)
    site.until(ask("dpu"), turns=300, state="active")
    assert bmc.resets == ["ForceOff", "On"]
    assert site.double.world.cards[0].imaged == [URL, URL]
    said = str(list(Event.objects.values())) + str(list(Resource.objects.values("facts", "message", "note")))
    assert PASSWORD not in said


def test_a_card_whose_bmc_is_silent_serves_nobody_until_it_is_parked(lab, ask, bmc):
    site = lab(park="power_off", park_timeout=0.5)
    site.host("h1", SERIAL)
    with_bmc(site, bmc)
    site.discover()
    lease = site.until(ask("dpu"), turns=200, state="active")
    bmc.silent = True
    dpu, waiting = end(site, lease), ask("dpu")
    site.until(the_card(), quarantined=True)
    dpu.refresh_from_db()
    waiting.refresh_from_db()
    assert (dpu.state, waiting.state) == ("released", "acquired")
    assert Lease.objects.get(for_resource=waiting.resource_id, need="card").state == "pending"
    assert "could not be parked within" in the_card().note
    for _ in range(40):  # between two attempts, each of half a second, it is not shown
        site.turn()
        shown = {one.what: one.message for one in attention.needed(site.root)}
        if "destroy_failed" in shown:
            break
    assert "could not be parked" in shown["destroy_failed"]
    assert "quarantined" in shown
    bmc.silent = False
    site.until(dpu, state="destroyed")
    assert bmc.resets == ["ForceOff"]
    assert the_card().quarantined, "an operator ends it"


def test_a_card_is_parked_by_another_image_and_one_that_fails_is_left_in_quarantine(lab, ask):
    site = lab(park="reimage", park_image=CLEAN)
    host = site.host("h1", SERIAL)
    site.double.images[CLEAN] = Image()
    images = Blueprint.objects.get(name="images")
    images.config = {**images.config, "images": [{"url": URL, "doca": "3.2.0"}, {"url": CLEAN}]}
    images.save()
    site.discover()
    lease = site.until(ask("dpu"), turns=200, state="active")
    dpu = end(site, lease)
    site.until(dpu, turns=200, state="destroyed")
    assert (host.cards[0].imaged, host.cards[0].running) == ([URL, CLEAN], CLEAN)
    assert site.user.left() == []
    assert site.user.all(SET) == []
    assert not the_card().quarantined

    lease = site.until(ask("dpu"), turns=200, state="active")
    site.double.state.faults.fail("OS Installing", times=2)
    dpu = end(site, lease)
    for _ in range(200):
        if Run.objects.filter(waits_for="operator").exists():
            break
        site.turn()
    assert "could not be parked" in Run.objects.get(waits_for="operator").sentence
    assert the_card().quarantined
    installation.resolve(site.root, resource_id=dpu.pk, yes=False, message="It is to be repaired.")
    site.until(dpu, state="destroyed")
    assert site.user.left() == []
    assert the_card().quarantined


def test_a_card_that_is_left_is_shown_until_it_is_installed_again_and_an_owner_with_root_leaves_none(lab, ask):
    site = lab(root=True)
    host = site.host("h1", SERIAL)
    site.discover()
    lease = site.until(ask("dpu"), turns=200, state="active")
    release.release(lease.pk, actor="ada")
    site.until(lease, state="destroyed")
    dpu = Resource.objects.get(pk=lease.resource_id)
    site.until(dpu, state="destroyed")
    shown = [one for one in attention.needed(site.root) if one.what == "degraded"]
    assert [one.id for one in shown] == [the_card().pk]
    assert f"still runs the image {URL}" in shown[0].message
    site.until(ask("dpu"), turns=200, state="active")
    assert host.cards[0].imaged == [URL, URL]
    assert the_card().health == "ok"


def test_a_destruction_that_hangs_is_reported_with_phase_and_finalizer(lab, ask):
    site = lab()
    site.host("h1", SERIAL)
    site.discover()
    lease = site.until(ask("dpu"), turns=200, state="active")
    site.double.state.faults.keep_finalizer("DPU")
    dpu = end(site, lease)
    for _ in range(6):
        site.turn()
    Run.objects.filter(resource=dpu).update(step_since="2020-01-01T00:00Z")
    for _ in range(2):
        site.turn()
    failure = Failure.objects.get(resource=dpu)
    assert (failure.act, failure.code) == ("destroy", "deadline")
    assert "phase Deleting, kept by provisioning.dpu.nvidia.com/dpu-protection" in failure.message
    assert "destroy_failed" in [one.what for one in attention.needed(site.root)]
    assert the_card().used_slots == 1
    site.double.state.faults.finalizers.clear()
    site.until(dpu, state="destroyed")
    assert not Failure.objects.exists()


def test_the_card_of_a_stranger_is_not_written_to(lab, ask):
    site = lab()
    host = site.host("h1", SERIAL)
    site.discover()
    site.double.violations.tolerated.add("stranger")
    site.double.stranger_set(host.cards[0])
    site.double.settle()
    lease = ask("dpu")
    site.until(the_card(), turns=60, quarantined=True)
    assert "of somebody else is on card" in the_card().note
    assert [one["metadata"]["name"] for one in site.user.all(SET)] == ["stranger"]
    assert len(site.user.all(DPU)) == 1
    assert host.cards[0].imaged == []
    assert RememberedError.objects.get().code == "card_has_dpu"
    release.release(lease.pk, actor="ada")
    site.until(lease, state="destroyed")


@pytest.mark.parametrize("way", ["report", "restore"])
def test_a_field_that_somebody_else_changes_is_an_event_with_the_name(lab, ask, way):
    site = lab(drift=way)
    site.host("h1", SERIAL)
    site.discover()
    lease = site.until(ask("dpu"), turns=200, state="active")
    dpu = Resource.objects.get(pk=lease.resource_id)
    site.double.violations.tolerated.add("kubectl-edit")
    somebody = Api(site.user.kubeconfig, namespace=site.double.state.api.namespace, manager="kubectl-edit")
    (ours,) = site.user.all(SET)

    def spoil(body: Any) -> None:
        body["spec"]["dpuTemplate"]["spec"]["bfb"] = {"name": "other"}

    try:
        somebody.change(SET, ours["metadata"]["name"], spoil)
        checked(site, dpu)
        told = Event.objects.filter(kind="step.log", resource=dpu, message__contains="kubectl-edit has changed")
        assert "spec.dpuTemplate.spec.bfb.name" in told.get().message
        checked(site, dpu)
        assert told.count() == 1, "it is told once"
        (now,) = site.user.all(SET)
        restored = now["spec"]["dpuTemplate"]["spec"] == ours["spec"]["dpuTemplate"]["spec"]
        dpu.refresh_from_db()
        assert (restored, dpu.health) == ((True, "ok") if way == "restore" else (False, "degraded"))
        if way == "restore":
            for _ in range(4):
                somebody.change(SET, ours["metadata"]["name"], spoil)
                checked(site, dpu)
            dpu.refresh_from_db()
            assert dpu.health == "degraded"
            assert "3 times within an hour" in dpu.health_reason
    finally:
        somebody.close()


def checked(site: Lab, dpu: Resource) -> None:
    """Let a health check of the DPU run to its end."""
    assert start(resource_id=dpu.pk, phase="check") is not None
    for _ in range(4):
        site.turn()
    assert not Run.objects.filter(resource=dpu).exists()
