"""The record of refused logins (`blueprints.records.logins`) in the database, by whose clock it counts."""

from __future__ import annotations

import uuid

from blueprints.records.logins import LOST, MOST, SOON, WINDOW, Attempt
from leases.engine.core.database import rows, run, short

_BEGIN = """
    INSERT INTO leases_loginattempt AS l (place, slot, token, refused, at) VALUES (%s, %s, %s, %s, clock_timestamp())
    ON CONFLICT (place, slot) DO UPDATE SET token = excluded.token, refused = excluded.refused, at = excluded.at
        WHERE l.at < clock_timestamp() - %s * interval '1 s'"""
_WAIT = """
    SELECT coalesce(bool_and(refused OR at < clock_timestamp() - %s * interval '1 s'), FALSE),
        extract(epoch FROM min(at) - clock_timestamp())::float8 + %s
    FROM leases_loginattempt WHERE place = %s"""


class DatabaseLogins:
    """The record that all workers share."""

    @short
    def begin(self, place: str) -> Attempt:
        """Put a login on record in a free slot of the place."""
        token = uuid.uuid4()
        if _put(place, token, refused=False):
            return Attempt(token=str(token))
        ((all_refused, wait),) = rows(_WAIT, (LOST, WINDOW, place[:255]))
        return Attempt(wait=max(wait, 0.1) if all_refused else SOON)

    @short
    def accepted(self, attempt: str) -> None:
        """Strike a login from the record."""
        run("DELETE FROM leases_loginattempt WHERE token = %s AND NOT refused", (attempt,))

    @short
    def refused(self, place: str, attempt: str = "") -> None:
        """Note that a login was refused. If no slot is free, as many as are allowed were refused already."""
        token = attempt or str(uuid.uuid4())
        known = "UPDATE leases_loginattempt SET refused = TRUE, at = clock_timestamp() WHERE token = %s"
        if not run(known, (token,)):
            _put(place, uuid.UUID(token), refused=True)


def _put(place: str, token: uuid.UUID, *, refused: bool) -> bool:
    return any(run(_BEGIN, (place[:255], slot, token, refused, WINDOW)) for slot in range(1, MOST + 1))


RECORD = DatabaseLogins()
