"""Asking for leases: the row is written and, where there is room, claimed at once."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import replace

from django.db import connection, transaction

from drydock.core.errors import Conflict
from leases import hints
from leases.engine import budgets, quotas, search, waiting
from leases.engine.entry import Cause, Requested, Usable, insert, usable
from leases.engine.grant import belongs_to_older, finish_claim
from leases.engine.serving import Outcome, place
from leases.engine.transaction import short
from leases.models import LeaseGroup
from leases.requests import LeaseRequest, digest


def request(asked: LeaseRequest, owner_id: int | None, *, actor: str, cause: Cause | None = None) -> Requested:
    """Write the lease row and, unless a caller's transaction is open, claim at once.

    Raises InvalidRequest, or Conflict when the idempotency key was used for another request.
    """
    blueprints = usable(asked)
    if connection.in_atomic_block:
        done, _ = insert(asked, owner_id, blueprints, actor, cause, None)
        if not done.replayed:
            hints.after_commit("serve", asked.type)
        return done
    done, waits = _insert_and_claim(asked, owner_id, blueprints, actor, cause)
    if waits and not serve_now(done.id):
        hints.send("serve", asked.type)
    return done


def serve_now(lease_id: int) -> bool:
    """Look again, in a new transaction, after the request was committed: whoever made room meanwhile could not
    have seen it. True when the lease needs nobody else to look at it."""
    return place(lease_id) in (Outcome.GRANTED, Outcome.GONE)


@short
def _insert_and_claim(
    asked: LeaseRequest, owner_id: int | None, blueprints: Usable, actor: str, cause: Cause | None
) -> tuple[Requested, bool]:
    done, waiter = insert(asked, owner_id, blueprints, actor, cause, None)
    if done.replayed or waiter is None:
        return done, False
    return done, not _claim_now(waiter, blueprints)


def _claim_now(waiter: waiting.Waiter, blueprints: Usable) -> bool:
    """Take room at once, unless somebody who waits since before could use it. Waits for no lock."""
    if not blueprints.restricted:
        waiter.question = replace(waiter.question, owner_id=None)
    if blueprints.quotas:
        allowance = quotas.allowance({waiter.id: waiter.question.amounts})
        if allowance.excess is not None:
            return False
        waiter.question = allowance.bounding(waiter.question)
    if blueprints.budgets:
        waiter.question = budgets.lock([waiter.id]).of(waiter.id, waiter.question).bounding(waiter.question)
    room = search.look(waiter.question, waiter.rank)
    if room is None or (room.queue and belongs_to_older(room, waiter)):
        return False
    finish_claim(waiter, room)
    return True


class _NothingWritten(Exception):
    """Ends a rehearsal."""


@contextmanager
def rehearse(asked: LeaseRequest, owner_id: int | None, *, actor: str) -> Iterator[waiting.Waiter]:
    """The request as a waiter in a transaction that is rolled back at the end of the block. Raises as `request`."""
    given = asked.model_copy(update={"idempotency_key": None})
    with suppress(_NothingWritten), transaction.atomic():
        _, waiter = insert(given, owner_id, usable(given), actor, None, None)
        assert waiter is not None, "without an idempotency key nothing is replayed"
        yield waiter
        raise _NothingWritten


def request_group(
    asked: list[LeaseRequest], owner_id: int, *, actor: str, same: str = "", different: str = "",
    idempotency_key: str | None = None,
) -> tuple[int, list[int]]:  # fmt: skip
    """Write a group of leases; they are granted together or not at all. The group's id and its leases' ids."""
    blueprints = [usable(one) for one in asked]
    fingerprint = digest([same, different, [one.fingerprint for one in asked]]) if idempotency_key else ""
    with transaction.atomic():
        group, fresh = _group(owner_id, same, different, idempotency_key, fingerprint)
        if fresh:
            for one, usable_by in zip(asked, blueprints, strict=True):
                insert(one, owner_id, usable_by, actor, None, group.pk)
        for resource_type in sorted({one.type for one in asked}):
            hints.after_commit("serve", resource_type)
    return group.pk, list(group.leases.order_by("id").values_list("id", flat=True))


def _group(owner_id: int, same: str, different: str, key: str | None, fingerprint: str) -> tuple[LeaseGroup, bool]:
    if key is None:
        return LeaseGroup.objects.create(owner_id=owner_id, same=same, different=different), True
    LeaseGroup.objects.bulk_create(
        [LeaseGroup(owner_id=owner_id, same=same, different=different, idempotency_key=key, fingerprint=fingerprint)],
        ignore_conflicts=True,
    )
    group = LeaseGroup.objects.select_for_update(no_key=True).get(owner_id=owner_id, idempotency_key=key)
    if group.fingerprint != fingerprint:
        raise Conflict(f"The idempotency key {key!r} stands for another group.", field="idempotency_key")
    return group, not group.leases.exists()
