"""Resources that are older than their blueprint, of kinds that update in place."""

from __future__ import annotations

from blueprints import registry
from blueprints.contract import Updates
from leases.engine.isolation import attempt
from leases.engine.transaction import rows, run


def updating(*, at_once: bool = False) -> list[str]:
    """The kinds, of those that have blueprints, that update in place; `at_once`: those that do so within seconds."""
    names = [kind for (kind,) in rows("SELECT DISTINCT kind FROM blueprints_blueprint")]
    kinds = {name: attempt(registry.kind, name) for name in names}
    return [name for name, kind in kinds.items() if isinstance(kind, Updates) and (kind.at_once or not at_once)]


_CLOSE = """
    UPDATE leases_resource SET in_maintenance = TRUE WHERE id = ANY(ARRAY(
        SELECT r.id FROM leases_resource r JOIN blueprints_blueprint b ON b.id = r.blueprint_id
        WHERE b.id = %s AND r.state = 'active' AND r.generation < b.generation ORDER BY r.id FOR NO KEY UPDATE OF r))"""


def close(blueprint_id: int, kind: str) -> None:
    """Give outdated resources to nobody before they are updated, where that takes seconds: what was made for one config
    is not leased under another. Inside the transaction that changes the blueprint."""
    found = registry.kind(kind)
    if isinstance(found, Updates) and found.at_once:
        run(_CLOSE, (blueprint_id,))
