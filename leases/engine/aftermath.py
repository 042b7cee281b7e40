"""After a share was given back and that is committed: whoever can use the room gets it."""

from __future__ import annotations

from leases.engine import quotas, retiring, serving
from leases.engine.children import end_waiting_siblings
from leases.engine.endpoint import Ending
from leases.reasons import Reason
from leases.states import ResourceState


def follow_up(ending: Ending) -> None:
    """Follow up a committed end: end the waiting leases of its group, unpark leases that wait for quota, retire what
    cannot be used again and hand over what has room."""
    if ending.in_group:
        end_waiting_siblings(ending.id)
    if ending.parked_siblings:
        quotas.unpark(ending.id)
    spare = ending.resource_id if ending.has_share and not ending.keep else None
    if spare is not None and ending.resource_state != ResourceState.PENDING:
        why, message = retiring.why_not_kept(spare)
        retiring.retire_idle(spare, reason=why, message=message)
    serving.hand_over(ending.type, ending.resource_id if ending.has_share and ending.keep else None)
    if spare is not None and ending.resource_state == ResourceState.PENDING:
        retiring.retire_idle(spare, reason=Reason.CANCELLED, message="Nobody wants it any more.", unwanted=True)
