"""Names of leases, and what the owner of a held lease can do."""

from __future__ import annotations

import threading

import pytest
from django.contrib.auth.models import User
from django.db import connection

from drydock.core.errors import Conflict, NotFound
from interfaces.errors import LeaseEnded
from leases.allocator import Lease as Owned
from leases.models import Lease
from leases.operations import interfaces
from leases.operations import leases as operation_leases
from leases.operations.callers import caller


@pytest.fixture
def ada(owner):
    return caller(owner)


@pytest.fixture
def root():
    return caller(User.objects.create_superuser("root"))


class TestNames:
    """A name stands for one live lease of its owner."""

    def test_is_unique_among_the_live_leases_of_an_owner(self, blueprint, ask, until, ada):
        blueprint(config={"capacity": {"slots": 8}})
        first = until(ask(name="mine", idempotency_key="k"), state="active")
        assert ask(name="mine", idempotency_key="k").pk == first.pk, "a replay is no second one"
        with pytest.raises(Conflict, match=f"Lease {first.pk} already has the name 'mine'"):
            ask(name="mine")
        ask(by=User.objects.create_user("eve"), name="mine")
        with pytest.raises(Conflict):
            operation_leases.request_group(ada, [{"type": "fake", "name": "both"}] * 2)
        assert not Lease.objects.filter(name="both").exists()
        operation_leases.release(ada, first.pk)
        until(first, state="destroyed")
        assert ask(name="mine").pk != first.pk

    def test_leases_that_others_need_take_no_name_from_their_owner(self, blueprint, ask, until, ada):
        blueprint("below", config={"capacity": {"slots": 8}})
        need = {"does": "need_leases", "at": "activate.account", "leases": [{"type": "fake", "name": "beside"}]}
        blueprint("above", kind="fake_activated", config={"faults": [need], "capacity": {"slots": 2}}, max_resources=1)
        leases = [until(ask("fake_activated"), state="active") for _ in range(2)]
        assert leases[0].resource_id == leases[1].resource_id
        needed = list(Lease.objects.filter(for_lease__in=leases))
        assert len({one.name for one in needed}) == 1
        assert len(needed) == 2
        ask(name=needed[0].name)
        assert operation_leases.named(ada, needed[0].name) == Lease.objects.get(name=needed[0].name, need="").pk

    def test_of_requests_at_the_same_time_one_gets_it(self, transactional_db, blueprint, owner):
        blueprint(config={"capacity": {"slots": 8}})
        start, outcomes = threading.Barrier(4), []

        def request() -> None:
            start.wait()
            try:
                outcomes.append(operation_leases.request(caller(owner), {"type": "fake", "name": "mine"}))
            except Conflict:
                outcomes.append(None)
            finally:
                connection.close()

        threads = [threading.Thread(target=request) for _ in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
        assert len([one for one in outcomes if one]) == 1
        assert Lease.objects.filter(name="mine").count() == 1

    def test_stands_for_ones_own_live_lease_then_for_the_newest_ended(self, blueprint, ask, until, ada, root):
        blueprint(config={"capacity": {"slots": 8}})
        first = until(ask(name="mine"), state="active")
        assert operation_leases.named(ada, "mine") == first.pk == operation_leases.named(root, "mine")
        others = until(ask(by=User.objects.create_user("eve"), name="mine"), state="active")
        assert operation_leases.named(caller("eve"), "mine") == others.pk
        with pytest.raises(Conflict, match="Several owners"):
            operation_leases.named(root, "mine")
        operation_leases.release(ada, first.pk)
        until(first, state="destroyed")
        assert operation_leases.named(ada, "mine") == first.pk
        assert operation_leases.named(root, "mine") == others.pk
        assert Owned.get("mine", owner="ada").id == first.pk
        with pytest.raises(NotFound, match="is not a lease number or name"):
            operation_leases.named(ada, "other")


def test_the_owner_can_use_what_is_held_until_the_hold_ends(blueprint, ask, until, ada):
    blueprint()
    lease = until(ask(), state="active")
    operation_leases.hold(ada, lease.pk, ttl="1h")
    operation_leases.release(ada, lease.pk)
    until(lease, state="released", reason="held")
    assert interfaces.run_command(ada, lease.pk, ["true"]).exit_code == 0
    stranger = caller(User.objects.create_user("eve"))
    with pytest.raises(NotFound):
        interfaces.run_command(stranger, lease.pk, ["true"])
    Lease.objects.update(hold_until="2020-01-01T00:00Z")
    with pytest.raises(LeaseEnded):
        interfaces.run_command(ada, lease.pk, ["true"])
    Lease.objects.update(hold_until=None)
    assert interfaces.run_command(ada, lease.pk, ["true"]).exit_code == 0
    operation_leases.unhold(ada, lease.pk)
    with pytest.raises(LeaseEnded):
        interfaces.run_command(ada, lease.pk, ["true"])
