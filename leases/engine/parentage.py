"""What a resource stands on while it is destroyed: the leases it held for life, as they last were, or their loss.

A lease that was lost may still be what leads to the thing that stands on it: a host that answers again, an account
that is not cleaned away yet. Where nothing is left of any of them, a thing that exists only inside them is gone, too.
"""

from __future__ import annotations

from blueprints import registry
from blueprints.contract import Activates, Cleans
from leases.engine.transaction import rows
from leases.models import Resource

_LAST = """
    SELECT DISTINCT ON (c.need) c.id, r.state = 'active', b.kind, EXISTS (
            SELECT FROM leases_share s WHERE s.lease_id = c.id AND s.resource_id = r.id)
        OR EXISTS (SELECT FROM leases_debt d WHERE d.lease_id = c.id AND d.resource_id = r.id)
    FROM leases_lease c JOIN leases_resource r ON r.id = c.resource_id JOIN blueprints_blueprint b ON b.id = r.blueprint_id
    WHERE c.for_resource_id = %s AND c.need <> '' AND c.need_phase = '' AND c.active_at IS NOT NULL
    ORDER BY c.need, c.id DESC"""


def last(resource_id: int) -> tuple[list[int], list[int]]:
    """The newest lease under every name that the resource held for life: those of which something is left, and those
    of which nothing is."""
    left, gone = list[int](), list[int]()
    for lease_id, there, kind, kept in rows(_LAST, (resource_id,)):
        (left if there and (kept or not _undone(kind)) else gone).append(lease_id)
    return left, gone


def _undone(kind: str) -> bool:
    """Whether the end of a lease of this kind removes all that it made possible."""
    return isinstance(registry.kind(kind), Activates | Cleans)


def is_lost(resource: Resource) -> bool:
    """True when it existed only inside others and nothing is left of any of them."""
    if not _gone_with_needs(resource):
        return False
    left, gone = last(resource.pk)
    return bool(gone) and not left


def is_bereaved(resource: Resource) -> bool:
    """True when something inside which it existed is gone, so that what is left may be out of reach for ever."""
    return _gone_with_needs(resource) and bool(last(resource.pk)[1])


def _gone_with_needs(resource: Resource) -> bool:
    return registry.kind(resource.blueprint.kind).gone_with_needs
