"""This machine as a host, through the engine: it follows its blueprint in place."""

from __future__ import annotations

import pytest
from django.contrib.auth.models import Group, User

from drydock.core.errors import NotFound
from drydock_client.values import BlueprintChange
from leases.engine.lifecycle import release
from leases.messaging.inline import settle
from leases.models import Event, Resource
from leases.operations import blueprints, interfaces, jobs, leases, resources
from leases.operations.callers import caller
from tests.blueprints import host_peers as peers
from tests.blueprints.layered_peers import new_folder
from tests.leases.conftest import _database, _quick, ask, blueprint, owner, unhurried, until

__all__ = ["_database", "_quick", "ask", "blueprint", "owner", "unhurried", "until"]

pytestmark = pytest.mark.usefixtures("unhurried")


@pytest.fixture
def operator():
    return caller(User.objects.create_superuser("root"))


def test_it_follows_a_changed_blueprint_once_it_is_free(blueprint, ask, until, operator):
    old, new = new_folder(), new_folder()
    with peers.removed(old, new):
        config = {"folder": str(old), "slots": 3, "region": "lab", "first_uid": peers.FIRST_UID + 41_000, "uids": 50}
        blueprint("here", kind="local_host", resource_type="host", config=config, max_resources=1)
        lease = until(ask("host"), state="active")
        host = Resource.objects.get()
        changed = {**config, "folder": str(new), "slots": 5, "traits": ["quiet"]}
        del changed["region"]
        blueprints.change(operator, "here", BlueprintChange(config=changed))
        settle()
        host.refresh_from_db()
        assert (host.generation, host.total_slots, host.claimable) == (1, 3, False)
        waiting = ask("host", traits=["quiet"])
        settle()
        assert list(old.glob("*/*"))
        release.release(lease.pk, actor="ada")
        until(lease, state="destroyed")
        until(waiting, state="active", resource_id=host.pk)
        host.refresh_from_db()
        assert (host.generation, host.total_slots, host.traits) == (2, 5, ["quiet"])
        assert "region" not in host.attributes
        assert not list(old.glob("*")), "the old folder is gone"
        assert str(new) in host.facts["folder"]
        release.release(waiting.pk, actor="ada")
        until(waiting, state="destroyed")
        resources.retire(operator, host.pk)
        until(host, state="destroyed")
        assert not list(new.glob("*"))


def happened(lease, kind: str) -> bool:
    """Whether a lease has such an event, after one more sweep."""
    settle()
    return bool(Event.objects.filter(lease=lease, kind=kind).exists())


@pytest.mark.slow
def test_a_transfer_ends_what_the_former_owner_runs_and_keeps_the_files(blueprint, ask, owner, until):
    folder = new_folder()
    with peers.removed(folder):
        config = {"folder": str(folder), "first_uid": peers.FIRST_UID + 42_000, "uids": 50}
        blueprint("here", kind="local_host", resource_type="host", config=config, max_resources=1)
        lease = until(ask("host"), state="active")
        job = jobs.start(caller(owner), lease.pk, ["sh", "-c", "echo kept >file; sleep 300"])
        peers.eventually(lambda: interfaces.read_file(caller(owner), lease.pk, "file") == b"kept\n")
        heir = User.objects.create_user("bob")
        Group.objects.create(name="team").user_set.add(owner, heir)
        bob = caller(heir)
        leases.transfer(caller(owner), lease.pk, to="bob")
        peers.eventually(lambda: happened(lease, "lease.keys_replaced"), 30)
        with pytest.raises(NotFound):
            jobs.get(caller(owner), job.id)
        assert jobs.get(bob, job.id).state != "running"
        assert interfaces.read_file(bob, lease.pk, "file") == b"kept\n"
        release.release(lease.pk, actor="bob")
        until(lease, state="destroyed")
