"""Remembered errors: failures that exclude an offer, a zone, a location or a blueprint for some time."""

from __future__ import annotations

import datetime as dt
from collections.abc import Collection, Iterable
from dataclasses import replace

from django.conf import settings
from django.db.models import Q
from django.db.models.functions import Now

from blueprints.answers import Failed, Scope
from blueprints.models import RememberedError
from blueprints.offers import type_in
from leases.engine.core.database import rows
from leases.engine.core.transitions import record_event
from leases.messaging import hints
from leases.models import Resource
from leases.states import ResourceState


def _seconds(scope: Scope) -> float | None:
    """Return how long a failure of this scope is remembered, in seconds. None means until an operator acts."""
    return None if scope is Scope.OPERATOR else getattr(settings.DRYDOCK, f"remember_{scope.value}_seconds")


def remember(resource: Resource, answer: Failed) -> None:
    """Remember a failed build, so that other candidates are tried for some time."""
    if answer.blames_request:
        answer = _with_others(resource, answer)
    scope = answer.scope
    if scope in (Scope.STEP, Scope.OFFER):
        scope, key = (Scope.OFFER, resource.offer) if resource.offer else (Scope.BLUEPRINT, "")
    else:
        key = {Scope.ZONE: resource.zone, Scope.LOCATION: answer.key}.get(scope, "")
    seconds = answer.remember if answer.remember is not None else _seconds(answer.scope)
    until = None if seconds is None else Now() + dt.timedelta(seconds=seconds)
    RememberedError.objects.update_or_create(
        blueprint_id=resource.blueprint_id, scope=scope.value, key=key,
        defaults={"code": answer.code[:128], "message": answer.message[:2000], "until": until, "created_at": Now()},
    )  # fmt: skip


def _with_others(resource: Resource, answer: Failed) -> Failed:
    """Return the failure, with scope OPERATOR if the provider refused several types of the blueprint for one reason."""
    alike = list(
        RememberedError.objects.filter(
            Q(until=None) | Q(until__gt=Now()),
            blueprint_id=resource.blueprint_id,
            scope=Scope.OFFER,
            code=answer.code[:128],
        ).values_list("key", "created_at")
    )
    first = min((at for _, at in alike), default=None)
    built = Resource.objects.filter(blueprint_id=resource.blueprint_id, state=ResourceState.ACTIVE)
    built_since = first is not None and built.filter(created_at__gt=first).exists()
    types = {type_in(resource.offer), *(type_in(key) for key, _ in alike)}
    if resource.offer and not is_requests(types, built_since=built_since):
        return answer
    message = f"Refused in the same way for {', '.join(sorted(types))}: {answer.message}"
    return replace(answer, scope=Scope.OPERATOR, remember=None, message=message)


def leads_elsewhere(resource: Resource, answer: Failed) -> bool:
    """Return whether the provider refused only this offer, zone or location, so that other offers may succeed.

    If so, trying the next offer does not count as one of the lease's attempts, because every offer that failed is
    excluded anyway.
    """
    definite = answer.scope in (Scope.OFFER, Scope.ZONE, Scope.LOCATION) and answer.code not in _UNCLEAR
    return bool(resource.offer) and definite


_UNCLEAR = ("retries", "deadline", "need")


def forget(resource: Resource) -> None:
    """Forget the remembered error that excluded a resource's offer, because a machine was built from that offer."""
    RememberedError.objects.filter(blueprint_id=resource.blueprint_id, key=resource.offer, scope="offer").delete()


_MENDED = """
    DELETE FROM blueprints_rememberederror d USING blueprints_blueprint c
    WHERE c.id = d.blueprint_id AND d.id = ANY(ARRAY(
        SELECT e.id FROM blueprints_rememberederror e JOIN blueprints_blueprint b ON b.id = e.blueprint_id
        WHERE b.kind = %s AND b.config ->> 'credential' = %s AND e.scope = 'operator' AND e.code = ANY(%s)
            AND e.created_at < clock_timestamp() - interval '30 s' ORDER BY e.id FOR UPDATE OF e SKIP LOCKED))
    RETURNING c.id, c.resource_type"""


def mended(kind: str, credential: str, codes: Iterable[str]) -> None:
    """Forget errors that an invalid credential caused, because a poll with the credential succeeds again.

    Errors of the last half minute are kept. Otherwise a call that fails for another reason would be repeated
    constantly.
    """
    for blueprint_id, resource_type in rows(_MENDED, (kind, credential, list(codes))):
        message = f"The credential {credential} works again. Calls that were refused with it are tried again."
        record_event("credential.mended", message, blueprint_id=blueprint_id)
        hints.send("serve", resource_type)


ALIKE = 3
"""Number of types refused with the same code from which on the request, not the types, is considered invalid."""


def is_requests(types: Collection[str], *, built_since: bool) -> bool:
    """Return whether these instance types were refused because the blueprint's config makes every request invalid.

    This is assumed if enough instance types were refused with the same code, unless the blueprint has built something
    since the first refusal.
    """
    return len(set(types)) >= ALIKE and not built_since
