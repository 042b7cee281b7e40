"""Removing blueprints: refused while something needs them, and what was is still told afterwards."""

from __future__ import annotations

import pytest

from blueprints.models import Blueprint
from drydock.core.errors import Conflict, InvalidRequest, NotAllowed, NotFound
from drydock_client import values
from leases.engine.sync import orphans
from leases.messaging.inline import settle
from leases.models import Authorization, Lease, Search
from leases.operations import blueprints, events, installation, leases, permissions, resources
from leases.operations.callers import caller


@pytest.fixture
def root(django_user_model):
    return caller(django_user_model.objects.create_superuser("root"))


@pytest.fixture
def used(blueprint, root):
    """A blueprint with a resource on which a lease is active; (lease, resource)."""
    blueprint()
    lease = leases.request(root, {"type": "fake"})
    settle()
    return lease, leases.get(root, lease).resource


def gone(root, lease):
    leases.release(root, lease)
    settle()
    installation.reclaim(root)
    settle()


def test_it_is_refused_while_something_needs_it_and_says_what(used, root):
    lease, resource = used
    with pytest.raises(Conflict) as raised:
        blueprints.remove(root, "pool")
    assert raised.value.message == f"pool is needed by resource {resource} (active), lease {lease} (active)."
    assert "drydock blueprints drain pool" in raised.value.hint
    leases.release(root, lease)
    settle()
    with pytest.raises(Conflict, match=rf"needed by resource {resource} \(active\)\. "):
        blueprints.remove(root, "pool")


def test_nobody_looks_for_what_a_removed_one_may_have_left(used, root):
    gone(root, used[0])
    pk = Search.objects.get().blueprint_id
    blueprints.remove(root, "pool")
    assert not Search.objects.exists()
    Search.objects.create(blueprint_id=pk)  # written by a sweep that had read it before
    settle()
    assert orphans.search(pk) is False


def test_who_waits_for_it_alone_needs_it(blueprint, root):
    blueprint(enabled=False)
    blueprint("other", enabled=False)
    either = leases.request(root, {"type": "fake"})
    alone = leases.request(root, {"type": "fake", "allowed_blueprints": ["pool"]})
    settle()
    assert {row.state for row in Lease.objects.all()} == {"pending"}
    with pytest.raises(Conflict, match=rf"needed by lease {alone} \(pending\)\. "):
        blueprints.remove(root, "pool")
    leases.release(root, alone)
    settle()
    blueprints.remove(root, "pool")
    assert leases.get(root, either).state == "pending"


def test_once_all_is_gone_it_goes_and_its_history_and_name_stay_of_use(used, root):
    lease, resource = used
    permissions.authorize(root, "pool", user="root")
    gone(root, lease)
    blueprints.remove(root, "pool")

    assert blueprints.list_(root) == []
    for act in (blueprints.get, blueprints.remove, blueprints.check, blueprints.enable, blueprints.drain):
        with pytest.raises(NotFound):
            act(root, "pool")
    assert not Authorization.objects.exists()
    assert resources.list_(root, gone=True)[0].blueprint == "pool"
    assert leases.get(root, lease).blueprint == "pool"
    assert [event.kind for event in events.list_(root, blueprint="pool", newest=True)][-1] == "blueprint.removed"

    blueprints.add(root, "pool", "fake")
    assert blueprints.get(root, "pool").there == 0
    again = leases.request(root, {"type": "fake"})
    settle()
    assert leases.get(root, again).state == "active"
    assert leases.get(root, again).resource != resource
    assert Blueprint.everything.filter(name="pool").count() == 2


def test_one_without_any_history_leaves_no_row(blueprint, root):
    blueprint()
    blueprints.remove(root, "pool")
    assert not Blueprint.everything.exists()


def test_nothing_is_built_or_registered_from_a_removed_one(used, root):
    lease, _ = used
    gone(root, lease)
    blueprints.change(root, "pool", values.BlueprintChange(min_ready=0))
    blueprints.remove(root, "pool")
    with pytest.raises(InvalidRequest, match="No blueprint provides the resource type 'fake' yet"):
        leases.explain(root, {"type": "fake"})
    with pytest.raises(NotFound):
        resources.register(root, "pool", {"name": "own"})


def test_a_request_by_name_means_the_one_there_is_and_no_removed_one(used, root):
    lease, _ = used
    gone(root, lease)
    blueprints.remove(root, "pool")
    blueprints.add(root, "other", "fake")
    with pytest.raises(
        InvalidRequest, match="'pool' does not exist or does not provide resource type 'fake'"
    ) as raised:
        leases.request(root, {"type": "fake", "allowed_blueprints": ["pool"]})
    assert raised.value.hint == "Choose one of: other."
    blueprints.add(root, "pool", "fake")
    # Which of two rows of one name is read last is for the database to choose: the older one is rewritten here.
    Blueprint.everything.exclude(removed_at=None).update(note="long gone")
    again = leases.request(root, {"type": "fake", "allowed_blueprints": ["pool"]})
    settle()
    assert Lease.objects.get(pk=again).allowed_blueprints == [Blueprint.objects.get(name="pool").pk]
    assert leases.get(root, again).state == "active"


def test_only_operators_remove(blueprint, owner):
    blueprint()
    with pytest.raises(NotAllowed):
        blueprints.remove(caller(owner), "pool")
