"""Power as it is wanted: a resource that is found otherwise is switched. A stop that was asked for is no death."""

from __future__ import annotations

from blueprints import registry
from blueprints.contract import Powers
from leases import hints
from leases.engine.isolation import each
from leases.engine.runs import start
from leases.engine.transaction import rows, run, short
from leases.engine.transitions import lock_resource

_DUE = """
    SELECT r.id, b.kind FROM leases_resource r JOIN blueprints_blueprint b ON b.id = r.blueprint_id
    WHERE r.state = 'active' AND r.power_wanted <> '' AND r.power <> r.power_wanted
        AND (r.power_at IS NULL OR r.power_at <= clock_timestamp())
        AND NOT EXISTS (SELECT FROM leases_run n WHERE n.resource_id = r.id AND n.lease_id IS NULL) LIMIT 200"""


def due() -> int:
    """Begin to switch what is not as it is wanted and is not busy with something else."""
    return each(_switch, [row for row in rows(_DUE) if isinstance(registry.kind(row[1]), Powers)])


@short
def _switch(resource_id: int, kind: str) -> bool:
    lock_resource(resource_id)
    return begin(resource_id)


def begin(resource_id: int) -> bool:
    """Switch it as it is wanted; False where nothing is wanted, or it is busy. With the resource locked."""
    for (wanted,) in rows(
        "SELECT power_wanted FROM leases_resource WHERE id = %s AND state = 'active'", (resource_id,)
    ):
        return start(resource_id=resource_id, phase="power", wanted={"power": wanted}) is not None
    return False


@short
def want(resource_id: int, power: str) -> bool:
    """Keep it `on` or `off` from now; False when it is busy and switched as soon as it is not."""
    lock_resource(resource_id)
    run("UPDATE leases_resource SET power_wanted = %s, power_at = NULL WHERE id = %s", (power, resource_id))
    hints.after_commit("sweep")
    return begin(resource_id)


def is_wanted_off(resource_id: int) -> bool:
    """Whether an answer from it is not to be expected: it is wanted off, or somebody else switched it off."""
    off = "SELECT 1 FROM leases_resource WHERE id = %s AND (power_wanted = 'off' OR facts ? 'stopped')"
    return bool(rows(off, (resource_id,)))
