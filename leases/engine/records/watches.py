"""Watches of providers: who watches which place, and the steps that a change wakes.

A watch is held with a token that expires, so that another worker goes on from the stored bookmark if this one dies.
"""

from __future__ import annotations

import uuid
from collections.abc import Sequence
from dataclasses import dataclass

from django.conf import settings

from blueprints import registry
from blueprints.contract import Watches
from blueprints.models import Blueprint
from blueprints.watches import Changes, WatchFailed
from drydock.core.errors import DrydockError
from drydock.core.logging import redact
from leases.engine.core import installation, specs
from leases.engine.core.database import failpoint, rows, run, short
from leases.messaging import hints


class TokenLost(Exception):
    """Another worker watches the place, or nothing uses it any more. Nothing was stored."""


@dataclass(frozen=True, order=True)
class Key:
    """What one watch covers."""

    kind: str
    credential: str
    place: str


def wanted() -> dict[Key, int]:
    """Return what is to be watched for enabled blueprints, and the id of one blueprint that uses it."""
    found: dict[Key, int] = {}
    for blueprint in Blueprint.objects.filter(kind__in=_kinds(), enabled=True, removed_at=None).order_by("pk"):
        for key in _keys(blueprint):
            found.setdefault(key, blueprint.pk)
    return found


def _kinds() -> list[str]:
    found = []
    for name in registry.names():
        try:
            if isinstance(registry.kind(name), Watches):
                found.append(name)
        except registry.KindBroken:
            continue
    return found


def _keys(blueprint: Blueprint) -> list[Key]:
    """Return what a blueprint's kind watches; nothing if its config cannot be read."""
    kind = registry.kind(blueprint.kind)
    if not isinstance(kind, Watches):
        return []
    try:
        config = specs.config(blueprint.kind, blueprint.config)
    except DrydockError:
        return []
    return [Key(blueprint.kind, one.credential, one.name) for one in kind.watched(config)]


@short
def arrange(keys: Sequence[Key]) -> None:
    """Make a row for everything to be watched, and delete the rows of what is not watched any more."""
    columns = [[getattr(key, name) for key in sorted(keys)] for name in ("kind", "credential", "place")]
    given = "SELECT * FROM unnest(%s::text[], %s::text[], %s::text[])"
    run(f"INSERT INTO leases_providerwatch (kind, credential, place) {given} ON CONFLICT DO NOTHING", columns)
    run(f"DELETE FROM leases_providerwatch WHERE (kind, credential, place) NOT IN ({given})", columns)


_TAKE = """
    UPDATE leases_providerwatch SET token = %s, token_until = clock_timestamp() + %s * interval '1 s', worker = %s,
        started_at = clock_timestamp()
    WHERE kind = %s AND credential = %s AND place = %s AND (token IS NULL OR token_until < clock_timestamp())"""
_KEEP = """
    UPDATE leases_providerwatch SET token_until = clock_timestamp() + %s * interval '1 s' WHERE token = ANY(%s)
    RETURNING token"""
_STORED = """
    UPDATE leases_providerwatch SET bookmark = %s, message = '', failing_since = NULL,
        event_at = CASE WHEN %s THEN clock_timestamp() ELSE event_at END,
        listed_at = CASE WHEN %s THEN clock_timestamp() ELSE listed_at END
    WHERE token = %s AND token_until > clock_timestamp()"""
_FAILED = """
    UPDATE leases_providerwatch SET bookmark = %s, message = %s,
        failing_since = coalesce(failing_since, clock_timestamp())
    WHERE token = %s AND token_until > clock_timestamp()"""
# A run in a call is called again after it, because the call may have read the earlier state. One that failed keeps its
# pause. A run that waits for leases or a person is not due, and stays so.
_WAKE = """
    UPDATE leases_run n SET woken = n.token IS NOT NULL,
        due_at = CASE WHEN n.token IS NULL THEN least(n.due_at, clock_timestamp()) ELSE n.due_at END
    FROM (SELECT id FROM leases_run WHERE resource_id = ANY(%s) AND due_at IS NOT NULL AND waits_for = '' AND tries = 0
        ORDER BY id FOR NO KEY UPDATE) f
    WHERE n.id = f.id RETURNING n.id"""


def take(key: Key, worker: str) -> uuid.UUID | None:
    """Take the token of a watch, or return None if another worker has it."""
    token = uuid.uuid4()
    term = settings.DRYDOCK.step_token_seconds
    return token if run(_TAKE, (token, term, worker, key.kind, key.credential, key.place)) else None


def keep(tokens: Sequence[uuid.UUID]) -> set[uuid.UUID]:
    """Extend tokens by their full term. Return those that are still valid."""
    return {token for (token,) in rows(_KEEP, (settings.DRYDOCK.step_token_seconds, list(tokens)))}


def release(tokens: Sequence[uuid.UUID]) -> None:
    """Give tokens back, so that another worker can go on at once."""
    run(
        "UPDATE leases_providerwatch SET token = NULL, token_until = NULL, worker = '', started_at = NULL"
        " WHERE token = ANY(%s)",
        (list(tokens),),
    )


def bookmark(token: uuid.UUID) -> str:
    """Return the stored bookmark. Raises TokenLost."""
    found = rows("SELECT bookmark FROM leases_providerwatch WHERE token = %s", (token,))
    if not found:
        raise TokenLost
    return str(found[0][0])


def store(token: uuid.UUID, news: Changes) -> int:
    """Wake the steps that wait for these objects, and store the bookmark with it. Return the number of runs.

    Objects without a valid proof of this installation wake nothing. Raises TokenLost; nothing is stored then.
    """
    here = installation.current().short
    proofs = (installation.proven(one.tags, here) for one in news.objects)
    return _store(token, news, sorted({one.resource for one in proofs if one is not None}))


@short
def _store(token: uuid.UUID, news: Changes, resources: list[int]) -> int:
    woken = rows(_WAKE, (resources,)) if resources else []
    failpoint("watch.woken")
    changed = bool(news.objects) and not news.listed
    if not run(_STORED, (news.bookmark, changed, news.listed, token)):
        raise TokenLost
    for (run_id,) in woken:
        hints.after_commit("step", run_id)
    return len(woken)


def failed(token: uuid.UUID, news: WatchFailed) -> None:
    """Store why the watch fails, and from where it resumes. Raises TokenLost."""
    if not run(_FAILED, (news.bookmark, redact(news.message)[:2000], token)):
        raise TokenLost


_COVERS = """
    SELECT count(*) FROM leases_providerwatch WHERE (kind, credential, place) IN
        (SELECT * FROM unnest(%s::text[], %s::text[], %s::text[]))
    AND token_until > clock_timestamp() AND bookmark <> '' AND failing_since IS NULL AND listed_at IS NOT NULL"""


def covers(blueprint: Blueprint) -> bool:
    """Return whether everything that the kind watches for a blueprint is being watched without an error now."""
    keys = set(_keys(blueprint))
    columns = [[getattr(key, name) for key in keys] for name in ("kind", "credential", "place")]
    return bool(keys) and int(rows(_COVERS, columns)[0][0]) == len(keys)
