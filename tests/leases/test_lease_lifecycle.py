"""The way of a lease, in one process."""

from __future__ import annotations

from leases.engine.lifecycle import release
from leases.messaging.inline import settle
from leases.models import Event, Lease, Resource, Share


def states(lease: Lease) -> list[str]:
    return list(
        Event.objects.filter(lease=lease, kind__startswith="lease.")
        .exclude(to_state="")
        .values_list("to_state", flat=True)
    )


def test_a_lease_is_built_used_released_and_its_resource_stays_warm(blueprint, ask):
    blueprint()
    lease = ask()
    assert lease.state == "pending"
    settle()
    lease.refresh_from_db()
    assert (lease.state, lease.resource.state, lease.resource.used_slots) == ("active", "active", 1)
    release.release(lease.pk, actor="ada")
    lease.refresh_from_db()
    assert (lease.state, lease.resource.state, lease.resource.used_slots) == ("destroyed", "active", 0)
    assert states(lease) == ["pending", "acquired", "active", "released", "destroyed"]


def test_a_second_lease_reuses_the_warm_resource_at_once(blueprint, ask):
    blueprint()
    first = ask()
    settle()
    release.release(first.pk, actor="ada")
    second = ask()
    assert second.state == "active"
    assert Resource.objects.count() == 1


def test_activation_and_cleaning_are_carried_out(blueprint, ask):
    blueprint(kind="fake_activated")
    lease = ask("fake_activated")
    settle()
    lease.refresh_from_db()
    assert lease.state == "active", lease.message
    release.release(lease.pk, actor="ada")
    lease.refresh_from_db()
    assert lease.state == "released"
    assert Share.objects.filter(lease=lease).exists()
    settle()
    lease.refresh_from_db()
    assert lease.state == "destroyed"
    assert not Share.objects.exists()


def test_a_waiting_lease_takes_over_when_the_first_is_released(blueprint, ask):
    blueprint(max_resources=1)
    first = ask()
    settle()
    second = ask()
    settle()
    second.refresh_from_db()
    assert (second.state, second.reason) == ("pending", "waiting_room")
    assert second.verdicts[0]["sentence"] == "its only resource is full (1 of 1 slot)"
    release.release(first.pk, actor="ada")
    second.refresh_from_db()
    assert second.state == "active"


def test_what_nothing_could_ever_serve_is_refused_with_the_reason(blueprint, ask):
    blueprint(config={"capacity": {"slots": 2}})
    lease = ask(slots=3)
    settle()
    lease.refresh_from_db()
    assert lease.state == "broken"
    assert "3 slots requested; at most 2 available" in lease.message
