"""What something at a provider costs, by the catalogue."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from blueprints.models import Blueprint
from leases.engine.transaction import rows

_PRICE = """
    SELECT min(o.price) FROM blueprints_listing o JOIN blueprints_credential c ON c.id = o.credential_id
    WHERE c.name = %s AND o.kind = %s AND o.location = %s AND o.zone IN (%s, '') AND o.type = %s AND o.market = %s"""


def price(blueprint: Blueprint, facts: Mapping[str, Any]) -> float | None:
    """What a machine with these facts (`location`, `zone`, `type`, `market`) costs an hour; None where no offer says."""
    account = blueprint.config.get("credential", "") if isinstance(blueprint.config, dict) else ""
    where = [str(facts.get(name) or "") for name in ("location", "zone", "type")]
    found = rows(_PRICE, (account, blueprint.kind, *where, facts.get("market") or "on_demand"))
    return None if found[0][0] is None else float(found[0][0])
