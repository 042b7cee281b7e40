"""Installations that fail: what is begun anew, which card is taken out of service, and what rules out a blueprint."""

from __future__ import annotations

import pytest

from blueprints.models import Blueprint, RememberedError
from leases.engine.lifecycle import release
from leases.models import Resource
from leases.operations import attention, resources
from tests.dpf.conftest import Lab
from tests.dpus.api import BFB, DPU, FLAVOR, SET
from tests.dpus.generations import HOST_NETWORK
from tests.dpus.user import URL
from tests.leases.conftest import _database as _database
from tests.leases.conftest import ask as ask
from tests.leases.conftest import owner as owner

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]
OTHER = ("Initializing", "Node Effect")
"""Phases before DPF reaches the card."""
OF_IMAGE = ("Pending", "Prepare BFB")


def gone(site: Lab) -> None:
    """Go on until nothing of the failed installation is left."""
    for _ in range(120):
        if not Resource.objects.filter(blueprint__name="dpus", gone_at=None).exists():
            assert site.user.left() == []
            assert site.user.all(SET) == site.user.all(FLAVOR) == []
            return
        site.turn()
    raise AssertionError(list(Resource.objects.values("name", "state", "message")))


def fails(site: Lab, ask, code: str, name: str) -> None:
    """Ask for a DPU, and go on until its installation has failed."""
    lease = ask("dpu")
    for _ in range(200):
        if RememberedError.objects.exists():
            break
        site.turn()
    failed = RememberedError.objects.first()
    assert failed is not None, f"{name}: {[one['status'] for one in site.user.all(DPU)]}"
    assert failed.code == code
    release.release(lease.pk, actor="ada")
    site.double.state.faults._stuck.clear()
    gone(site)


def test_a_card_on_which_dpf_fails_twice_is_quarantined_and_the_next_card_is_used(lab, ask):
    site = lab()
    bad, good = site.host("h1", "MT2400X00001"), site.host("h2", "MT2400X00002")
    site.discover()
    site.double.state.faults.fail("OS Installing", times=2)
    lease = ask("dpu")
    for _ in range(200):
        if RememberedError.objects.exists():
            break
        site.turn()
    failed = RememberedError.objects.get()
    assert (failed.scope, failed.code) == ("blueprint", "dpu_error")
    card = Resource.objects.get(blueprint__name="cards", quarantined=True)
    assert "after 2 attempts" in card.note
    assert "INTEGRITY_FAIL" in card.note
    shown = [one for one in attention.needed(site.root) if one.what == "quarantined"]
    assert [(one.id, one.message) for one in shown] == [(card.pk, card.note)]
    first, second = (bad, good) if card.attributes["host"] == bad.name else (good, bad)
    assert first.cards[0].imaged == []
    RememberedError.objects.all().delete()
    site.until(lease, turns=300, state="active")
    assert second.cards[0].imaged == [URL]
    site.discover()
    card.refresh_from_db()
    assert card.quarantined, "a discovery does not end it"


def test_an_error_in_each_phase_is_blamed_on_what_failed(lab, ask):
    site = lab(reimage=0)
    site.host("h1", "MT2400X00001")
    site.discover()
    card = Resource.objects.get(blueprint__name="cards")
    for phase in site.double.generation.phases[:-1]:
        if phase.name == HOST_NETWORK and site.double.generation.devices:
            continue  # left out by DPF where it installs by BMCs
        site.double.state.faults.fail(phase.name)
        image = phase.name in OF_IMAGE
        fails(site, ask, "dpu_error_image" if image else "dpu_error", phase.name)
        card.refresh_from_db()
        assert card.quarantined == (phase.name not in (*OTHER, *OF_IMAGE)), phase.name
        if card.quarantined:
            assert "Error" in card.note
            resources.unquarantine(site.root, card.pk)
        RememberedError.objects.all().delete()


def test_a_phase_that_never_ends_is_blamed_on_what_it_waits_for(lab, ask):
    names: list[str] = ["Pending", "OS Installing", "Rebooting", "DPU Cluster Config"]
    site = lab()
    host = site.host("h1", "MT2400X00001")
    site.discover()
    card = Resource.objects.get(blueprint__name="cards")
    blueprint = Blueprint.objects.get(name="dpus")
    for name in names:
        # The phase alone, as on a slow machine those before it last longer too.
        Blueprint.objects.filter(pk=blueprint.pk).update(config={**blueprint.config, "phase_limits": {name: 0.2}})
        site.double.state.faults.stick(name)
        fails(site, ask, "phase_limit", name)
        card.refresh_from_db()
        assert card.quarantined == (name in ("OS Installing", "DPU Cluster Config")), name
        if card.quarantined:
            assert f"DPF was in phase {name}" in card.note
            resources.unquarantine(site.root, card.pk)
        RememberedError.objects.all().delete()
    assert len(host.reboots) <= 2


def test_an_image_that_failed_rules_out_the_blueprint_and_no_card(lab, ask):
    site = lab()
    host = site.host("h1", "MT2400X00001")
    site.discover()
    site.double.state.faults.stick("OS Installing")
    lease = ask("dpu")
    while not host.cards[0].installing:
        site.turn()
    (image,) = site.user.all(BFB)

    def spoil(status):
        status["phase"] = "Error"

    site.double.state.change_status(BFB, image, spoil)
    site.double.state.faults._stuck.clear()
    site.double.state.faults.fail("OS Installing")
    for _ in range(100):
        if RememberedError.objects.exists():
            break
        site.turn()
    failed = RememberedError.objects.get(blueprint__name="dpus")
    assert (failed.scope, failed.code) == ("blueprint", "dpu_error_image")
    assert "correct `image` or `flavor`" in failed.message
    assert not Resource.objects.filter(blueprint__name="cards", quarantined=True).exists()
    release.release(lease.pk, actor="ada")
    gone(site)
