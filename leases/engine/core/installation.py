"""This installation: its identity and epoch, whether it is suspended, and proof of which provider objects it created.

The rows of a restored or copied database refer to provider objects that may have changed since, or may now belong to
another installation. To detect this, an operator confirms the installation for one database and one ownership key, and
the installation stores the fingerprint of both. While the fingerprint differs, Drydock changes nothing outside the
database, and sweeps only list the objects that they would destroy.
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
"""Time in seconds for which a process caches the status of the installation."""
_FIRST_EPOCH = dt.datetime(2026, 1, 1, tzinfo=dt.UTC)

ELSEWHERE = "The installation was confirmed for another database: this one was restored, copied or moved."
OTHER_KEY = "The installation was confirmed with a different ownership key from the one in the environment."
UNKNOWN = "The installation has resources, but was never confirmed for this database and ownership key."


def add_dropped(number: int, why: str) -> None:
    """Add to the number of broker messages that could not be read, and store why the last message could not be read."""
    run(
        "UPDATE leases_installation SET dropped_messages = dropped_messages + %s, dropped_at = clock_timestamp(),"
        " dropped_message = %s",
        (number, why),
    )


@dataclass(frozen=True, kw_only=True)
class Epoch:
    """The number of an epoch, and the first resource id (`r`) and lease id (`l`) that belong to it."""

    number: int
    r: int
    l: int  # noqa: E741 - the letter that is in the names


@dataclass(frozen=True, kw_only=True)
class Standing:
    """The status of the installation, as cached by this process.

    `problem` is the reason why nothing outside the database may be changed, or empty if changes are allowed.
    """

    short: str
    epochs: tuple[Epoch, ...]
    problem: str

    @property
    def epoch(self) -> int:
        """The number of the current epoch."""
        return self.epochs[-1].number

    def epoch_of(self, letter: str, pk: int) -> int:
        """Return the number of the epoch in which a resource or lease was created.

        `letter` is `r` for the resource or `l` for the lease with the id `pk`.
        """
        return next(e.number for e in reversed(self.epochs) if getattr(e, letter) <= pk)


_guard = threading.Lock()
_known: tuple[float, Standing] | None = None
_shown: tuple[float, str] | None = None


def current() -> Standing:
    """Return the status of the installation, which may have been read a few seconds ago."""
    global _known
    with _guard:
        known = _known
    if known is None or clock.monotonic() - known[0] > _KEPT:
        known = (clock.monotonic(), _read())
        with _guard:
            before, _known = _known, known
        if known[1].problem and (before is None or before[1].problem != known[1].problem):
            log.warning(
                (
                    "The installation is suspended until an operator confirms the installation; nothing outside the database is "
                    "changed: %s"
                ),
                known[1].problem,
            )
    return known[1]


def problem() -> str:
    """Return why the installation is suspended, or an empty string if it is not.

    Intended for pages: it costs at most one statement, because it does not check the identity of the database.
    """
    with _guard:
        known, shown = _known, _shown
    if known is not None and clock.monotonic() - known[0] <= _KEPT:
        return known[1].problem
    if shown is None or clock.monotonic() - shown[0] > _KEPT:
        found = rows("SELECT problem FROM leases_installation WHERE id = 1")
        return seen(found[0][0] if found else "")
    return shown[1]


def seen(said: str) -> str:
    """Cache the reason for suspension that the caller has just read. Return the reason to show, or an empty string."""
    global _shown
    with _guard:
        said = said or (OTHER_KEY if _known and _known[1].problem == OTHER_KEY else "")
        _shown = (clock.monotonic(), said)
    return said


def notice() -> None:
    """Detect a restored database before this process writes its first row.

    Rows that are written afterwards belong to the epoch that begins when an operator confirms the installation.
    """
    if _known is None:
        current()


def forget() -> None:
    """Drop the cached status of the installation, so that the next call reads it from the database."""
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
    """Confirm an installation that an older version created without a fingerprint, if it has no resources."""
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
    """Return hashes of the database's identity and of the ownership key. Neither can be recovered from its hash."""
    # Read the key first: its first use creates its file, which the database's half of the hash depends on.
    key = hmac.new(str(settings.DRYDOCK_OWNERSHIP_KEY).encode(), name.bytes, hashlib.sha256).hexdigest()[:24]
    database = hashlib.sha256("|".join(_database()).encode()).hexdigest()[:24]
    return f"{database}:{key}"


def _database() -> list[str]:
    """Return values that differ between this database and a restored or copied one: cluster, database and table.

    With private engines, the path of the state folder is included, because such a database is copied as a folder.
    """
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
    """Suspend all changes outside the database until an operator confirms. Return False if already suspended."""
    current()
    changed = _suspend(problem, actor)
    if changed:
        forget()
    return changed


_SUSPEND = "UPDATE leases_installation SET problem = %s, epochs = epochs || %s::jsonb WHERE problem = ''"


def _suspend(problem: str, actor: str) -> bool:
    """Store the problem, and the ids from which a new epoch begins when an operator confirms the installation."""
    with transaction.atomic():
        epoch = rows("SELECT epoch FROM leases_installation FOR NO KEY UPDATE")[0][0]
        changed = run(_SUSPEND, (problem[:2000], json.dumps([_beginning(epoch)])))
        if changed:
            record_event("installation.suspended", problem, actor=actor)
    return bool(changed)


def _beginning(epoch: int) -> dict[str, int | None]:
    """Return the first ids of the epoch that follows `epoch`. The new epoch has no number yet."""
    return {"epoch": None, "after": epoch, "r": _after("resource"), "l": _after("lease")}


def confirm(*, actor: str) -> bool:
    """Confirm that this database and ownership key belong to the installation.

    Begins a new epoch, so that an external name used since the backup is never used for another object. Returns False
    if the installation was not suspended.
    """
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
    """Return the number of the next epoch.

    Epochs are numbered in minutes, so that an installation that is restored twice from one backup gets different
    numbers.
    """
    return max(epoch + 1, int((clock.now() - _FIRST_EPOCH).total_seconds() // 60))


def _after(table: str) -> int:
    """Return the first id of a table that this database has not assigned yet."""
    return int(rows(f"SELECT nextval(pg_get_serial_sequence('leases_{table}', 'id')) + 1")[0][0])


def ever_made(pk: int) -> bool:
    """Return whether this database has ever assigned the resource id `pk`."""
    sequence = rows("SELECT pg_get_serial_sequence('leases_resource', 'id')")[0][0]
    with connection.cursor() as cursor:
        cursor.execute(f"SELECT CASE WHEN is_called THEN last_value ELSE 0 END FROM {sequence}")
        last = cursor.fetchone()[0]
    return pk <= int(last)


INSTALLATION, EPOCH, RESOURCE, PROOF = (
    "drydock-installation", "drydock-epoch", "drydock-resource", "drydock-proof",
)  # fmt: skip
BLUEPRINT = "drydock-blueprint"
"""The tag that contains the name of an object's blueprint. The proof of ownership does not cover it."""


@dataclass(frozen=True, kw_only=True)
class Proven:
    """The epoch and the resource id that the tags of a provider object prove."""

    epoch: int
    resource: int


def tags(short: str, epoch: int, resource: int) -> dict[str, str]:
    """Return the tags for the provider object of a resource, including the proof that this installation owns it."""
    return {
        INSTALLATION: short, EPOCH: str(epoch), RESOURCE: str(resource), PROOF: _proof(short, str(epoch), str(resource)),
    }  # fmt: skip


def proven(found: Mapping[str, str], short: str) -> Proven | None:
    """Return the epoch and resource id that an object's tags prove, or None if they prove nothing.

    `short` is the short name of the installation. Tags of another installation prove nothing.
    """
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
