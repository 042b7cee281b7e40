"""Watches of providers: which worker watches which place, and which steps and checks a change makes due.

A watch is held under a token that expires, so that another worker goes on from the stored bookmark if this one dies.
Nothing depends on watches: without one, steps and checks are due as they are for kinds that watch nothing.
"""

from __future__ import annotations

import json
import uuid
from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from django.conf import settings

from blueprints import registry
from blueprints.answers import Json, Wait
from blueprints.contract import Watches
from blueprints.models import Blueprint
from blueprints.specs import Owned
from blueprints.watches import Changes
from drydock.core.errors import DrydockError
from drydock.core.logging import redact
from leases.engine.core import installation, specs
from leases.engine.core.database import rows, run, short, single
from leases.messaging import hints


class TokenLost(Exception):
    """Another worker watches the place, or nothing uses it any more. Nothing was stored."""


@dataclass(frozen=True, order=True)
class Key:
    """What one watch covers."""

    kind: str
    credential: str
    place: str


def wanted() -> dict[Key, list[int]]:
    """Return what is to be watched for enabled blueprints, each with the ids of the blueprints that use it."""
    found: dict[Key, list[int]] = {}
    for blueprint in _blueprints(_kinds()):
        for key in keys_of(blueprint):
            found.setdefault(key, []).append(blueprint.pk)
    return found


def _blueprints(kinds: Iterable[str]) -> Iterable[Blueprint]:
    return Blueprint.objects.filter(kind__in=list(kinds), enabled=True, removed_at=None).order_by("pk")


def _kinds() -> list[str]:
    """Return the installed kinds that watch."""
    found = []
    for name in registry.names():
        try:
            if isinstance(registry.kind(name), Watches):
                found.append(name)
        except registry.KindBroken:
            continue
    return found


def keys_of(blueprint: Blueprint) -> list[Key]:
    """Return what a blueprint's kind watches; nothing if its config cannot be read, or the kind is not installed."""
    try:
        kind, config = registry.kind(blueprint.kind), specs.config(blueprint.kind, blueprint.config)
    except DrydockError:
        return []
    if not isinstance(kind, Watches):
        return []
    return [Key(blueprint.kind, one.credential, one.name) for one in kind.watched(config)]


_GIVEN = "SELECT * FROM unnest(%s::text[], %s::text[], %s::text[])"
_UNUSED = f"""
    DELETE FROM leases_providerwatch WHERE (kind, credential, place) NOT IN ({_GIVEN})
        AND (kind = ANY(%s) OR kind NOT IN (SELECT kind FROM blueprints_blueprint WHERE removed_at IS NULL))"""
"""Workers that lack a kind of others leave its watches alone."""


def arrange(keys: Iterable[Key]) -> None:
    """Make a row for everything that is to be watched, and delete the rows of what is not watched any more."""
    there = {Key(*one) for one in rows("SELECT kind, credential, place FROM leases_providerwatch")}
    wished = set(keys)
    if new := wished - there:
        run(
            f"INSERT INTO leases_providerwatch (kind, credential, place) {_GIVEN} ON CONFLICT DO NOTHING", _columns(new)
        )
    if there - wished:
        run(_UNUSED, [*_columns(wished), _kinds()])


def _columns(keys: Iterable[Key]) -> list[list[str]]:
    ordered = sorted(keys)
    return [[getattr(key, name) for key in ordered] for name in ("kind", "credential", "place")]


_TAKE = """
    UPDATE leases_providerwatch SET token = %s, token_until = clock_timestamp() + %s * interval '1 s', worker = %s,
        started_at = clock_timestamp()
    WHERE kind = %s AND credential = %s AND place = %s AND (token IS NULL OR token_until < clock_timestamp())"""
_KEEP = """
    UPDATE leases_providerwatch SET token_until = clock_timestamp() + %s * interval '1 s' WHERE token = ANY(%s)
    RETURNING token"""
_RELEASE = """
    UPDATE leases_providerwatch SET token = NULL, token_until = NULL, worker = '', started_at = NULL
    WHERE token = ANY(%s)"""


def take(key: Key, worker: str) -> uuid.UUID | None:
    """Take the token of a watch, or return None if another worker has it."""
    token = uuid.uuid4()
    term = settings.DRYDOCK.step_token_seconds
    return token if run(_TAKE, (token, term, worker, key.kind, key.credential, key.place)) else None


def keep(tokens: Sequence[uuid.UUID]) -> set[uuid.UUID]:
    """Extend tokens by their full term. Return those that are still valid."""
    if not tokens:
        return set()
    return {token for (token,) in rows(_KEEP, (settings.DRYDOCK.step_token_seconds, list(tokens)))}


def release(tokens: Sequence[uuid.UUID]) -> None:
    """Give tokens back, so that another worker can go on at once."""
    if tokens:
        run(_RELEASE, (list(tokens),))


def bookmark(token: uuid.UUID) -> str:
    """Return the stored bookmark. Raises TokenLost."""
    found = rows("SELECT bookmark FROM leases_providerwatch WHERE token = %s", (token,))
    if not found:
        raise TokenLost
    return str(found[0][0])


# A run in a call is called again after it, because the call may have read the earlier state. One that failed keeps its
# pause. A run that waits for leases or a person is not due, and stays so. Changes within `_SOONEST` seconds after a wake
# are one wake, at the end of that time: `woken_at` is the time of the last wake, or of the next one. The step gets the
# latest progress, unless it was due for another reason as well, or any change in this wake came without: it reads then.
_SOONEST = 0.5
_WAKE = f"""
    UPDATE leases_run n SET woken = n.token IS NOT NULL, woken_at = f.at,
        progress = CASE WHEN n.token IS NULL
                AND (n.progress <> '[]' OR n.progress IS NULL AND n.due_at > clock_timestamp())
            THEN coalesce(%(progress)s::jsonb -> n.resource_id::text, '[]') ELSE '[]' END,
        progress_at = f.at,
        due_at = CASE WHEN n.token IS NULL THEN least(n.due_at, f.at) ELSE n.due_at END
    FROM (SELECT id, CASE WHEN woken_at > clock_timestamp()
                THEN least(woken_at, clock_timestamp() + {_SOONEST} * interval '1 s')
            ELSE greatest(clock_timestamp(), woken_at + {_SOONEST} * interval '1 s') END AS at
        FROM leases_run WHERE {{which}} AND due_at IS NOT NULL
            AND (token IS NOT NULL OR waits_for = '' AND tries = 0)
        ORDER BY id FOR NO KEY UPDATE) f
    WHERE n.id = f.id RETURNING n.id, f.at <= clock_timestamp() AS now"""
# The parts are carried out in this order, as each reads the one before: without the token, nothing is changed.
_STORE = f"""
    WITH held AS (
        UPDATE leases_providerwatch SET bookmark = %(bookmark)s, message = '', failing_since = NULL,
            event_at = CASE WHEN %(changed)s THEN clock_timestamp() ELSE event_at END,
            listed_at = CASE WHEN %(listed)s THEN clock_timestamp() ELSE listed_at END
        WHERE token = %(token)s AND token_until > clock_timestamp()
            AND (NOT %(changed)s OR set_config('synchronous_commit', 'off', TRUE) = 'off') RETURNING id
    ), rechecked AS (
        UPDATE leases_resource SET changed = TRUE WHERE id = ANY(ARRAY(
            SELECT id FROM leases_resource WHERE {{resources}} AND state = 'active' AND NOT changed
                AND EXISTS (SELECT FROM held)
            ORDER BY id FOR NO KEY UPDATE)) RETURNING id
    ), woken AS ({_WAKE.format(which="{runs} AND (SELECT count(*) FROM rechecked) >= 0 AND EXISTS (SELECT FROM held)")})
    SELECT (SELECT count(*) FROM held), ARRAY(SELECT id FROM woken), ARRAY(SELECT id FROM woken WHERE now)"""
_OF_RESOURCES = _STORE.format(resources="id = ANY(%(ids)s)", runs="resource_id = ANY(%(ids)s)")
_RUNS_OF_BLUEPRINTS = (
    "resource_id IN (SELECT id FROM leases_resource WHERE blueprint_id = ANY(%(ids)s) AND gone_at IS NULL)"
)
_OF_BLUEPRINTS = _STORE.format(resources="blueprint_id = ANY(%(ids)s)", runs=_RUNS_OF_BLUEPRINTS)


def store(token: uuid.UUID, news: Changes, blueprints: Sequence[int]) -> int:
    """Make the steps and checks due that news concern, and store the bookmark with it. Return the number of steps.

    Objects without a valid proof of this installation concern none. If changes may have been missed, everything of the
    blueprints that use the place is concerned. Raises TokenLost; nothing is stored then.

    After changes of objects, the commit does not wait for the disk: a crash of the database loses the bookmark with
    what it brought. Therefore keep the connection open until `store` was called without objects, which waits. A
    connection that broke until then means that the watch must resume at the stored bookmark.
    """
    if news.missed:
        return _store(token, news, _OF_BLUEPRINTS, blueprints, "{}")
    found = _by_resource(news.objects)
    progress = {key: reported for key, reported in found.items() if reported}
    return _store(token, news, _OF_RESOURCES, sorted(found), json.dumps(progress))


def _by_resource(objects: Iterable[Owned]) -> dict[int, Json | None]:
    """Return the progress of each resource of ours; None if none is reported, or the resource has several objects."""
    here = installation.current().short
    found: dict[int, Json | None] = {}
    for one in objects:
        if (proof := installation.proven(one.tags, here)) is not None:
            found[proof.resource] = None if proof.resource in found else _storable(one.progress)
    return found


_LONGEST = 4096


def _storable(progress: Json | None) -> Json | None:
    """Return progress with secrets removed; None if it is not flat, too long, or not accepted by the database."""
    clean = {key: redact(one) if isinstance(one, str) else one for key, one in (progress or {}).items()}
    if any(isinstance(one, dict | list | tuple) for one in clean.values()):
        return None
    try:
        text = json.dumps(clean, allow_nan=False, ensure_ascii=False)
        text.encode()
    except (TypeError, ValueError):  # such as half of a surrogate pair
        return None
    return None if len(text) > _LONGEST or "\\u0000" in text else clean


@single
def _store(token: uuid.UUID, news: Changes, sql: str, ids: Sequence[int], progress: str) -> int:
    given = {
        "bookmark": news.bookmark,
        "changed": bool(news.objects) and not news.missed,
        "listed": news.listed,
        "token": token,
        "ids": list(ids),
        "progress": progress,
    }
    ((held, woken, now),) = rows(sql, given, hot=sql is _OF_RESOURCES)
    if not held:
        raise TokenLost
    _call(now)
    return len(woken)


def _call(runs: Iterable[int]) -> None:
    """Ask workers to carry out runs after the commit."""
    for one in runs:
        hints.after_commit("step", one)


_FAILED = """
    UPDATE leases_providerwatch w SET bookmark = coalesce(%s, w.bookmark), message = %s,
        failing_since = coalesce(w.failing_since, clock_timestamp())
    FROM (SELECT id, failing_since FROM leases_providerwatch WHERE token = %s FOR NO KEY UPDATE) before
    WHERE w.id = before.id AND w.token_until > clock_timestamp() RETURNING before.failing_since IS NULL"""


@short
def failed(token: uuid.UUID, message: str, bookmark: str | None, blueprints: Sequence[int]) -> None:
    """Store why a watch fails, and from where it resumes; from where it was, if `bookmark` is None.

    With the first failure, the steps of these blueprints are due, so that they are polled as often as without a watch.
    Raises TokenLost.
    """
    found = rows(_FAILED, (bookmark, redact(message)[:2000], token))
    if not found:
        raise TokenLost
    if found[0][0]:
        woken = rows(_WAKE.format(which=_RUNS_OF_BLUEPRINTS), {"ids": list(blueprints), "progress": "{}"})
        _call(one for one, now in woken if now)


_LIVE = """
    SELECT kind, credential, place FROM leases_providerwatch
    WHERE token_until > clock_timestamp() - %(late)s * interval '1 s' AND bookmark <> '' AND listed_at IS NOT NULL
        AND (failing_since IS NULL OR failing_since > clock_timestamp() - %(late)s * interval '1 s')"""
_HEALTH_LATE = 120.0
"""Seconds for which a watch may fail, or be without a worker, before health checks are as frequent as without it."""
SELDOM = 86_400.0
"""Seconds between two health checks of a resource about which the watches report nothing."""


def _live(late: float = 0.0) -> set[Key]:
    """Return what is being watched without an error."""
    return {Key(*one) for one in rows(_LIVE, {"late": late})}


def pause(blueprint: Blueprint, answer: Wait) -> float:
    """Return the seconds after which a step that waits is called again, if no watch reports a change earlier."""
    after = max(0.0, answer.after)
    if answer.watched is None or not 0 < after < answer.watched:
        return after
    keys = set(keys_of(blueprint))
    return answer.watched if keys and keys <= _live() else after


def seldom_checked() -> list[int]:
    """Return the ids of the blueprints of whose resources the watches report what a health check would find."""
    live = _live(_HEALTH_LATE)
    return [one.pk for one in _blueprints({key.kind for key in live}) if _reports_health(one, live)] if live else []


def _reports_health(blueprint: Blueprint, live: set[Key]) -> bool:
    keys = keys_of(blueprint)
    if not keys or not live.issuperset(keys):
        return False
    kind = registry.kind(blueprint.kind)
    assert isinstance(kind, Watches)
    return kind.watches_health(specs.config(blueprint.kind, blueprint.config))
