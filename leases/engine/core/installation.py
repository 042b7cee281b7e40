"""This installation: its identity and epoch, whether it is suspended, and which objects at a provider are provably ours.

A restored or copied database speaks of things outside that may be another's now, or may have changed since. So the
installation bears the fingerprint of the database and the ownership key for which it was confirmed; under another
one, nothing outside is touched and every sweep that destroys only lists, until an operator confirms.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import hmac
import json
import logging
import os
import threading
import uuid
from collections.abc import Mapping
from dataclasses import dataclass

from django.conf import settings
from django.db import ProgrammingError, connection, transaction

from drydock.core import clock
from leases.engine.core.database import rows, run
from leases.engine.core.transitions import record_event
from leases.models import Installation, Resource

log = logging.getLogger(__name__)

_KEPT = 5.0
"""Seconds for which a process remembers what it read."""
_FIRST_EPOCH = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)

ELSEWHERE = "This is not the database for which it was confirmed: it was restored, copied or moved."
OTHER_KEY = "The ownership key in the environment is not the one for which it was confirmed."
UNKNOWN = "It has resources, and nobody ever confirmed for which database and ownership key."


def add_dropped(number: int, why: str) -> None:
    """So many messages of the broker could not be read, the last for this reason."""
    run(
        "UPDATE leases_installation SET dropped_messages = dropped_messages + %s, dropped_at = clock_timestamp(),"
        " dropped_message = %s",
        (number, why),
    )


@dataclass(frozen=True, kw_only=True)
class Epoch:
    """From these ids on, resources (`r`) and leases (`l`) belong to this epoch."""

    number: int
    r: int
    l: int  # noqa: E741 - the letter that is in the names


@dataclass(frozen=True, kw_only=True)
class Standing:
    """The installation as this process knows it. `problem` says why nothing outside may be touched; empty: it may."""

    short: str
    epochs: tuple[Epoch, ...]
    problem: str

    @property
    def epoch(self) -> int:
        """The present one."""
        return self.epochs[-1].number

    def epoch_of(self, letter: str, pk: int) -> int:
        """The epoch in which resource (`r`) or lease (`l`) `pk` was made."""
        return next(e.number for e in reversed(self.epochs) if getattr(e, letter) <= pk)


_guard = threading.Lock()
_known: tuple[float, Standing] | None = None
_shown: tuple[float, str] | None = None


def current() -> Standing:
    """The standing, read again every few seconds."""
    global _known
    with _guard:
        known = _known
    if known is None or clock.monotonic() - known[0] > _KEPT:
        known = (clock.monotonic(), _read())
        with _guard:
            before, _known = _known, known
        if known[1].problem and (before is None or before[1].problem != known[1].problem):
            log.warning("Nothing outside is touched until an operator confirms the installation: %s", known[1].problem)
    return known[1]


def problem() -> str:
    """Why it is suspended, in one statement and without looking at the database's identity: for pages."""
    with _guard:
        known, shown = _known, _shown
    if known is not None and clock.monotonic() - known[0] <= _KEPT:
        return known[1].problem
    if shown is None or clock.monotonic() - shown[0] > _KEPT:
        found = rows("SELECT problem FROM leases_installation WHERE id = 1")
        return seen(found[0][0] if found else "")
    return shown[1]


def seen(said: str) -> str:
    """Remember why it is suspended, as it was read with something else; as this process knows it."""
    global _shown
    with _guard:
        said = said or (OTHER_KEY if _known and _known[1].problem == OTHER_KEY else "")
        _shown = (clock.monotonic(), said)
    return said


def notice() -> None:
    """See at once whether this database was restored, before this process writes the first row into it: what is made
    from here on is of the epoch that the next confirmation begins."""
    if _known is None:
        current()


def forget() -> None:
    """Read it again at the next look."""
    global _known, _shown
    with _guard:
        _known = _shown = None


def _read() -> Standing:
    row = Installation.objects.filter(pk=1).first() or _make()
    if not row.fingerprint and not row.problem:
        _adopt(row)
    problem = _problem(row)
    if not row.problem and problem in (ELSEWHERE, UNKNOWN):
        _suspend(problem, "drydock")
        row.refresh_from_db()
    later = tuple(Epoch(number=e["epoch"], r=e["r"], l=e["l"]) for e in row.epochs if e["epoch"] is not None)
    first = Epoch(number=row.epochs[0]["after"] if row.epochs else row.epoch, r=0, l=0)
    return Standing(short=row.uuid.hex[:8], epochs=(first, *later), problem=problem)


def _make() -> Installation:
    name = uuid.uuid4()
    row, _ = Installation.objects.get_or_create(id=1, defaults={"uuid": name, "fingerprint": fingerprint(name)})
    return row


def _adopt(row: Installation) -> None:
    """One of a version that knew no fingerprint, and has made nothing yet."""
    if not Resource.objects.exists():
        row.fingerprint = fingerprint(row.uuid)
        Installation.objects.filter(pk=1, fingerprint="").update(fingerprint=row.fingerprint)


def _problem(row: Installation) -> str:
    if row.problem:
        return row.problem
    here, confirmed = fingerprint(row.uuid), row.fingerprint
    if here == confirmed:
        return ""
    if not confirmed:
        return UNKNOWN
    return ELSEWHERE if here.split(":")[0] != confirmed.split(":")[0] else OTHER_KEY


def fingerprint(name: uuid.UUID) -> str:
    """Of this very database, and of the ownership key. Neither says anything about what it was made of."""
    # The key comes first: its file, of which the database's half knows, is made at its first use.
    key = hmac.new(str(settings.DRYDOCK_OWNERSHIP_KEY).encode(), name.bytes, hashlib.sha256).hexdigest()[:24]
    database = hashlib.sha256("|".join(_database()).encode()).hexdigest()[:24]
    return f"{database}:{key}"


def _database() -> list[str]:
    """What tells this database from a restored or copied one: the cluster, the database, the table; with engines of
    our own also where their state is, since that is copied as a folder."""
    found = rows(
        "SELECT d.oid::text, 'leases_installation'::regclass::oid::text FROM pg_database d"
        " WHERE d.datname = current_database()"
    )[0]
    return [*found, _cluster(), *_folder()]


def _cluster() -> str:
    try:
        with transaction.atomic():
            return str(rows("SELECT system_identifier FROM pg_control_system()")[0][0])
    except ProgrammingError:
        return ""


def _folder() -> list[str]:
    if not settings.DRYDOCK.private_database:
        return []
    state = settings.DRYDOCK.state
    key = state / "keys" / "ownership_key"
    return [os.path.realpath(state), str(key.stat().st_ino) if key.exists() else ""]


def suspend(problem: str, *, actor: str = "drydock") -> bool:
    """Touch nothing outside any more until somebody confirms; False when it was suspended already."""
    current()
    changed = _suspend(problem, actor)
    if changed:
        forget()
    return changed


_SUSPEND = "UPDATE leases_installation SET problem = %s, epochs = epochs || %s::jsonb WHERE problem = ''"


def _suspend(problem: str, actor: str) -> bool:
    """Keep the problem, and where the ids stood: from there on a new epoch begins when somebody confirms."""
    with transaction.atomic():
        epoch = rows("SELECT epoch FROM leases_installation FOR NO KEY UPDATE")[0][0]
        changed = run(_SUSPEND, (problem[:2000], json.dumps([_beginning(epoch)])))
        if changed:
            record_event("installation.suspended", problem, actor=actor)
    return bool(changed)


def _beginning(epoch: int) -> dict[str, int | None]:
    """An epoch after `epoch`, its number not known yet."""
    return {"epoch": None, "after": epoch, "r": _after("resource"), "l": _after("lease")}


def confirm(*, actor: str) -> bool:
    """This database speaks for the installation, from here and with this key; what it makes from now on is of a new
    epoch, so that no name of what was made after the back-up comes again. False when it was not suspended."""
    current()
    with transaction.atomic():
        row = Installation.objects.select_for_update().get(pk=1)
        problem = _problem(row)
        if problem:
            begun = [e for e in row.epochs if e["epoch"] is None] or [_beginning(row.epoch)]
            row.epochs = [e for e in row.epochs if e["epoch"] is not None] + begun
            row.epoch = row.epochs[-1]["epoch"] = _next(row.epoch)
            row.fingerprint, row.problem = fingerprint(row.uuid), ""
            row.confirmed_at, row.confirmed_by = clock.now(), actor[:150]
            row.save()
            record_event("installation.confirmed", f"Epoch {row.epoch} begins. {problem}", actor=actor)
    forget()
    return bool(problem)


def _next(epoch: int) -> int:
    """Minutes of this calendar: two restores of one back-up do not begin the same epoch."""
    return max(epoch + 1, int((clock.now() - _FIRST_EPOCH).total_seconds() // 60))


def _after(table: str) -> int:
    """The first id that no row has had yet, as far as this database remembers."""
    return int(rows(f"SELECT nextval(pg_get_serial_sequence('leases_{table}', 'id')) + 1")[0][0])


def ever_made(pk: int) -> bool:
    """Whether this database remembers having given the resource id `pk` away."""
    sequence = rows("SELECT pg_get_serial_sequence('leases_resource', 'id')")[0][0]
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM {sequence}")
        last = cursor.fetchone()[0]
    return pk <= int(last)


INSTALLATION, EPOCH, RESOURCE, PROOF = (
    "drydock-installation", "drydock-epoch", "drydock-resource", "drydock-proof",
)  # fmt: skip
BLUEPRINT = "drydock-blueprint"
"""Tells which blueprint of ours made it; the proof does not cover it."""


@dataclass(frozen=True, kw_only=True)
class Proven:
    """What a tag proves: made by this installation, in this epoch, for the resource of this id."""

    epoch: int
    resource: int


def tags(short: str, epoch: int, resource: int) -> dict[str, str]:
    """The tags of a resource, its proof among them."""
    return {
        INSTALLATION: short, EPOCH: str(epoch), RESOURCE: str(resource), PROOF: _proof(short, str(epoch), str(resource)),
    }  # fmt: skip


def proven(found: Mapping[str, str], short: str) -> Proven | None:
    """What the tags of a thing prove; None where they prove nothing to installation `short`."""
    epoch, resource = found.get(EPOCH, ""), found.get(RESOURCE, "")
    if found.get(INSTALLATION) != short or not (_number(epoch) and _number(resource)):
        return None
    if not hmac.compare_digest(found.get(PROOF, "").encode(), _proof(short, epoch, resource).encode()):
        return None
    return Proven(epoch=int(epoch), resource=int(resource))


def _number(text: str) -> bool:
    return text.isascii() and text.isdecimal() and len(text) < 19


def _proof(short: str, epoch: str, resource: str) -> str:
    key = str(settings.DRYDOCK_OWNERSHIP_KEY).encode()
    return hmac.new(key, f"{short}/{epoch}/{resource}".encode(), hashlib.sha256).hexdigest()[:40]
