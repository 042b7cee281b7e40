"""Leases: an owner's right to a share of one resource."""

from __future__ import annotations

from typing import Any

from django.conf import settings
from django.contrib.auth.models import Group
from django.contrib.postgres.fields import ArrayField
from django.contrib.postgres.indexes import GinIndex
from django.contrib.postgres.search import SearchVector
from django.db import models
from django.db.models import Q
from django.db.models.functions import Now

from drydock.core.fields import EncryptedJSONField
from leases.states import LeaseState


class LeaseGroup(models.Model):
    """Leases that are granted all together or not at all, and that wait as one entry in the queue."""

    owner = models.ForeignKey(settings.AUTH_USER_MODEL, on_delete=models.PROTECT, related_name="+")
    same = models.CharField(max_length=16, blank=True, default="", db_default="")
    different = models.CharField(max_length=16, blank=True, default="", db_default="")
    """What the members must have in common (`same`) or must not (`different`): `resource` or `parent`.

    `same` can also be `host`, or `whole`, with which resources are built in the host too.
    """
    near = models.CharField(max_length=16, blank=True, default="", db_default="")
    """`prefer` or `require` if devices near one another are wanted. See `placement.assignment.nearest`."""
    distance = models.CharField(max_length=200, blank=True, default="", db_default="")
    """The distance between the devices that the members were granted, in words. Empty unless `near` is set."""
    idempotency_key = models.CharField(max_length=255, null=True, blank=True)  # noqa: DJ001 - NULL is not unique
    fingerprint = models.CharField(max_length=64, blank=True, default="", db_default="")
    created_at = models.DateTimeField(db_default=Now())

    class Meta:
        constraints = [
            models.UniqueConstraint(fields=["owner", "idempotency_key"], name="group_key_once"),
        ]

    def __str__(self) -> str:
        return f"group {self.pk}"


class Lease(models.Model):
    """A right to a share of one resource, until it is released or expires."""

    type = models.CharField(max_length=63)
    name = models.CharField(max_length=255, blank=True, default="", db_default="")
    labels: models.JSONField[Any, Any] = models.JSONField(default=dict, db_default=models.Value({}, models.JSONField()))
    owner = models.ForeignKey(
        settings.AUTH_USER_MODEL, null=True, on_delete=models.PROTECT, related_name="leases", db_index=False
    )
    """The user to whom the lease belongs. None if the installation holds the lease for a resource that needs it."""
    charged_group = models.ForeignKey(
        Group, null=True, blank=True, on_delete=models.PROTECT, related_name="+", db_index=False
    )
    group = models.ForeignKey(
        LeaseGroup, null=True, blank=True, on_delete=models.PROTECT, related_name="leases", db_index=False
    )

    state = models.CharField(max_length=16, choices=[(s, s) for s in LeaseState], default="pending")
    reason = models.CharField(max_length=32, blank=True, default="", db_default="")
    message = models.TextField(blank=True, default="", db_default="")
    actor = models.CharField(max_length=150, blank=True, default="", db_default="")
    since = models.DateTimeField(db_default=Now())

    requirements: models.JSONField[Any, Any] = models.JSONField(
        default=dict, db_default=models.Value({}, models.JSONField())
    )
    traits = ArrayField(models.CharField(max_length=63), default=list, db_default=[])
    forbidden_traits = ArrayField(models.CharField(max_length=63), default=list, db_default=[])
    preferred_traits = ArrayField(models.CharField(max_length=63), default=list, db_default=[])
    slots = models.PositiveIntegerField(default=1, db_default=1)
    cpu_millicores = models.PositiveBigIntegerField(default=0, db_default=0)
    ram_mib = models.PositiveBigIntegerField(default=0, db_default=0)
    disk_mib = models.PositiveBigIntegerField(default=0, db_default=0)
    extra: models.JSONField[Any, Any] = models.JSONField(default=dict, db_default=models.Value({}, models.JSONField()))
    exclusive = models.BooleanField(default=False, db_default=False)
    allowed_blueprints = ArrayField(models.BigIntegerField(), null=True, blank=True)
    excluded_blueprints = ArrayField(models.BigIntegerField(), default=list, db_default=[])
    avoided_resources = ArrayField(models.BigIntegerField(), default=list, db_default=[])
    """Ids of resources that failed this lease. They are used again only if there is no other."""
    only_resources = ArrayField(models.BigIntegerField(), null=True, blank=True)
    """Ids of the resources that may serve the lease; None means any."""
    public_keys = ArrayField(models.TextField(), default=list, db_default=[])

    shape = models.CharField(max_length=32)
    """The request class: a hash of everything that determines which resources could serve the lease.

    Leases of one class are served in order.
    """
    priority = models.SmallIntegerField(default=0, db_default=0)
    rank = models.FloatField(default=0)
    """Position in the queue, lower first: the time of the owner's request minus the head start of its priority."""
    root = models.ForeignKey("self", null=True, blank=True, on_delete=models.PROTECT, related_name="+", db_index=False)

    resource = models.ForeignKey(
        "leases.Resource", null=True, blank=True, on_delete=models.PROTECT, related_name="leases"
    )
    """The resource of which the lease has or had a share. Empty while the lease is pending."""
    for_resource = models.ForeignKey(
        "leases.Resource", null=True, blank=True, on_delete=models.PROTECT, related_name="holds", db_index=False
    )
    """The resource that needs this lease on another resource."""
    for_lease = models.ForeignKey(
        "self", null=True, blank=True, on_delete=models.PROTECT, related_name="holds", db_index=False
    )
    need = models.CharField(max_length=63, blank=True, default="", db_default="")
    """The name under which `for_resource` or `for_lease` requested this lease."""
    need_phase = models.CharField(max_length=16, blank=True, default="", db_default="")
    """The phase after which the lease ends. Empty if the lease lasts as long as its holder."""

    ttl = models.DurationField(null=True, blank=True, help_text="Measured from when the lease becomes active.")
    until = models.DateTimeField(null=True, blank=True)
    ttl_defaulted = models.BooleanField(default=False, db_default=False)
    """True if the request set no end. `ttl` is then a default, which a shorter default of the blueprint replaces."""
    limited = models.BooleanField(default=False, db_default=False)
    """True if limits on the duration apply: an owner requested the lease, not an operator, lease or resource."""
    give_up_at = models.DateTimeField(null=True, blank=True)
    heartbeat_limit = models.DurationField(null=True, blank=True)
    heartbeat_at = models.DateTimeField(null=True, blank=True)
    held = models.BooleanField(default=False, db_default=False)
    """True if the lease is held for debugging: after its end, the resource stays unchanged until the hold ends."""
    hold_until = models.DateTimeField(null=True, blank=True)
    release_wanted = models.CharField(max_length=32, blank=True, default="", db_default="")
    """The reason for a requested release, which is carried out after commit or by the sweep."""
    release_actor = models.CharField(max_length=150, blank=True, default="", db_default="")
    due_at = models.DateTimeField(null=True, blank=True)
    """The time at which a pending lease is tried again even if nothing wakes it."""
    parked = models.BooleanField(default=False, db_default=False)
    """True if the lease is out of the queue until `due_at` or a wake-up, because of a limit such as a quota."""
    bounces = models.PositiveSmallIntegerField(default=0, db_default=0)
    verdicts: models.JSONField[Any, Any] = models.JSONField(
        default=list, db_default=models.Value([], models.JSONField())
    )
    """The verdicts on all candidates in the last decision."""
    serve_again = models.BooleanField(default=False, db_default=False)
    """True to request the lease again if its resource is lost. `replaced_by` is then the new lease."""
    choose = models.CharField(max_length=16, blank=True, default="", db_default="")
    """How to choose between blueprints that could build. If empty, the default of the installation is used."""
    watched = models.BooleanField(default=False, db_default=False)
    """True if the lease has a `Watch`, for a workload or measurements."""
    replaced_by = models.ForeignKey(
        "self", null=True, blank=True, on_delete=models.SET_NULL, related_name="replaces", db_index=False
    )

    note = models.TextField(blank=True, default="", db_default="")
    """The owner's note."""

    idempotency_key = models.CharField(max_length=255, null=True, blank=True)  # noqa: DJ001 - NULL is not unique
    fingerprint = models.CharField(max_length=64, blank=True, default="", db_default="")
    facts: models.JSONField[Any, Any] = models.JSONField(default=dict, db_default=models.Value({}, models.JSONField()))
    secrets = EncryptedJSONField(default=dict, null=True)
    created_at = models.DateTimeField(db_default=Now())
    acquired_at = models.DateTimeField(null=True, blank=True)
    active_at = models.DateTimeField(null=True, blank=True)
    ended_at = models.DateTimeField(null=True, blank=True)

    class Meta:
        ordering = ["-id"]
        constraints = [
            models.UniqueConstraint(fields=["owner", "idempotency_key"], name="lease_key_once"),
            models.UniqueConstraint(
                fields=["for_resource", "for_lease", "need"],
                condition=~Q(need="") & Q(state__in=["pending", "acquired", "active"]),
                name="lease_need_once",
                nulls_distinct=False,
            ),
            models.CheckConstraint(condition=Q(slots__gte=1), name="lease_takes_a_slot"),
        ]
        # Every row of a lease goes into each index that covers it, five times on its way. So references that are
        # mostly empty have partial ones, and a foreign key has none of its own where another begins with it.
        indexes = [
            models.Index(
                fields=["type", "shape", "rank", "id"],
                condition=Q(state="pending", parked=False, group=None),
                name="lease_queue",
            ),
            models.Index(fields=["type", "rank", "id"], condition=Q(state="pending", parked=False), name="lease_turn"),
            models.Index(
                fields=["type", "group"],
                condition=Q(state="pending", parked=False) & ~Q(group=None),
                name="lease_groups",
            ),
            models.Index(
                fields=["owner", "rank", "id"], condition=Q(state="pending", parked=True), name="lease_parked_owner"
            ),
            models.Index(
                fields=["charged_group", "rank", "id"],
                condition=Q(state="pending", parked=True) & ~Q(charged_group=None),
                name="lease_parked_charged",
            ),
            models.Index(fields=["group"], condition=~Q(group=None), name="lease_of_group"),
            models.Index(fields=["due_at"], condition=Q(state="pending"), name="lease_due"),
            models.Index(
                fields=["until"], condition=Q(state__in=["pending", "acquired", "active"]), name="lease_until"
            ),
            models.Index(
                fields=["heartbeat_at"],
                condition=Q(state__in=["acquired", "active"]) & ~Q(heartbeat_limit=None),
                name="lease_heartbeat",
            ),
            models.Index(fields=["id"], condition=~Q(release_wanted=""), name="lease_release_wanted"),
            models.Index(fields=["state"], condition=Q(state__in=["acquired", "released"]), name="lease_under_way"),
            models.Index(fields=["owner", "-id"], name="lease_of_owner"),
            models.Index(
                fields=["owner", "name"],
                condition=Q(state__in=["pending", "acquired", "active"]) & ~Q(name=""),
                name="lease_by_name",
            ),
            models.Index(fields=["for_resource"], condition=~Q(for_resource=None), name="lease_for_resource"),
            models.Index(fields=["for_lease"], condition=~Q(for_lease=None), name="lease_for_lease"),
            models.Index(fields=["root"], condition=~Q(root=None), name="lease_of_root"),
            models.Index(fields=["replaced_by"], condition=~Q(replaced_by=None), name="lease_replaced_by"),
            models.Index(fields=["charged_group"], condition=~Q(charged_group=None), name="lease_charged"),
            GinIndex(SearchVector("note", config="simple"), condition=~Q(note=""), name="lease_note_words"),
        ]

    def __str__(self) -> str:
        return self.name or f"lease {self.pk}"
