"""Generates docs/events.md, which describes every kind of event."""

from __future__ import annotations

from collections.abc import Mapping

from leases.reasons import Reason
from leases.states import LeaseState, ResourceState

EVENTS: Mapping[str, str] = {
    "authorization.requested": "A user asked for permission to use a blueprint.",
    "authorization.authorized": "A user or group was given permission to use it.",
    "authorization.declined": "A request for permission was declined, or a permission was withdrawn.",
    "budget.set": "The hourly budget of a user, a group or a blueprint was set.",
    "budget.removed": "A budget was removed.",
    "blueprint.added": "A blueprint was added.",
    "blueprint.changed": "Its columns or config were changed; the message says which.",
    "blueprint.checked": "It was checked; the message has the result.",
    "blueprint.enabled": "It was enabled.",
    "blueprint.disabled": "It was disabled and serves no new lease.",
    "blueprint.drained": "It builds nothing new, and its idle resources are removed.",
    "blueprint.undrained": "It builds again.",
    "blueprint.error_cleared": "A person cleared a remembered error.",
    "blueprint.scanned": "An operator read the keys that a host presents; the message has its address.",
    "blueprint.removed": "It was removed; its history stays.",
    "credential.validated": "Its provider was run through the behaviour suite; the message has the result.",
    "credential.added": "Secrets were stored under a name. Their values are never shown.",
    "credential.changed": "Its secrets were replaced, or its note was changed.",
    "credential.mended": "A listing with it works again; what failed because of it is retried.",
    "credential.read": "An operator requested all polls of its account.",
    "credential.removed": "It was removed.",
    "credential.deleted": "It was removed in the console.",
    "installation.suspended": "Nothing outside is changed until an operator confirms; the message says why.",
    "installation.confirmed": "An operator confirmed the installation, which begins a new epoch.",
    "lease.activation_failed": "Its activation failed; it waits again or is broken.",
    "lease.cleaned": "It was cleaned in an unexpected state.",
    "lease.command": "A command was run on it. Only the program's name is recorded.",
    "lease.extended": "It was extended.",
    "lease.file": "One of its files was written or removed.",
    "lease.held": "Its resource is kept as it is for debugging.",
    "lease.unheld": "Its hold ended.",
    "lease.httpd": "Its web server was changed; the message says how.",
    "lease.job": "A job was requested or cancelled.",
    "lease.transferred": "It was given to another user; the message says from whom to whom.",
    "lease.keys_replaced": "After a transfer its keys were replaced on the host; the former owner lost access.",
    "lease.transfer_failed": "After a transfer its keys could not be replaced, so it ends.",
    "lease.workload": "Its workload started or ended; the message and the details say how.",
    "lease.key_shown": "Its generated private key was shown to its owner.",
    "lease.maintenance": "Maintenance of a resource that it depends on waits for it.",
    "lease.shortened": "It ends earlier than requested: the message says which limit applies, and who sets it.",
    "lease.noted": "Its note was changed or removed. The text is not recorded.",
    "lease.retry": "A person had it retried at once.",
    "lease.yields": "It was preempted: it gave what it held to an older lease, and waits again.",
    "machine.asked": "A reboot, a larger disk, another type or tags were requested; `details` names the `act`.",
    "machine.console": "Its console output was read.",
    "machine.done": "A requested action on a machine is done.",
    "machine.failed": "A requested action on a machine failed; the machine is unchanged.",
    "orphan.seen": "A provider object has our tag and no row.",
    "orphan.suspect": "A provider object has our tag but no proof that it is ours. It is never touched.",
    "orphan.wanted": "A person wants it destroyed or adopted, which is done once it was seen twice.",
    "orphan.adopted": "It was given a row again, in quarantine.",
    "orphan.destroying": "It was seen again, and is being destroyed.",
    "orphan.destroyed": "It was destroyed.",
    "orphan.gone": "It no longer exists.",
    "user.added": "A user was added.",
    "user.password_set": "A user's password was changed.",
    "user.disabled": "A user was disabled: password and tokens are refused.",
    "user.enabled": "A user was enabled again.",
    "user.groups_changed": "A user joined or left groups; the message says which.",
    "quota.set": "The quota of a user or group was set.",
    "quota.removed": "A quota was removed.",
    "resource.check": "A person requested a health check.",
    "resource.check_failed": "A health check failed.",
    "resource.cleaned": "What a lost lease had left on it, or what was moved aside there, was removed.",
    "resource.cleaning_failed": "What a lease left on it could not be cleaned, or was moved aside; see the message.",
    "resource.destroy_failed": "Its destruction failed twice, or was accepted and not done in time; it is tried again."
    " `details`: the cost (`hourly`).",
    "resource.drained": "It serves no new lease and is removed once idle.",
    "resource.undrained": "It serves new leases again.",
    "resource.forced": "A person vouched that it no longer exists.",
    "resource.found": "It was missing, suspected or stopped, and is back.",
    "resource.lost": "It was missing twice.",
    "lease.interruption": "The provider announced that it will take the lease's machine back soon.",
    "resource.interruption": "The provider announced that it will take it back soon; the message quotes it.",
    "resource.suspected": "It may be gone according to a listing, so it is read by its id. Nothing else changes.",
    "resource.vanished": "It is gone with everything else of its account. That alone removes nothing.",
    "resource.stopped": "Somebody else switched it off. The message says for how long it is kept.",
    "resource.tags_restored": "Somebody had removed the tags that mark it as ours; they were restored.",
    "resource.gone_with_parents": "A resource that it existed inside is gone, and so is it.",
    "resource.maintenance": "It is in maintenance for another resource.",
    "resource.owes": "What a lost lease left on it is cleaned before it serves another.",
    "resource.unreachable": "It does not answer and serves no new lease until a check succeeds.",
    "resource.reachable": "It answers and serves again.",
    "resource.changed": "A person corrected its registration; it is checked again.",
    "resource.part": "A named part of it appeared, disappeared or changed.",
    "resource.power": "Its power was switched, or will be.",
    "resource.power_failed": "Switching its power failed.",
    "resource.quarantined": "It was taken out of service as it is: by a person, or because no other lease may use it.",
    "resource.unquarantined": "It was put back into service.",
    "resource.updated": "It was updated to its blueprint's current config.",
    "resource.update_failed": "Updating it failed.",
    "step.done": "A step of a plan is done.",
    "step.failed": "A step failed; `details` has its name (`step`) and the provider's `code`.",
    "step.hold": "A step waits for a person; the message says for whom and what.",
    "step.resolved": "A person did what a step waited for.",
    "step.log": "The output of a step, with secrets removed.",
    "token.created": "A token for the REST API was created.",
    "token.revoked": "A token was revoked.",
}

"""Kinds of events with their descriptions. Transitions of leases and resources are left out; they come from the state
tables."""

_HEAD = """# Events

A record of what happened, to what, why and by whom: `drydock events --follow`, `/api/v1/events`, and the timelines of
the console. `make docs` generates this page from `drydock/reference/events.py` and `leases/states.py`.

Every event has an `id` that grows (continue from the last one that you have seen), `at` (the database's clock), `kind`,
the ids of the lease, resource and blueprint that it is about, if any, `message` (one sentence), `actor`, and sometimes
`details`. Transitions also have `from_state`, `to_state`, `reason` and `duration` (how long the previous state lasted).
Triggers of the database write them in the transaction of the change, so none can be missing. Events contain no secrets.
They are kept for `DRYDOCK_EVENT_RETENTION_DAYS`.

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
    return {f"lease.{reason}": "The reason why it is still in its state changed to this one." for reason in waits}


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
