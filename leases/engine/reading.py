"""Making one reading of an account: its places, what is offered in one, or how our resources in one are."""

from __future__ import annotations

import logging
import uuid

from blueprints import registry
from blueprints.contract import Allows, Offers
from blueprints.models import Reading
from blueprints.offers import Account
from drydock.core.errors import DrydockError
from drydock.core.logging import about, hidden, redact
from leases import hints
from leases.engine import allowances, catalogue, database, readings, setbacks, status, suspects
from leases.engine.installation import current as standing
from leases.engine.transaction import refuse_inside_transaction

log = logging.getLogger(__name__)


def read(reading_id: int) -> bool:
    """Make a reading, if it is due and nobody else does; True when it was made. What fails keeps the last good data."""
    refuse_inside_transaction("read")
    reading = Reading.objects.select_related("credential").filter(pk=reading_id).first()
    token = readings.take(reading_id) if reading is not None else None
    if reading is None or token is None:
        return False
    try:
        kind = registry.kind(reading.kind)
    except DrydockError:
        return False
    assert isinstance(kind, Offers)
    found, problem = None, ""
    with about(credential=reading.credential.name):
        try:
            account = Account(name=reading.credential.name, secrets=reading.credential.secrets)
            with hidden(account.secrets):
                found, problem = _look(kind, account, reading, token)
        except Exception as error:
            if database.is_lost(error):
                raise
            log.warning("Reading the %s failed: %s", reading, error)
            problem = redact(f"{type(error).__name__}: {error}")[:2000]
    readings.done(reading, token, readings.interval(reading, kind), problem=problem, found=found)
    return True


def _look(kind: Offers, account: Account, reading: Reading, token: uuid.UUID) -> tuple[int, str]:
    match reading.what:
        case Reading.What.PLACES:
            places = list(kind.places(account))
            return readings.spread(reading, token, places), "" if places else "The account has no locations."
        case Reading.What.INVENTORY:
            offers = kind.inventory(account, reading.place)
            if catalogue.write(reading, token, offers) or reading.seen_at is None:
                hints.send("serve", kind.resource_type)  # type: ignore[attr-defined]
            return len(offers), ""
        case Reading.What.ALLOWANCES:
            bounds = kind.allowances(account, reading.place) if isinstance(kind, Allows) else ()
            if allowances.write(reading, token, bounds):
                hints.send("serve", kind.resource_type)  # type: ignore[attr-defined]
            return len(bounds), ""
        case _:
            seen = kind.observe(account, reading.place, standing().short)
            setbacks.mended(reading.kind, account.name, kind.unauthenticated)
            doubts = status.apply(reading, token, seen)
            return len(seen), suspects.settle(kind, account, doubts) if doubts is not None else ""
