"""Authorizations and quotas: which blueprints users may use, and how much they may hold."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Mapping
from typing import Any

from django.contrib.auth.models import Group
from django.db import transaction
from django.db.models import Q
from django.db.models.functions import Now

from blueprints.models import Blueprint
from drydock.core.errors import InvalidRequest, NotFound
from drydock.core.units import duration, written
from drydock_client.values import AuthorizationInfo, QuotaInfo, QuotaLimit
from leases import owners
from leases.engine.core.database import leases_by_id, rows
from leases.engine.core.transitions import record_event
from leases.messaging import hints
from leases.models import Authorization, Quota
from leases.operations.blueprints import refuse_longer_default
from leases.operations.callers import Caller, operator_only
from leases.reasons import Reason
from leases.validation.input_checks import checked

AMOUNTS = ("max_leases", "max_slots", "max_cpu_millicores", "max_ram_mib", "max_disk_mib")

SPANS = ("default_ttl", "max_ttl")

_CLASS = re.compile(r"[A-Za-z0-9][A-Za-z0-9._:/-]*\Z")

EXTRA = "max_extra"
"""The limits of additional classes of capacity, by their names."""

LIMITS = (*AMOUNTS, EXTRA, *SPANS)


def _blueprint(name: str) -> Blueprint:
    found = Blueprint.objects.filter(name=name).first()
    if found is None:
        raise NotFound(f"Blueprint {name!r} does not exist.", field="blueprint")
    return found


def _holder(user: Any, group: str) -> dict[str, Any]:
    if bool(user) == bool(group):
        raise InvalidRequest("Name either a user or a group.", field="user")
    if user:
        return {"user": owners.find_owner(user), "group": None}
    found = Group.objects.filter(name=group).first()
    if found is None:
        raise NotFound(f"Group {group!r} does not exist.", field="group")
    return {"user": None, "group": found}


@checked
def authorizations(who: Caller, *, blueprint: str = "", state: str = "") -> list[AuthorizationInfo]:
    """Return the authorizations of the caller and the caller's groups. An operator gets all authorizations."""
    found = Authorization.objects.select_related("blueprint", "user", "group", "decided_by").order_by("id")
    if not who.operator:
        found = found.filter(Q(user_id=who.id) | Q(group__user=who.id)).distinct()
    chosen = {"blueprint__name": blueprint, "state": state}
    return [_info(row) for row in found.filter(**{column: value for column, value in chosen.items() if value})]


def _info(row: Authorization) -> AuthorizationInfo:
    return AuthorizationInfo(
        id=row.pk, blueprint=row.blueprint.name, user="" if row.user is None else row.user.get_username(),
        group="" if row.group is None else row.group.name, state=row.state, note=row.note,
        decided_by="" if row.decided_by is None else row.decided_by.get_username(), created_at=row.created_at,
    )  # fmt: skip


@checked
def authorization(who: Caller, authorization_id: int) -> AuthorizationInfo:
    """Return an authorization by its id. Raises NotFound.

    Operators may see any authorization, other callers only those for themselves and their groups.
    """
    return _info(_row(who, authorization_id))


def _row(who: Caller, authorization_id: int) -> Authorization:
    found = Authorization.objects.select_related("blueprint", "user", "group", "decided_by").filter(pk=authorization_id)
    if not who.operator:
        found = found.filter(Q(user_id=who.id) | Q(group__user=who.id))
    row = found.first()
    if row is None:
        raise NotFound(f"Authorization {authorization_id} does not exist or is not yours.", field="authorization")
    return row


@checked
def settle(who: Caller, authorization_id: int, *, allow: bool, message: str = "") -> AuthorizationInfo:
    """Authorize or decline a request for a blueprint, or change an earlier decision. Raises NotFound, NotAllowed."""
    operator_only(who, "decide about authorizations")
    row = _row(who, authorization_id)
    state = Authorization.State.AUTHORIZED if allow else Authorization.State.DECLINED
    holder = {"user": row.user, "group": None} if row.user is not None else {"user": None, "group": row.group}
    return _written(who, row.blueprint, holder, message, state)


@checked
def ask(who: Caller, blueprint: str, *, message: str = "") -> AuthorizationInfo:
    """Request permission to use a blueprint. If an authorization already exists, return that one. Raises NotFound."""
    found = _blueprint(blueprint)
    with transaction.atomic():
        row, fresh = Authorization.objects.get_or_create(
            blueprint=found, user_id=who.id, group=None, defaults={"note": message}
        )
        if fresh:
            record_event(
                "authorization.requested", message, actor=who.actor, blueprint_id=found.pk, details={"user": who.name}
            )
            hints.after_commit("serve", found.resource_type)
    return _info(row)


@checked
def authorize(
    who: Caller, blueprint: str, *, user: Any = None, group: str = "", message: str = ""
) -> AuthorizationInfo:
    """Allow a user or a group to use a blueprint, even without a request.

    Pending leases of these users are decided again.
    """
    return _decide(who, blueprint, user, group, message, Authorization.State.AUTHORIZED)


@checked
def decline(who: Caller, blueprint: str, *, user: Any = None, group: str = "", message: str = "") -> AuthorizationInfo:
    """Decline a request for a blueprint, or withdraw an authorization. Existing leases are not affected."""
    return _decide(who, blueprint, user, group, message, Authorization.State.DECLINED)


def _decide(who: Caller, blueprint: str, user: Any, group: str, message: str, state: str) -> AuthorizationInfo:
    operator_only(who, "decide about authorizations")
    return _written(who, _blueprint(blueprint), _holder(user, group), message, state)


def _written(who: Caller, found: Blueprint, holder: dict[str, Any], message: str, state: str) -> AuthorizationInfo:
    decided = {"state": state, "decided_by_id": who.id, "decided_at": Now()}
    if message:
        decided["note"] = message
    with transaction.atomic():
        row, _ = Authorization.objects.update_or_create(blueprint=found, **holder, defaults=decided)
        name = str(holder["user"] or holder["group"])
        record_event(
            f"authorization.{state}", message, actor=who.actor, blueprint_id=found.pk, details={"holder": name}
        )
        hints.after_commit("serve", found.resource_type)
    return _info(Authorization.objects.select_related("blueprint", "user", "group", "decided_by").get(pk=row.pk))


def quotas(who: Caller) -> list[QuotaInfo]:
    """Return the quotas that limit the caller. An operator gets all quotas."""
    found = Quota.objects.select_related("user", "group").order_by("id")
    if not who.operator:
        found = found.filter(Q(user_id=who.id) | Q(group__user=who.id)).distinct()
    return [_quota(row) for row in found]


def _quota(row: Quota) -> QuotaInfo:
    return QuotaInfo(
        user="" if row.user is None else row.user.get_username(), group="" if row.group is None else row.group.name,
        **{limit: getattr(row, limit) for limit in LIMITS},
    )  # fmt: skip


@checked
def set_quota(who: Caller, *, user: Any = None, group: str = "", limits: Mapping[str, QuotaLimit]) -> QuotaInfo:
    """Set the given limits in the quota of a user or a group. A limit of None is removed, also inside `max_extra`.

    Leases that waited for the quota are tried again. Raises InvalidRequest, NotFound, NotAllowed.
    """
    operator_only(who, "set quotas")
    if not limits:
        raise InvalidRequest("Give at least one limit.", field="max_leases")
    wanted = {limit: _limit(limit, value) for limit, value in limits.items()}
    holder = _holder(user, group)
    with transaction.atomic():
        if wanted.get(EXTRA):
            before = Quota.objects.select_for_update().filter(**holder).values_list(EXTRA, flat=True).first() or {}
            wanted[EXTRA] = {name: n for name, n in {**before, **wanted[EXTRA]}.items() if n is not None}
        row, _ = Quota.objects.update_or_create(**holder, defaults=wanted)
        refuse_longer_default(row.default_ttl, row.max_ttl)
        said = {limit: written(value) if isinstance(value, dt.timedelta) else value for limit, value in wanted.items()}
        record_event("quota.set", f"{row}", actor=who.actor, details={"limits": said})
    _unpark(row)
    return _quota(row)


def _limit(limit: str, value: Any) -> Any:
    if limit not in LIMITS:
        raise InvalidRequest(
            f"Limit {limit!r} does not exist.", field=limit, hint=f"Choose one of: {', '.join(LIMITS)}."
        )
    if limit == EXTRA:
        return extra_limits(value)
    if value is None or limit in SPANS:
        return None if value is None else duration(value, field=limit)
    if not isinstance(value, int) or not 0 <= value < 1 << 31:
        raise InvalidRequest("A limit must be an integer of at least 0.", field=limit)
    return int(value)


def extra_limits(value: Any) -> dict[str, int | None]:
    """Check limits on additional classes of capacity, and return a mapping from class to limit.

    For None, returns {}, which removes all of these limits.
    """
    if not isinstance(value, Mapping | None):
        raise InvalidRequest('These limits are an object, such as {"gpu": 4}.', field=EXTRA)
    for name, most in (value or {}).items():
        if not isinstance(name, str) or len(name) > 63 or not _CLASS.match(name) or f"max_{name}" in AMOUNTS:
            raise InvalidRequest(f"{name!r} is not a valid name of an additional class of capacity.", field=EXTRA)
        if most is not None:
            _limit("max_slots", most)
    return dict(value or {})


@checked
def remove_quota(who: Caller, *, user: Any = None, group: str = "") -> None:
    """Remove the quota of a user or a group. Leases that waited for the quota are tried again.

    Raises InvalidRequest, NotFound, NotAllowed.
    """
    operator_only(who, "remove quotas")
    holder = _holder(user, group)
    with transaction.atomic():
        row = Quota.objects.filter(**holder).first()
        if row is None:
            raise NotFound(f"{holder['user'] or holder['group']} has no quota.", field="user")
        record_event("quota.removed", f"{row}", actor=who.actor)
        Quota.objects.filter(pk=row.pk).delete()
    _unpark(row)


_PARKED = "parked AND state = 'pending' AND reason = %s AND (owner_id = %s OR charged_group_id = %s)"


def _unpark(row: Quota) -> None:
    """Unpark the leases that wait for a quota.

    Call after the quota was committed, because a claim locks leases before quotas and reads committed rows.
    """
    found = rows(
        f"UPDATE leases_lease SET parked = FALSE WHERE {leases_by_id(_PARKED)} RETURNING type",
        (Reason.WAITING_QUOTA, row.user_id, row.group_id),
    )
    for resource_type in sorted({kind for (kind,) in found}):
        hints.after_commit("serve", resource_type)
