"""Discover resources: read or receive reports about places, and store the reported resources."""

from __future__ import annotations

import datetime as dt
import gzip
import json
import logging
import uuid
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from hashlib import sha256
from typing import Any

from django.conf import settings
from django.db.models import Exists, OuterRef
from django.db.models.functions import Now

from blueprints import registry
from blueprints.answers import Json
from blueprints.contract import Discovers, Reports
from blueprints.models import Blueprint
from blueprints.reports import Report, as_json, digest
from blueprints.specs import BlueprintView, Draft, HostView
from drydock.core import clock
from drydock.core.errors import Conflict, DrydockError, InvalidRequest, NotSupported
from drydock.core.logging import about, hidden, redact
from leases.engine.core import specs
from leases.engine.core.database import Busy, refuse_inside_transaction, run
from leases.engine.core.token_lease import TokenLease
from leases.engine.sync import findings, identities
from leases.messaging import hints
from leases.models import Resource, Sync

log = logging.getLogger(__name__)

MOST_PAGES = 10_000
MOST_HARDWARE = 4 << 20
"""The largest hardware in bytes of JSON that is kept. Agents cannot report more."""
RESYNC = 3600.0
"""Seconds after which an unchanged report is stored again."""
_TASKS = TokenLease(
    table="leases_sync", capability=Discovers, hint="discover", which="b.enabled", tasks="s.source = 'read'",
    key=("blueprint_id", "place"),
)  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Reading:
    """The report of one place: its digest, a function that returns its drafts, and why it is incomplete, if so."""

    digest: str
    drafts: Callable[[], Sequence[Draft]]
    incomplete: str = ""
    hardware: Json | None = None
    """The hardware in the report, in its JSON form, if the kind reports hardware."""


def due() -> int:
    """Queue every discovery that is due. Return the number of discoveries."""
    return _TASKS.ask()


def discover(blueprint_id: int, place: str = "") -> bool:
    """Discover the resources in one place, if a discovery is due and no other process has claimed it.

    Return whether the discovery was carried out.
    """
    refuse_inside_transaction("discover")
    token = _TASKS.take(blueprint_id, place)
    if token is None:
        return False
    others = Sync.objects.filter(blueprint=OuterRef("blueprint")).exclude(place="")
    sync = Sync.objects.select_related("blueprint").annotate(places=Exists(others)).get(
        blueprint=blueprint_id, place=place
    )  # fmt: skip
    outcome = _discover(sync, token)
    _finish(sync, token, outcome, after=interval(sync.blueprint))
    return True


def interval(blueprint: Blueprint) -> float:
    """Return the seconds between two discoveries, as set by the blueprint, or else by its kind, or else by Drydock."""
    own = blueprint.discovery_interval or getattr(registry.kind(blueprint.kind), "discovery_interval", None)
    return float(settings.DRYDOCK.discovery_interval_seconds if own is None else own.total_seconds())


def soon(sync: Sync) -> None:
    """Make the discovery of a place due now, because an operator asked for it."""
    Sync.objects.filter(pk=sync.pk).update(due_at=Now())
    hints.after_commit("discover", sync.blueprint_id, sync.place)


@dataclass(frozen=True, kw_only=True)
class _Outcome:
    """The outcome of a discovery: the number of resources found, if known, the problem, and what to keep of a report.

    `kept` is the digest of the report, empty if it is to be stored again the next time, and its conflicts. `hardware` is
    the hardware in it, if the kind reports hardware.
    """

    found: int | None = None
    problem: str = ""
    kept: tuple[str, list[Json]] | None = None
    hardware: Json | None = None


def _finish(sync: Sync, token: uuid.UUID, outcome: _Outcome, *, after: float) -> None:
    """Store the outcome of a discovery, and schedule the next one."""
    kept = outcome.kept
    _TASKS.done(
        sync.blueprint_id, sync.place, token=token, after=after, problem=outcome.problem, found=outcome.found,
        also="" if kept is None else _STORED, given=() if kept is None else (kept[0], json.dumps(kept[1])),
        beside=None if outcome.hardware is None else _keep_hardware(sync, outcome.hardware, token),
    )  # fmt: skip


_STORED = "digest = %s, applied_at = clock_timestamp(), conflicts = %s::jsonb"


def _discover(sync: Sync, token: uuid.UUID) -> _Outcome:
    """Read a place and store what is there. If the place cannot be read, nothing counts as missing."""
    blueprint = sync.blueprint
    kind = registry.kind(blueprint.kind)
    assert isinstance(kind, Discovers)
    try:
        view = replace(specs.blueprint_view(blueprint, secrets=True), hosts=_hosts)
    except DrydockError as error:
        return _Outcome(problem=str(error)[:2000])
    with about(blueprint=blueprint.name), hidden(view.credentials):
        try:
            if isinstance(kind, Reports) and not sync.place:
                names = kind.reported_places(view)
                if sync.places or list(names) != [""]:
                    findings.set_places(sync, names)
                if "" not in names:
                    return _Outcome(found=len(names))
            reading = _read(kind, view, sync, token)
            if reading is None or _is_unchanged(sync, reading):
                return _Outcome(problem="" if reading is None else _says(reading))
            found = reading.drafts()
        except Exception as error:
            log.warning("Discovery of %s failed: %s", sync, error)
            return _Outcome(problem=redact(f"{type(error).__name__}: {error}")[:2000])
        return _store(sync, reading, found, token)


def _hosts(id: int | None) -> list[HostView]:
    """Return the active hosts of all blueprints, or the one with an id."""
    hosts = Resource.objects.filter(type="host", state="active", **({} if id is None else {"pk": id}))
    return [specs.host_view(host) for host in hosts.select_related("blueprint").order_by("pk")]


def _read(kind: Discovers, view: BlueprintView, sync: Sync, token: uuid.UUID) -> Reading | None:
    """Return what the kind finds in a place, or None if another process has taken over."""
    if isinstance(kind, Reports):
        pages = _pages(kind, view, sync, token)
        return None if pages is None else _reading(kind, view.config, view.generation, pages)
    found = kind.discover(view)
    return Reading(digest=_digest_of(view.generation, found), drafts=lambda: found)


def _reading(kind: Reports, config: Any, generation: int, pages: Sequence[Report]) -> Reading:
    return Reading(
        digest=digest(generation, pages), incomplete=next((page.incomplete for page in pages if page.incomplete), ""),
        drafts=lambda: [draft for page in pages for draft in kind.drafts_from(config, page)],
        hardware=pages[0].content if kind.reports_hardware else None,
    )  # fmt: skip


def _digest_of(generation: int, found: Sequence[Draft]) -> str:
    try:
        return digest(generation, [Report(content={"drafts": [as_json(draft) for draft in found]})])
    except (TypeError, ValueError):
        return ""


def _pages(kind: Reports, view: BlueprintView, sync: Sync, token: uuid.UUID) -> list[Report] | None:
    """Read the pages of one report. If a later page cannot be read, the report is incomplete."""
    until = clock.monotonic() + kind.report_deadline
    pages, names = [kind.read_report(view, sync.place, "")], {""}
    while name := pages[-1].next_page:
        if not _TASKS.keep(sync.blueprint_id, sync.place, token=token):
            return None
        problem = ""
        if name in names:
            problem = f"Page {name:.100} was listed twice as the next page."
        elif len(pages) >= MOST_PAGES or clock.monotonic() >= until:
            problem = f"Only {len(pages)} pages could be read within {kind.report_deadline:g} s."
        else:
            names.add(name)
            try:
                pages.append(kind.read_report(view, sync.place, name))
            except Exception as error:
                problem = redact(f"Page {name:.100} could not be read: {type(error).__name__}: {error}")
        if problem:
            pages[-1] = replace(pages[-1], next_page="", incomplete=problem)
    return pages


def _is_unchanged(sync: Sync, reading: Reading) -> bool:
    """Return whether the same report was stored recently, and nothing is left to do about it."""
    recent = sync.applied_at is not None and (clock.now() - sync.applied_at).total_seconds() < RESYNC
    return recent and bool(reading.digest) and reading.digest == sync.digest


def _store(sync: Sync, reading: Reading, found: Sequence[Draft], token: uuid.UUID, *, fresh: bool = False) -> _Outcome:
    """Store what was found while the token is valid. `fresh` says that it was taken a moment ago."""
    if not fresh and sync.digest:
        # If this process dies half-way, the next report is not taken for the one before. A report that was sent is
        # compared only with one whose storing has ended.
        Sync.objects.filter(pk=sync.pk, token=token).update(digest="")
    keep = partial(_TASKS.keep, sync.blueprint_id, sync.place, token=token)
    done = findings.store(sync, found, complete=not reading.incomplete, keep=keep, fresh=fresh)
    if done is None:
        return _Outcome(found=len(found))
    problem = _says(reading)
    if done.rejected:
        said = f"{len(done.rejected)} of {len(found)} resources could not be registered: "
        problem = redact(f"{problem} {said}{'; '.join(map(str, done.rejected))}".strip())[:2000]
    digest = reading.digest if done.settled and not reading.incomplete else ""
    conflicts = identities.remember(sync, done.conflicts) if done.conflicts else []
    return _Outcome(found=len(found), problem=problem, kept=(digest, conflicts), hardware=reading.hardware)


_KEEP_HARDWARE = """
    INSERT INTO leases_reportedhardware (sync_id, digest, content, size, counts, unready, changed_at)
    SELECT id, %s, %s, %s, %s::jsonb, %s, clock_timestamp() FROM leases_sync WHERE id = %s AND token = %s
    ON CONFLICT (sync_id) DO UPDATE SET digest = excluded.digest, content = excluded.content, size = excluded.size,
        counts = excluded.counts, unready = excluded.unready, changed_at = excluded.changed_at
    WHERE leases_reportedhardware.digest <> excluded.digest"""


def _keep_hardware(sync: Sync, hardware: Json, token: uuid.UUID) -> tuple[str, Sequence[object]]:
    """Return the statement that keeps the hardware of a report while the token is valid, unless it is the same as before.

    Only the counts are kept of a report that is larger than `MOST_HARDWARE`.
    """
    text = json.dumps(hardware, sort_keys=True, separators=(",", ":"), ensure_ascii=False).encode("utf-8", "replace")
    content = gzip.compress(text, 6, mtime=0) if len(text) <= MOST_HARDWARE else None
    counts: dict[str, Counter[str]] = {}
    unready = 0
    for one in hardware.get("devices", ()):
        state = one.get("readiness") or "unsupported"
        if state == "ready" and one.get("health") == "failed":
            state = "failed"
        if name := one.get("device_class"):
            counts.setdefault(name, Counter())[state] += 1
            unready += state != "ready"
    said = (sha256(text).hexdigest(), content, len(text), json.dumps(counts), unready, sync.pk, token)
    return _KEEP_HARDWARE, said


def _says(reading: Reading) -> str:
    """Return why a report is incomplete, or an empty string."""
    return f"The report is incomplete: {reading.incomplete}"[:2000] if reading.incomplete else ""


_SAME = """
    UPDATE leases_sync SET seen_at = clock_timestamp(), due_at = clock_timestamp() + %s * interval '1 s'
    WHERE blueprint_id = %s AND place = %s AND source = 'sent' AND digest = %s AND message = '' AND token IS NULL
        AND applied_at > clock_timestamp() - %s * interval '1 s'"""
# Nothing is lost with the last half second of a database that crashes: the next report says the same again.
_STILL_SAME = """
    WITH same AS (
        UPDATE leases_sync s SET seen_at = clock_timestamp(), due_at = clock_timestamp() + a.interval * interval '1 s'
        FROM leases_agent a JOIN blueprints_blueprint b ON b.id = a.blueprint_id
        WHERE a.id = %(agent)s AND a.joined_at = %(joined)s AND a.sequence < %(sequence)s AND a.identities @> %(identities)s::jsonb
            AND a.revoked_at IS NULL AND a.silent_since IS NULL AND a.clock_off_since IS NULL AND a.problem = ''
            AND a.reported_at IS NOT NULL AND b.enabled AND b.removed_at IS NULL
            AND s.blueprint_id = a.blueprint_id AND s.place = a.place AND s.source = 'sent'
            AND s.digest = b.generation || ':' || %(digest)s AND s.message = '' AND s.token IS NULL
            AND s.applied_at > clock_timestamp() - %(resync)s * interval '1 s'
            AND set_config('synchronous_commit', 'off', TRUE) = 'off'
        RETURNING a.id)
    UPDATE leases_agent SET sequence = %(sequence)s, boot_id = %(boot)s, reported_at = statement_timestamp()
    WHERE id IN (SELECT id FROM same) AND joined_at = %(joined)s AND sequence < %(sequence)s AND revoked_at IS NULL"""


def still_same(
    agent_id: int, *, digest: str, sequence: int, boot_id: str, identities: Mapping[str, str],
    joined_at: dt.datetime | None,
) -> bool:  # fmt: skip
    """Record a report that says the same as the one before, if it comes from an agent about which nothing is wrong.

    `digest` is the `content_digest` of its hardware, `identities` are those of the host in it, and `joined_at` is when
    the agent that sent it joined. Return False, and record nothing, if the report has to be examined.
    """
    refuse_inside_transaction("still_same")
    given = {
        "agent": agent_id, "joined": joined_at, "sequence": sequence, "boot": boot_id, "identities": json.dumps(identities),
        "digest": digest, "resync": RESYNC,
    }  # fmt: skip
    return bool(run(_STILL_SAME, given, hot=True))


@dataclass(frozen=True, kw_only=True)
class Received:
    """The outcome of a report that an agent sent. `problem` says which part could not be stored, if any."""

    stored: bool
    problem: str = ""


def receive(blueprint_id: int, report: Report) -> Received:
    """Store a report that a program sent about the place where it runs, unless the report has not changed.

    Raises NotSupported if the kind takes no reports, Conflict if the blueprint is disabled or Drydock reads the place
    itself, InvalidRequest if the kind rejects the report, and Busy while another report of the place is being stored.
    Nothing is stored in these cases.
    """
    refuse_inside_transaction("receive")
    sync = Sync.objects.select_related("blueprint").filter(blueprint=blueprint_id, place=report.place).first()
    blueprint = Blueprint.objects.get(pk=blueprint_id) if sync is None else sync.blueprint
    kind = registry.kind(blueprint.kind)
    if not isinstance(kind, Reports):
        raise NotSupported(f"Kind {blueprint.kind!r} takes no reports.")
    if not blueprint.enabled:
        raise Conflict(f"Blueprint {blueprint.name} is disabled and accepts no reports.")
    try:
        said = digest(blueprint.generation, [report])
    except (TypeError, ValueError) as error:
        raise InvalidRequest(f"The report is not valid JSON: {error}", field="content") from None
    is_same = sync is not None and (sync.source, sync.digest) == (Sync.Source.SENT, said) and not report.incomplete
    if is_same and run(_SAME, (interval(blueprint), blueprint_id, report.place, said, RESYNC)):
        return Received(stored=False)
    return _receive(sync, blueprint, kind, report, said)


def _receive(sync: Sync | None, blueprint: Blueprint, kind: Reports, report: Report, said: str) -> Received:
    config = specs.config(blueprint.kind, blueprint.config)
    try:
        found = kind.drafts_from(config, report)
    except Exception as error:
        log.warning("The report about %s of blueprint %s was rejected: %s", report.place, blueprint.name, error)
        raise InvalidRequest(redact(f"The report was rejected: {error}")[:2000], field="content") from None
    _refuse_foreign_wholes(blueprint, kind, report.place, found)
    if sync is None:
        sync, _ = Sync.objects.get_or_create(
            blueprint=blueprint, place=report.place, defaults={"source": Sync.Source.SENT}
        )  # fmt: skip
        sync.blueprint = blueprint
    if sync.source == Sync.Source.READ:
        raise Conflict(
            f"Drydock reads the reports about {report.place or blueprint.name} itself, so they cannot be sent in."
        )
    token = _TASKS.take(blueprint.pk, report.place, early=True)
    if token is None:
        raise Busy
    reading = Reading(
        digest=said, drafts=lambda: found, incomplete=report.incomplete,
        hardware=report.content if kind.reports_hardware else None,
    )  # fmt: skip
    with about(blueprint=blueprint.name):
        outcome = _store(sync, reading, found, token, fresh=True)
    _finish(sync, token, outcome, after=interval(blueprint))
    return Received(stored=True, problem=outcome.problem)


def _refuse_foreign_wholes(blueprint: Blueprint, kind: Reports, place: str, found: Sequence[Draft]) -> None:
    """Raise InvalidRequest if a draft is part of something outside the place that the report is about."""
    outside = {draft.part_of for draft in found if draft.part_of} - {draft.identity for draft in found}
    if not outside:
        return
    there = Resource.objects.filter(identity__in=outside, gone_at=None)
    own = there.filter(finding__sync__blueprint=blueprint, finding__sync__place=place)
    if kind.places_are_resources and place.isdecimal():
        own = own | there.filter(pk=int(place[:18]))
    foreign = outside - set(own.values_list("identity", flat=True))
    if foreign:
        name = min(foreign)
        raise InvalidRequest(
            f"{name!r:.100} is not in {place or blueprint.name}. A report can only be about the place that it names.",
            field="part_of",
        )
