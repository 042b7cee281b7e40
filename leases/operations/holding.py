"""What an owner does with leases: look, extend, beat, hold for debugging, try again, release."""

from __future__ import annotations

import datetime as dt
from collections.abc import Collection
from typing import Any

from django.db.models import Q

from drydock.core.errors import Conflict, InvalidRequest, NotAllowed, NotFound
from drydock.core.units import duration, in_words
from leases import hints
from leases.client.values import LeaseInfo
from leases.engine.core.database import rows, run
from leases.engine.core.transitions import record_event
from leases.engine.lifecycle import release as lease_release
from leases.given import checked
from leases.models import Lease
from leases.operations import reading
from leases.operations.callers import Caller, lease_of, not_theirs, on_behalf, own_leases
from leases.operations.extending import extend as extend
from leases.reasons import Reason
from leases.states import UNFINISHED, LeaseState

OVER = ("destroyed", "broken")


def moved(lease_id: int, known: LeaseInfo | None) -> bool:
    """Whether a lease differs in state, reason or sentence from what is known: one cheap statement, for polling.

    Of one that waits only the state is compared: why it waits is computed, and costs more.
    """
    if known is None:
        return True
    found = rows("SELECT state, reason, message FROM leases_lease WHERE id = %s", (lease_id,))
    if not found or known.waiting is not None:
        return not found or found[0][0] != known.state
    return found[0] != (known.state, known.reason, known.message)


@checked
def get(who: Caller, lease_id: int) -> LeaseInfo:
    """One lease. Raises NotFound."""
    return reading.lease(lease_of(who, lease_id, related=True), who)


@checked
def named(who: Caller, name: str) -> int:
    """The id of a lease by its name: the caller's own live one, else the newest that has ended; for operators also
    that of another owner, where one live lease alone has the name. Raises NotFound, Conflict."""
    own = Lease.objects.filter(owner_id=who.id, name=name, need="").order_by("-id")
    first = own.filter(state__in=UNFINISHED).first()
    if first is None and who.operator:
        others = list(Lease.objects.filter(name=name, need="", state__in=UNFINISHED).order_by("id")[:2])
        if len(others) > 1:
            raise Conflict(
                f"Several owners have a lease named {name!r}.", field="lease",
                hint=f"Give its number: drydock leases --name {name}",
            )  # fmt: skip
        first = others[0] if others else None
    first = first or own.first()
    if first is None:
        raise NotFound(f"{name!r} is not a lease number or name.", field="lease", hint="`drydock leases` lists them.")
    return int(first.pk)


@checked
def list_(
    who: Caller, *, owner: Any = None, states: Collection[str] = UNFINISHED, type_: str = "",
    resource: int | None = None, group: int | None = None, label: str = "", name: str = "",
    ids: Collection[int] | None = None, held: bool = False, limit: int = 200, before: int | None = None,
) -> list[LeaseInfo]:  # fmt: skip
    """Leases, newest first; only those the caller may see. `label` is `key` or `key=value`.

    `held` also lists what leases and resources hold themselves. `before`: only ids below it, to page on.
    """
    for state in states or ():
        if state not in tuple(LeaseState):
            raise InvalidRequest(
                f"There is no state {state!r}.", field="state", hint=f"There are: {', '.join(LeaseState)}."
            )
    found = own_leases(who)
    if owner is not None:
        found = found.filter(owner_id=on_behalf(who, owner).id)
    if not held:
        found = found.filter(for_resource=None, for_lease=None)
    key, equal, value = label.partition("=")
    labelled = Q() if not label else Q(labels__contains={key: value}) if equal else Q(labels__has_key=key)
    chosen = {
        "state__in": states or None, "type": type_ or None, "resource_id": resource, "group_id": group,
        "name": name or None, "id__in": ids, "id__lt": before,
    }  # fmt: skip
    found = found.filter(labelled, **{column: value for column, value in chosen.items() if value is not None})
    return reading.leases(found.order_by("-id")[: max(1, min(limit, 1000))], who)


_STANDING = """
    SELECT state, owner_id IS NOT DISTINCT FROM %s, need, for_lease_id, for_resource_id
    FROM leases_lease WHERE id = %s"""


@checked
def release(who: Caller, lease_id: int, *, message: str = "") -> None:
    """End a lease, or cancel one that is not active yet; one that has ended is fine.

    Inside a caller's transaction only the wish is written. Raises NotFound, and Conflict for what another lease
    or a resource holds, unless an operator asks.
    """
    found = rows(_STANDING, (who.id, lease_id), hot=True)
    if not found or not (found[0][1] or who.operator):
        raise not_theirs(lease_id)
    state, own, need, for_lease, for_resource = found[0]
    if need and not who.operator:
        holder = f"lease {for_lease}" if for_lease else f"resource {for_resource}"
        raise Conflict(f"Lease {lease_id} is held by {holder} and ends with it.", hint="Release that one.")
    if state in OVER:
        return
    reason = Reason.CANCELLED if state in ("pending", "acquired") else Reason.OWNER if own else Reason.OPERATOR
    lease_release.release(lease_id, reason=reason, actor=who.actor, message=message)


_BEAT = """
    UPDATE leases_lease SET heartbeat_at = clock_timestamp() WHERE id = %s AND state IN ('acquired', 'active')
        AND heartbeat_limit IS NOT NULL AND release_wanted = '' AND (until IS NULL OR until > clock_timestamp())
        AND heartbeat_at + heartbeat_limit > clock_timestamp()"""


@checked
def heartbeat(who: Caller, lease_id: int) -> None:
    """Say that the owner lives. Raises NotFound, and Conflict when it came too late or none is expected."""
    lease = lease_of(who, lease_id)
    if run(_BEAT, (lease_id,)):
        return
    if lease.heartbeat_limit is None:
        raise Conflict(f"Lease {lease_id} expects no heartbeats.", hint="Ask for it with heartbeat_limit.")
    if lease.state in ("acquired", "active"):
        raise Conflict(f"The heartbeat came too late: lease {lease_id} is lost.")
    what = "waits for its grant" if lease.state == "pending" else "has ended"
    raise Conflict(f"Lease {lease_id} {what}; it takes no heartbeat.")


LONGEST_HOLD = dt.timedelta(days=7)


@checked
def hold(
    who: Caller, lease_id: int, *, ttl: str | float | dt.timedelta | None = None, reason: str = ""
) -> dt.datetime | None:
    """Keep the resource as it is after the lease's end, for debugging, for `ttl` from now; the end of the hold.

    An owner may hold up to seven days (one when nothing is said), an operator without end. Raises NotFound,
    InvalidRequest, and Conflict when it was cleaned already.
    """
    lease_of(who, lease_id)
    span = duration(ttl, field="ttl") if ttl is not None else None if who.operator else dt.timedelta(days=1)
    if span is not None and span > LONGEST_HOLD and not who.operator:
        raise InvalidRequest(f"An owner may hold for at most {in_words(LONGEST_HOLD)}.", field="ttl")
    held = rows(
        "UPDATE leases_lease l SET held = TRUE, hold_until = clock_timestamp() + %s::interval WHERE id = %s AND"
        " (state IN ('pending', 'acquired', 'active') OR (state = 'released' AND held"
        " AND NOT EXISTS (SELECT FROM leases_run n WHERE n.lease_id = l.id))) RETURNING hold_until",
        (span, lease_id),
    )
    if not held:
        raise Conflict(f"Lease {lease_id} has ended and is cleaned, or being cleaned.")
    for_how_long = "without end" if span is None else f"for {in_words(span)}"
    record_event(
        "lease.held", f"Held {for_how_long}. {reason}".strip(), actor=who.actor, lease_id=lease_id, reason=Reason.HELD
    )
    return held[0][0]  # type: ignore[no-any-return]


@checked
def unhold(who: Caller, lease_id: int) -> None:
    """End the hold; when the lease has ended meanwhile, it is cleaned now. Raises NotFound."""
    lease = lease_of(who, lease_id)
    if not lease.held:
        return
    run("UPDATE leases_lease SET held = FALSE, hold_until = NULL WHERE id = %s", (lease_id,))
    record_event("lease.unheld", "The hold has ended.", actor=who.actor, lease_id=lease_id)
    hints.after_commit("end", lease_id)


@checked
def retry(who: Caller, lease_id: int) -> None:
    """Look for room, or try the step that waits for its next try, now. Raises NotFound, Conflict."""
    lease = lease_of(who, lease_id)
    if lease.state in OVER:
        raise Conflict(f"Lease {lease_id} has ended.")
    run("UPDATE leases_lease SET parked = FALSE, due_at = NULL WHERE id = %s AND state = 'pending'", (lease_id,))
    woken = rows(
        "UPDATE leases_run SET due_at = clock_timestamp() WHERE due_at > clock_timestamp()"
        " AND (lease_id = %s OR (lease_id IS NULL AND resource_id = %s)) RETURNING id",
        (lease_id, lease.resource_id),
    )
    record_event("lease.retry", "Tried again now.", actor=who.actor, lease_id=lease_id)
    for (run_id,) in woken:
        hints.after_commit("step", run_id)
    hints.after_commit("serve", lease.type)


@checked
def private_key(who: Caller, lease_id: int) -> str:
    """The private half of the key pair generated for the lease: to its owner alone, and recorded.

    Raises NotFound, also for operators who do not own it, and when there is none; NotAllowed with a token that
    somebody else made: it is not the owner who asks.
    """
    if who.maker:
        raise NotAllowed(
            f"This token was made by {who.maker}, and a private key is shown to {who.name} alone.",
            hint="Use a token that the owner has made.",
        )
    lease = Lease.objects.filter(pk=lease_id, owner_id=who.id).first()
    if lease is None:
        raise NotFound(f"No lease {lease_id}, or it is not yours.", field="lease")
    if lease.state != "active":
        raise Conflict(f"Lease {lease_id} is not active.")
    key = (lease.secrets or {}).get("private_key")
    if not key:
        raise NotFound(f"Lease {lease_id} has no generated key.", hint="Its kind makes none, or you gave your own.")
    record_event(
        "lease.key_shown", "The generated private key was shown to the owner.", actor=who.actor, lease_id=lease_id
    )
    return str(key)
