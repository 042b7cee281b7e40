"""Cards through the engine: enrolment, the lock on a serial number, the limit on logins, health, and removal."""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterator
from typing import Any

import pytest
from django.contrib.auth.models import User
from django.db import connection

from blueprints.bluefield.cards import SCOPE
from blueprints.dpu.dpf_card.kind import DpfCard
from blueprints.identities import real
from blueprints.models import Blueprint, Credential
from blueprints.records.logins import MOST, WINDOW
from blueprints.specs import Draft
from drydock.core.errors import Conflict
from leases.engine.core import database
from leases.engine.core.database import run
from leases.engine.lifecycle import release
from leases.engine.sync import discovery
from leases.logins import RECORD
from leases.messaging.inline import settle
from leases.models import Event, LoginAttempt, Resource, ResourceCredential, ResourceIdentity, Run, SlotLock, Sync
from leases.operations import installation, resources
from leases.operations.callers import Caller, caller
from tests.bmc.bluefield import FACTORY, SERIAL, SESSIONS, Bluefield, bluefield
from tests.leases.conftest import _database, _quick, ask, blueprint, owner, until

__all__ = ["_database", "_quick", "ask", "blueprint", "owner", "until"]

RETURNED = "Handed-back.2026"
PAST = "2020-01-01T00:00Z"
pytestmark = pytest.mark.timeout(240, func_only=True)


@pytest.fixture(autouse=True)
def _patient(_quick: None, settings: Any) -> None:
    """Steps may take longer than those of the fake kind, as each makes some TLS connections."""
    settings.DRYDOCK = settings.DRYDOCK.model_copy(update={"step_token_seconds": 60.0})


@pytest.fixture
def root() -> Caller:
    return caller(User.objects.create_superuser("root"))


@pytest.fixture
def bmc() -> Iterator[Bluefield]:
    with bluefield() as running:
        yield running
        assert not running.locked
        assert running.basic == 0


@pytest.fixture
def register(blueprint: Callable[..., Blueprint], root: Caller) -> Callable[..., Resource]:
    """Register cards in a blueprint."""
    Credential.objects.create(name="returned", secrets={"password": RETURNED})

    def made(bmc: Bluefield, /, into: str = "cards", config: dict[str, Any] | None = None, **given: Any) -> Resource:
        if not Blueprint.objects.filter(name=into).exists():
            said = {"return_credential": "returned", **(config or {})}
            blueprint(into, kind="bluefield_card", resource_type="dpu_card", config=said)
        added = resources.register(root, into, {"serial": SERIAL, "bmc": bmc.access(), **given})
        return Resource.objects.get(pk=added.id)

    return made


def again() -> None:
    """Let everything that waits for later happen now."""
    Run.objects.filter(due_at__isnull=False).update(due_at=PAST)
    settle()


def test_a_card_is_enrolled_with_a_password_of_its_own_and_handed_back(bmc, register, until, root, ask):
    card = register(bmc, serial=f" {SERIAL}  ", bmc=bmc.access(fingerprint=""))
    settle()
    held = Run.objects.get(resource=card)
    assert (held.waits_for, held.step) == ("operator", "certificate")
    assert not bmc.calls, "nothing is sent before the certificate is confirmed"
    installation.resolve(root, resource_id=card.pk, yes=True)
    until(card, state="active")
    assert card.identity == SERIAL
    found = {"model": "BlueField3", "memory_gib": 32, "ports": 2, "serial": SERIAL, "via": "bmc", "mode": "dpu"}
    assert card.attributes.items() >= found.items()
    own = ResourceCredential.objects.get(resource=card)
    assert own.secrets == {"username": "root", "password": bmc.password}
    assert bmc.password not in (FACTORY, RETURNED)
    with connection.cursor() as cursor:
        cursor.execute("SELECT secrets FROM leases_resourcecredential")
        assert bmc.password not in cursor.fetchone()[0]
    said = str(list(Event.objects.values())) + str(card.facts) + str(list(Run.objects.values()))
    assert bmc.password not in said
    lease = until(ask("dpu_card", requirements={"model": "BlueField3", "via": "bmc"}, exclusive=True), state="active")
    assert lease.resource_id == card.pk
    release.release(lease.pk, actor="ada")
    until(lease, state="destroyed")
    resources.retire(root, card.pk)
    until(card, state="destroyed")
    assert bmc.password == RETURNED
    assert not SlotLock.objects.exists()


class Died(BaseException):
    """The worker has died."""


def test_a_worker_that_dies_while_it_sets_the_password_locks_nobody_out(bmc, register, until):
    card = register(bmc)

    def die(name: str) -> None:
        if name == "run.called" and bmc.password != FACTORY:
            database.hook(None)
            raise Died

    database.hook(die)
    try:
        with pytest.raises(Died):
            settle()
    finally:
        database.hook(None)
    stored = ResourceCredential.objects.get(resource=card).secrets["password"]
    assert stored == bmc.password, "it was stored before it was set"
    Run.objects.exclude(token=None).update(token_until=PAST)
    until(card, state="active")
    assert ResourceCredential.objects.get(resource=card).secrets["password"] == stored == bmc.password
    assert card.facts["password"] == "set"


def test_an_answer_that_is_lost_while_the_password_is_set_locks_nobody_out(bmc, register, until):
    bmc.lose = "PATCH .*"
    card = register(bmc)
    settle()
    bmc.lose = ""
    until(card, state="active")
    assert ResourceCredential.objects.get(resource=card).secrets["password"] == bmc.password


def later() -> None:
    """Let the oldest refused login no longer count, and everything that waits for later happen now."""
    run("UPDATE leases_loginattempt SET at = at - %s * interval '1 s' WHERE slot = 1", (WINDOW + 1,))
    again()


def test_the_password_before_is_not_tried_again_and_again_while_the_new_one_must_wait(bmc, register, until):
    RECORD.refused(f"bmc 127.0.0.1 {bmc.port}")
    bmc.lose = "PATCH .*"
    card = register(bmc)
    settle()
    bmc.lose = ""
    again()
    assert "the BMC would lock the account" in Run.objects.get(resource=card).sentence
    later()
    until(card, state="active")
    assert ResourceCredential.objects.get(resource=card).secrets["password"] == bmc.password


def test_a_password_that_the_bmc_lets_expire_is_replaced_and_not_given_back(bmc, register, until, root):
    bmc.set(ours := "Our-own.Password1")
    bmc.factory = True  # the account must change its password
    card = until(register(bmc, config={"return_credential": ""}, credential={"password": ours}), state="active")
    first, bmc.factory = bmc.password, True
    resources.change_registration(root, card.pk, {"serial": SERIAL, "bmc": bmc.access(), "name": "again"})
    again()
    until(card, state="active", name="again")
    assert bmc.password not in (first, ours)
    resources.retire(root, card.pk)
    until(card, state="destroyed")
    assert bmc.password == ours, "not the first generated one, which nobody knows"


def test_a_registration_that_is_corrected_during_the_enrolment_loses_no_password(bmc, register, until, root):
    card = register(bmc, host="nowhere")
    settle()
    generated = bmc.password
    assert generated != FACTORY
    resources.change_registration(root, card.pk, {"host": None})
    until(card, state="active")
    assert bmc.password == generated
    resources.retire(root, card.pk)
    until(card, state="destroyed")
    assert bmc.password == RETURNED


def test_a_password_that_an_operator_has_set_later_is_kept(bmc, register, until, root):
    card = until(register(bmc), state="active")
    bmc.set("Our-own.Password1")
    ResourceCredential.objects.get(resource=card).delete()
    ResourceCredential.objects.create(resource=card, secrets={"password": "Our-own.Password1"})
    resources.retire(root, card.pk)
    until(card, state="destroyed")
    assert bmc.password == "Our-own.Password1"


def test_a_card_whose_new_password_was_never_set_is_handed_back(bmc, register, until, root):
    card = until(register(bmc), state="active")
    bmc.set(before := "The-one.Before.it1")
    Resource.objects.filter(pk=card.pk).update(facts={**card.facts, "password": "pending"})
    card.refresh_from_db()
    card.secrets = {**card.secrets, "former_password": before}
    card.save(update_fields=["secrets"])
    resources.retire(root, card.pk)
    until(card, state="destroyed")
    assert bmc.password == RETURNED


def test_a_password_of_the_operator_is_kept(bmc, register, until, root):
    bmc.set("Our-own.Password1")
    card = until(register(bmc, credential={"password": "Our-own.Password1"}), state="active")
    assert "password" not in card.facts
    resources.retire(root, card.pk)
    until(card, state="destroyed")
    assert bmc.password == "Our-own.Password1"


def test_a_card_whose_generated_password_would_be_lost_is_held_for_an_operator(bmc, register, until, root):
    card = until(register(bmc, config={"return_credential": ""}), state="active")
    resources.retire(root, card.pk)
    settle()
    assert "generated password" in Run.objects.get(resource=card).sentence
    Blueprint.objects.update(config={"return_credential": "returned"})
    installation.resolve(root, resource_id=card.pk, yes=True)
    until(card, state="destroyed")
    assert bmc.password == RETURNED


# The lock on a serial number


def test_two_builds_that_compete_for_a_card_are_one_build_and_a_visible_conflict(bmc, register, until):
    with bluefield() as other:
        first, second = register(bmc, "one"), None
        # As if the first had been found by something that knows no serial numbers, such as DPF 24.10.
        ResourceIdentity.objects.all().delete()
        second = register(other, "two")
        until(first, state="active")
        second.refresh_from_db()
        assert second.state == "pending"
        assert f"is held by resource {first.pk}" in second.message
        assert not other.calls, "nothing was written to the card that another build has"
        lock = SlotLock.objects.get()
        assert (lock.key, lock.resource_id) == (f"{SCOPE}/{SERIAL}", first.pk)


def test_a_card_that_dpf_has_found_is_not_registered_a_second_time(bmc, register, blueprint):
    there = blueprint("found", kind="dpf_card", resource_type="dpu_card", config={"credential": "x"})
    row = Resource.objects.create(blueprint=there, type="dpu_card", origin="discovered", identity=SERIAL)
    ResourceIdentity.objects.create(resource=row, namespace="serial", value=SERIAL)
    with pytest.raises(Conflict):
        register(bmc)
    assert Resource.objects.count() == 1


def test_a_card_that_is_registered_is_a_conflict_when_dpf_finds_it(bmc, register, until, blueprint, monkeypatch):
    card = until(register(bmc), state="active")
    found = Draft(name="a", identity=SERIAL, identities=real({"serial": SERIAL}))
    monkeypatch.setattr(DpfCard, "discover", lambda kind, blueprint: [found])
    there = blueprint("found", kind="dpf_card", resource_type="dpu_card", config={"credential": "x"})
    discovery.due()
    settle()
    (conflict,) = Sync.objects.get(blueprint=there).conflicts
    assert f"is already resource {card.pk}" in conflict["message"]
    assert Resource.objects.count() == 1


# The limit on logins


def test_all_workers_together_try_two_logins_and_the_database_refuses_more():
    found: list[str] = []

    def work() -> None:
        try:
            found.extend(RECORD.begin("bmc 10.0.0.1 443").token for _ in range(3))
        finally:
            connection.close()

    workers = [threading.Thread(target=work) for _ in range(6)]
    for one in workers:
        one.start()
    for one in workers:
        one.join()
    assert len([token for token in found if token]) == MOST
    assert LoginAttempt.objects.count() == MOST
    assert RECORD.begin("bmc 10.0.0.2 443").token


def test_an_accepted_login_strikes_itself_only():
    first, second = RECORD.begin("a").token, RECORD.begin("a").token
    RECORD.refused("a", first)
    RECORD.accepted(second)
    assert list(LoginAttempt.objects.values_list("refused", flat=True)) == [True]
    RECORD.accepted(first)
    assert LoginAttempt.objects.count() == 1, "what was refused stays"
    RECORD.refused("a")
    assert WINDOW - 5 < RECORD.begin("a").wait <= WINDOW
    RECORD.refused("a")
    assert LoginAttempt.objects.count() == MOST


def test_a_refused_login_counts_for_ten_minutes_by_the_clock_of_the_database():
    for _ in range(MOST):
        RECORD.refused("a", RECORD.begin("a").token)
    run("UPDATE leases_loginattempt SET at = at - %s * interval '1 s' WHERE slot = 1", (WINDOW - 30,))
    assert 20 < RECORD.begin("a").wait <= 30
    run("UPDATE leases_loginattempt SET at = at - interval '31 s' WHERE slot = 1")
    assert RECORD.begin("a").token
    assert not RECORD.begin("a").token


def test_a_card_that_is_removed_and_registered_again_begins_no_new_count(bmc, register, until, root):
    bmc.set("Unknown-to.us1")
    for system in ("", "Bluefield", "Bluefield"):
        card = register(bmc, bmc=bmc.access(system=system) if system else bmc.access())
        for _ in range(3):
            again()
        card.refresh_from_db()
        assert card.state == "pending"
        resources.retire(root, card.pk)
        until(card, state="destroyed")
    assert bmc.logins == [FACTORY] * MOST
    assert LoginAttempt.objects.filter(refused=True).count() == 2 * MOST, "by address, and by serial number"


def test_a_build_waits_until_logins_may_be_tried_again(bmc, register, until):
    for _ in range(MOST):
        RECORD.refused(f"bmc 127.0.0.1 {bmc.port}")
    card = register(bmc)
    settle()
    waiting = Run.objects.get(resource=card)
    assert "the BMC would lock the account" in waiting.sentence
    assert not bmc.logins
    LoginAttempt.objects.all().delete()
    Run.objects.update(due_at=PAST)
    until(card, state="active")


# Health, and the host


def test_a_check_that_fails_closes_the_card_and_another_card_is_quarantined(bmc, register, until, root):
    card = until(register(bmc), state="active")
    bmc.silent = True
    resources.check(root, card.pk)
    settle()
    card.refresh_from_db()
    assert (card.observed, card.suspect_since is not None) == ("unreachable", True)
    bmc.silent = False
    resources.check(root, card.pk)
    settle()
    until(card, suspect_since=None)
    for path in ("/redfish/v1/Systems/Bluefield", "/redfish/v1/Chassis/Card1"):
        bmc.resources[path]["SerialNumber"] = "MT9999X00001   "
    resources.check(root, card.pk)
    settle()
    until(card, quarantined=True)
    assert "MT9999X00001" in card.note


def test_a_bmc_of_another_card_is_not_enrolled(bmc, register):
    for path in ("/redfish/v1/Systems/Bluefield", "/redfish/v1/Chassis/Card1"):
        bmc.resources[path]["SerialNumber"] = "MT9999X00001   "
    card = register(bmc)
    settle()
    card.refresh_from_db()
    assert card.state == "pending"
    assert "belongs to the card MT9999X00001" in card.message


@pytest.mark.parametrize("named", ["h1", "HOST7"], ids=["by name", "by serial"])
@pytest.mark.parametrize("place", ["registration", "config"])
def test_a_card_is_part_of_its_host(bmc, register, until, blueprint, root, named, place):
    given = {"host": named} if place == "registration" else {"config": {"hosts": {SERIAL: named}}}
    card = register(bmc, **given)
    settle()
    card.refresh_from_db()
    assert f"in host {named}, but no host has this name" in card.message
    blueprint("hosts", kind="fake", resource_type="host", config={"provider": "hosts"}, max_resources=0)
    host = Resource.objects.get(pk=resources.register(root, "hosts", {"name": "h1", "identity": "h1"}).id)
    until(host, state="active")
    ResourceIdentity.objects.create(resource=host, namespace="serial:dell", value="HOST7")
    again()
    until(card, state="active")
    assert (card.part_of_id, card.attributes["host"]) == (host.pk, "h1")


def test_a_card_that_is_moved_does_not_stay_part_of_the_host_before(bmc, register, until, blueprint, root):
    blueprint("hosts", kind="fake", resource_type="host", config={"provider": "hosts"}, max_resources=0)
    host = Resource.objects.get(pk=resources.register(root, "hosts", {"name": "h1", "identity": "h1"}).id)
    until(host, state="active")
    card = until(register(bmc, host="h1"), state="active")
    assert card.part_of_id == host.pk
    given = {"serial": SERIAL, "bmc": bmc.access()}
    resources.change_registration(root, card.pk, {**given, "host": "h2"})
    again()
    card.refresh_from_db()
    assert card.part_of_id is None
    assert Event.objects.filter(resource=card, message__contains="in host h2, but no host has this name").exists()
    resources.change_registration(root, card.pk, {**given, "host": "h1"})
    again()
    until(card, part_of_id=host.pk)
    resources.change_registration(root, card.pk, {"host": None})
    again()
    until(card, part_of_id=None)
    assert "host" not in card.attributes


def test_the_sessions_of_a_card_are_all_ended(bmc, register, until):
    until(register(bmc), state="active")
    assert not bmc.sessions
    assert bmc.most_open == 1
    assert bmc.calls.count(f"POST {SESSIONS}") <= 4, "a login for each step that needs one"
