"""Generates docs/events.md, which describes every kind of event."""

from __future__ import annotations

from collections.abc import Mapping

from leases.reasons import Reason
from leases.states import LeaseState, ResourceState

EVENTS: Mapping[str, str] = {
    "authorization.requested": "A user requested authorization to use a blueprint.",
    "authorization.authorized": "A user or group was authorized to use it.",
    "authorization.declined": "A request for authorization was declined, or an authorization was withdrawn.",
    "budget.set": "The hourly budget of a user, a group or a blueprint was set.",
    "budget.removed": "A budget was removed.",
    "blueprint.added": "A blueprint was added.",
    "blueprint.changed": "Its columns or config were changed; the message says which.",
    "blueprint.checked": "It was checked; the message has the result.",
    "blueprint.enabled": "It was enabled.",
    "blueprint.disabled": "It was disabled and serves no new leases.",
    "blueprint.drained": "It builds nothing new, and its idle resources are removed.",
    "blueprint.undrained": "It builds resources again.",
    "blueprint.error_cleared": "An operator cleared a remembered error.",
    "blueprint.scanned": "An operator read the keys of a host; the message has its address.",
    "blueprint.removed": "It was removed; its history is kept.",
    "credential.validated": "Its provider was validated; the message has the result.",
    "credential.added": "Secrets were stored under a name. Their values are never shown.",
    "credential.changed": "Its secrets were replaced, or its note was changed.",
    "credential.mended": "A poll with it succeeded again; operations that failed because of it are retried.",
    "credential.read": "An operator requested all polls of its account.",
    "credential.removed": "It was removed.",
    "credential.deleted": "It was removed in the console.",
    "installation.suspended": "The installation was suspended; the message has the reason.",
    "installation.confirmed": "An operator confirmed the installation, which begins a new epoch.",
    "lease.activation_failed": "Its activation failed; it waits again or is broken.",
    "lease.cleaned": "Its resource was cleaned in an unexpected state.",
    "lease.command": "A command was run on it. Only the program's name is recorded.",
    "lease.extended": "It was extended.",
    "lease.file": "One of its files was written or removed.",
    "lease.held": "It is held: its resource is kept unchanged for debugging.",
    "lease.unheld": "Its hold ended.",
    "lease.httpd": "Its web server was changed; the message says how.",
    "lease.job": "A job was requested or cancelled.",
    "lease.transferred": "It was given to another user; the message says from whom to whom.",
    "lease.keys_replaced": "After a transfer its keys were replaced on the host; the former owner lost access.",
    "lease.transfer_failed": "After a transfer its keys could not be replaced, so it ends.",
    "lease.workload": "Its workload started or ended; the message and the details say how.",
    "lease.key_shown": "Its generated private key was shown to its owner.",
    "lease.maintenance": "Maintenance of a resource that it uses waits for it.",
    "lease.shortened": "It ends earlier than requested; the message names the limit.",
    "lease.noted": "Its note was changed or removed. The text is not recorded.",
    "lease.retry": "A user retried it.",
    "lease.yields": "It was preempted: an older lease got its resources, and it waits again.",
    "machine.asked": "A reboot, a larger disk, another type or tags were requested; `details` names the `act`.",
    "machine.console": "Its console output was read.",
    "machine.done": "A requested action on a machine was completed.",
    "machine.failed": "A requested action on a machine failed; the machine is unchanged.",
    "orphan.seen": "A provider object with our tag but without a row was found.",
    "orphan.suspect": "A provider object with our tag but without a valid proof was found. It is never touched.",
    "orphan.wanted": "An operator requested to destroy or adopt it, which happens once it has been seen twice.",
    "orphan.adopted": "It was adopted as a quarantined resource.",
    "orphan.destroying": "It still exists and is being destroyed.",
    "orphan.destroyed": "It was destroyed.",
    "orphan.gone": "It no longer exists.",
    "user.added": "A user was added.",
    "user.password_set": "A user's password was changed.",
    "user.disabled": "A user was disabled: password and tokens are refused.",
    "user.enabled": "A user was enabled again.",
    "user.groups_changed": "A user joined or left groups; the message says which.",
    "quota.set": "The quota of a user or group was set.",
    "quota.removed": "A quota was removed.",
    "resource.check": "An operator requested a health check.",
    "resource.check_failed": "A health check failed.",
    "resource.cleaned": "Remains of a lost lease, or files that had been moved aside, were removed.",
    "resource.cleaning_failed": "Remains of a lease could not be cleaned, or were moved aside; see the message.",
    "resource.destroy_failed": "Its destruction failed twice, or was not completed in time; it is retried."
    " `details`: the cost (`hourly`).",
    "resource.drained": "It was drained: it serves no new leases and is removed once idle.",
    "resource.undrained": "It serves new leases again.",
    "resource.forced": "An operator confirmed that it no longer exists.",
    "resource.found": "It was missing, suspected or stopped, and was found again.",
    "resource.lost": "Two discoveries did not find it.",
    "lease.interruption": "The provider announced that it will take the lease's machine back soon.",
    "resource.interruption": "The provider announced that it will take it back soon; the message quotes it.",
    "resource.suspected": "A listing suggests that it no longer exists, so it is read by its id. Nothing else changes.",
    "resource.vanished": "It disappeared together with all other machines of its account. This alone removes nothing.",
    "resource.stopped": "It was switched off from outside. The message states how long it is kept.",
    "resource.tags_restored": "Tags that mark it as ours had been removed, and were restored.",
    "resource.gone_with_parents": "Its parent resource no longer exists, so neither does it.",
    "resource.maintenance": "It is in maintenance for another resource.",
    "resource.owes": "It must be cleaned after a lost lease before it serves another.",
    "resource.unreachable": "It does not answer and serves no new leases until a check succeeds.",
    "resource.reachable": "It answers and serves leases again.",
    "resource.changed": "An operator corrected its registration; it is checked again.",
    "resource.part": "A named part of it appeared, disappeared or changed.",
    "resource.power": "A change of its power was requested or completed.",
    "resource.power_failed": "Switching its power failed.",
    "resource.quarantined": "It was quarantined by an operator, or because no other lease may use it.",
    "resource.unquarantined": "It was put back into service.",
    "resource.updated": "It was updated to its blueprint's current config.",
    "resource.update_failed": "Updating it failed.",
    "step.done": "A step of a plan was completed.",
    "step.failed": "A step failed; `details` has its name (`step`) and the provider's `code`.",
    "step.hold": "A step waits for a person; the message names the person and the task.",
    "step.resolved": "An operator confirmed the task that a step waited for.",
    "step.log": "The output of a step, with secrets removed.",
    "token.created": "A token for the REST API was created.",
    "token.revoked": "A token was revoked.",
}

"""Kinds of events with their descriptions. Transitions of leases and resources are left out; they come from the state
tables."""

_HEAD = """# Events

Events record what happened, to which object, why, and who caused it. Read them with `drydock events --follow`,
`/api/v1/events`, or in the timelines of the console. `make docs` generates this page from
`drydock/reference/events.py` and `leases/states.py`.

Every event has an increasing `id` (continue from the last one that you have seen), `at` (the database's clock), `kind`,
`message` (one sentence), `actor`, the ids of its lease, resource and blueprint, if any, and sometimes `details`.
Transitions also have `from_state`, `to_state`, `reason` and `duration` (how long the previous state lasted). Triggers
of the database write them in the transaction of the change, so none can be missing. Events contain no secrets. They are
kept for `DRYDOCK_EVENT_RETENTION_DAYS`.

| kind | meaning |
|---|---|"""


def transitions() -> dict[str, str]:
    """Return the kinds of events that triggers write: one for each state of a lease or resource."""
    return {
        f"{what}.{state}": f"A {what} changed to the state `{state}`; see [states](states.md)."
        for what, states in (("lease", LeaseState), ("resource", ResourceState))
        for state in states
    }


def reasons() -> dict[str, str]:
    """Return the kinds of events that explain why a lease is still in its state."""
    waits = (reason for reason in Reason if reason.startswith("waiting_") or reason in _WAITS)
    return {f"lease.{reason}": f"The reason of a lease changed to `{reason}`." for reason in waits}


_WAITS = (
    Reason.HELD,
    Reason.NEEDS_OPERATOR,
    Reason.BUDGET_ENDS,
    Reason.MACHINE_STOPPED,
    Reason.SUSPECTED,
    Reason.READY,
)


def page() -> str:
    """Return the content of the page."""
    every = {**transitions(), **reasons(), **EVENTS}
    return "\n".join([_HEAD, *(f"| `{kind}` | {every[kind]} |" for kind in sorted(every))]) + "\n"


if __name__ == "__main__":
    print(page(), end="")
