"""Remembered failures: what failed is not tried again for a while, so that the next candidate is."""

from __future__ import annotations

import datetime as dt

from django.conf import settings
from django.db.models.functions import Now

from blueprints.answers import Failed, Scope
from blueprints.models import RememberedError
from leases.models import Resource


def _seconds(scope: Scope) -> float | None:
    """How long a failure of this scope is remembered, unless the kind says otherwise; None: until an operator acts."""
    return None if scope is Scope.OPERATOR else getattr(settings.DRYDOCK, f"remember_{scope.value}_seconds")


def remember(resource: Resource, answer: Failed) -> None:
    """Keep a failure so that the next candidate is tried and this one not, for a while."""
    scope = answer.scope
    if scope in (Scope.STEP, Scope.OFFER):
        scope, key = (Scope.OFFER, resource.offer) if resource.offer else (Scope.BLUEPRINT, "")
    else:
        key = resource.zone if scope is Scope.ZONE else ""
    seconds = answer.remember if answer.remember is not None else _seconds(answer.scope)
    until = None if seconds is None else Now() + dt.timedelta(seconds=seconds)
    RememberedError.objects.update_or_create(
        blueprint_id=resource.blueprint_id, scope=scope.value, key=key,
        defaults={"code": answer.code[:128], "message": answer.message[:2000], "until": until},
    )  # fmt: skip


def leads_elsewhere(resource: Resource, answer: Failed) -> bool:
    """The provider said no to this offer, and there may be others: going through them uses up none of a lease's
    tries, as each is left aside once it has failed."""
    definite = answer.scope in (Scope.OFFER, Scope.ZONE) and answer.code not in _UNCLEAR
    return bool(resource.offer) and definite


_UNCLEAR = ("retries", "deadline", "need")


def forget(resource: Resource) -> None:
    """It could be built after all."""
    RememberedError.objects.filter(blueprint_id=resource.blueprint_id, key=resource.offer, scope="offer").delete()
