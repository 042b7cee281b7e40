"""The life of a DPU, on real API servers with the CRDs of two versions of DPF and the double of its controllers."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from leases.engine.lifecycle import release
from leases.engine.resources import retirement
from leases.engine.scheduling import request
from leases.models import Event, Lease, Resource, Run
from leases.operations import installation
from leases.reasons import Reason
from leases.validation.requests import read
from tests.dpf.conftest import Lab
from tests.dpus.api import BFB, FLAVOR, SET
from tests.dpus.user import URL
from tests.dpus.world import Host
from tests.leases.conftest import _database as _database
from tests.leases.conftest import ask as ask
from tests.leases.conftest import owner as owner

pytestmark = [pytest.mark.slow, pytest.mark.timeout(900)]


def test_a_dpu_is_built_leased_released_and_destroyed_and_leaves_nothing(lab, ask):
    site = lab()
    _live(site, site.host("h1", "MT2400X00001"), ask)


def test_a_worker_that_dies_after_each_call_changes_nothing_about_that(lab, ask, deaths):
    site = lab()
    _live(site, site.host("h1", "MT2400X00001"), ask)
    assert deaths.count > 15


def test_two_dpus_of_one_host_are_installed_together_and_share_one_reboot(lab, ask):
    site = lab()
    host = site.host("h1", "MT2400X00001", "MT2400X00002")
    site.discover()
    leases = [ask("dpu"), ask("dpu")]
    for lease in leases:
        site.until(lease, turns=200, state="active")
    assert [card.imaged for card in host.cards] == [[URL], [URL]]
    assert host.reboots == ["drydock"]


def test_a_card_of_a_host_whose_other_dpu_is_idle_is_installed(lab, ask):
    site = lab()
    host = site.host("h1", "MT2400X00001", "MT2400X00002")
    site.discover()
    first = site.until(ask("dpu"), state="active")
    second = ask("dpu")
    for _ in range(20):
        site.turn()
    told = Event.objects.filter(lease=Lease.objects.get(for_resource=first.resource_id, need="card"))
    assert told.filter(kind="lease.maintenance").exists(), "the first DPU is used"
    assert host.reboots == ["drydock"]
    Resource.objects.filter(pk=first.resource_id).update(drained=True)
    release.release(first.pk, actor="ada")
    site.until(second, turns=200, state="active")
    assert host.reboots == ["drydock", "drydock"]


def test_two_dpus_that_must_first_be_installed_in_one_host_are_one_request(lab, owner):
    site = lab()
    one, two = site.host("h1", "MT2400X00001"), site.host("h2", "MT2400X00002", "MT2400X00003")
    site.discover()
    _, ids = request.request_group([read({"type": "dpu"})] * 2, owner.pk, actor="ada", same="whole")
    held = [site.until(Lease.objects.get(pk=pk), turns=200, state="active").resource for pk in ids]
    assert {dpu.part_of.part_of.name for dpu in held} == {two.name}
    assert [card.imaged for card in (*one.cards, *two.cards)] == [[], [URL], [URL]]
    assert (one.reboots, two.reboots) == ([], ["drydock"])


def test_an_installation_that_fails_is_begun_anew_with_a_reboot_of_its_own(lab, ask):
    site = lab()
    host = site.host("h1", "MT2400X00001")
    site.discover()
    site.double.state.faults.fail("DPU Cluster Config")
    site.until(ask("dpu"), turns=200, state="active")
    assert host.cards[0].imaged == [URL, URL]
    assert host.reboots == ["drydock", "drydock"]


def test_each_installation_on_a_host_that_nobody_knows_asks_for_its_reboot(lab, ask):
    site = lab()
    host = site.double.world.host("h1", ["MT2400X00001"])
    site.turn()
    site.discover()
    site.double.state.faults.fail("DPU Cluster Config")
    lease = ask("dpu")
    for _ in range(2):
        held = _held(site)
        host.power_cycle(by="operator")
        installation.resolve(site.root, resource_id=held.resource_id, message="done")
    site.until(lease, turns=200, state="active")
    assert host.reboots == ["operator", "operator"]


def _held(site: Lab) -> Run:
    """Go on until an operator is asked."""
    for _ in range(120):
        if held := Run.objects.filter(waits_for="operator").first():
            return held
        site.turn()
    raise AssertionError(list(Run.objects.values("step", "sentence")))


def _live(site: Lab, host: Host, ask: Callable[..., Lease]) -> None:
    """Lease a DPU on the only card, release it, and destroy it."""
    site.discover()
    lease = site.until(ask("dpu"), state="active")

    dpu = Resource.objects.get(pk=lease.resource_id)
    assert dpu.attributes["image"] == URL
    assert dpu.attributes["host"] == host.name
    assert (host.cards[0].imaged, host.cards[0].running) == ([URL], URL)
    assert host.reboots == ["drydock"]
    assert len(site.user.members()) == 1
    site.until(Resource.objects.get(name=host.name), in_maintenance=False)

    release.release(lease.pk, actor="ada")
    site.until(lease, state="destroyed")
    assert retirement.retire_idle(dpu.pk, reason=Reason.OPERATOR, message="The test has ended.")
    site.until(dpu, state="destroyed")
    assert site.user.left() == []
    assert site.user.all(SET) == []
    assert site.user.all(FLAVOR) == []
    assert len(site.user.all(BFB)) == 1, "the image stays for the next DPU"
    site.until(Resource.objects.get(blueprint__name="cards"), used_slots=0)
