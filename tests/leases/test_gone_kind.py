"""A blueprint whose kind's package was uninstalled: it is listed, its resources are closed, and it is removed."""

from __future__ import annotations

from django.contrib.auth.models import User

from blueprints.models import Blueprint
from leases.messaging.inline import settle
from leases.models import Resource
from leases.operations import attention, blueprints, leases, resources
from leases.operations.callers import caller


def test_it_is_removed_once_its_resources_are_closed(blueprint, ask, until, swallowed):
    root = caller(User.objects.create_superuser("root"))
    blueprint()
    lease = until(ask(), state="active")
    leases.release(root, lease.pk)
    until(lease, state="destroyed")
    Blueprint.objects.update(kind="gone")
    assert [one.kind for one in blueprints.list_(root)] == ["gone"]
    assert blueprints.get(root, "pool").kind == "gone"
    blueprints.drain(root, "pool")
    settle()
    attention.needed(root)
    for row in Resource.objects.filter(gone_at=None):
        resources.force_destroy(root, row.pk, reason="its package is gone")
        settle()
    assert not Resource.objects.filter(gone_at=None).exists()
    blueprints.remove(root, "pool")
    assert blueprints.list_(root) == []


def test_one_that_never_had_resources_is_removed(blueprint):
    root = caller(User.objects.create_superuser("root"))
    blueprint(kind="gone", enabled=False)
    blueprints.remove(root, "pool")
    assert blueprints.list_(root) == []
