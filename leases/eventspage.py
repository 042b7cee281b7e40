"""The page on events, made from the table below: `python -m leases.eventspage > docs/events.md`."""

from __future__ import annotations

from collections.abc import Mapping

from leases.reasons import Reason
from leases.states import LeaseState, ResourceState

EVENTS: Mapping[str, str] = {
    "authorization.requested": "Somebody asks to use a blueprint.",
    "authorization.authorized": "A user or group may use it.",
    "authorization.declined": "A request was declined, or a permission taken back.",
    "budget.set": "What a user, a group or a blueprint may cost an hour was set.",
    "budget.removed": "A budget was removed.",
    "blueprint.added": "A blueprint was added.",
    "blueprint.changed": "Its columns or its config were changed; the message says which.",
    "blueprint.checked": "It was looked at whether it could work, and what was found.",
    "blueprint.enabled": "It serves.",
    "blueprint.disabled": "It serves nobody new.",
    "blueprint.drained": "It builds nothing new, and its idle resources are removed.",
    "blueprint.undrained": "It serves again.",
    "blueprint.error_cleared": "A remembered failure was forgotten by a person.",
    "blueprint.scanned": "An operator looked at the keys that a host shows; the message has its address.",
    "blueprint.removed": "It was removed; its history stays.",
    "credential.validated": "Its provider was put through the behaviour suite; the message tells how that went.",
    "credential.added": "Secrets were stored under a name. Which ones is never told.",
    "credential.changed": "Other secrets were stored under it, or its note was changed.",
    "credential.mended": "A listing with it works again: what was refused for it is tried again.",
    "credential.read": "An operator had everything read that is read with it.",
    "credential.removed": "It was removed.",
    "credential.deleted": "The same, in the console.",
    "installation.suspended": "Nothing outside is touched until an operator confirms; the message says why.",
    "installation.confirmed": "An operator has confirmed; a new epoch begins.",
    "lease.activation_failed": "Setting a lease up on its resource failed; it waits again, or is broken.",
    "lease.cleaned": "It was cleaned in an unexpected state.",
    "lease.command": "A command was run on it. Only the program's name is told.",
    "lease.extended": "It lasts longer.",
    "lease.file": "A file of it was written or removed.",
    "lease.held": "Its resource is kept as it is for debugging.",
    "lease.unheld": "The hold has ended.",
    "lease.httpd": "Something was done with its web server.",
    "lease.job": "A job was asked for, or is to end.",
    "lease.workload": "A workload begins, or has ended; the message and the details say how.",
    "lease.key_shown": "Its generated private key was shown to its owner.",
    "lease.maintenance": "Maintenance of what it stands on waits for it.",
    "lease.shortened": "It ends earlier than was asked for: the message says which limit applies, and who sets it.",
    "lease.retry": "A person had it tried again at once.",
    "lease.yields": "It gave what it held to an older one, and waits again.",
    "machine.asked": "A reboot, a larger disk, another type or tags were asked for; `details` names the `act`.",
    "machine.console": "Its console was read by somebody.",
    "machine.done": "What was asked of a machine is done.",
    "machine.failed": "It could not be done; the machine is as it was.",
    "orphan.seen": "Something at a provider bears our tag and has no row.",
    "orphan.suspect": "Something bears our tag and does not prove to be ours. It is never touched.",
    "orphan.wanted": "A person wants it destroyed, or adopted; done once it was seen twice.",
    "orphan.adopted": "It has a row again, in quarantine.",
    "orphan.destroying": "It was seen again, and is being destroyed.",
    "orphan.destroyed": "It was destroyed.",
    "orphan.gone": "It is no longer there.",
    "user.added": "A user was added.",
    "user.password_set": "A user was given another password.",
    "user.disabled": "A user's password and tokens are refused.",
    "user.enabled": "They are accepted again.",
    "user.groups_changed": "A user joined or left groups; the message says which.",
    "quota.set": "What a user or group may hold was set.",
    "quota.removed": "A quota was removed.",
    "resource.check": "A person asked for a health check.",
    "resource.check_failed": "A health check failed.",
    "resource.cleaned": "What a lost lease had left on it, or what was put aside there, is gone.",
    "resource.cleaning_failed": "What a lease left on it could not be cleaned, or was put aside: see the message.",
    "resource.destroy_failed": "Its destruction failed twice, or was accepted and not done in time; it is tried again."
    " `details`: the cost (`hourly`).",
    "resource.drained": "It gets no new leases, and is removed once idle.",
    "resource.undrained": "It serves again.",
    "resource.forced": "A person vouched that it is gone.",
    "resource.found": "One that was missing, doubted or stopped is there again.",
    "resource.lost": "It was missing twice.",
    "lease.interruption": "The provider of its machine has announced that it takes it back soon.",
    "resource.interruption": "Its provider has announced that it takes it back soon; the message has its words.",
    "resource.suspected": "It may be gone, says a listing; it is asked for by its own id. Nothing else changes.",
    "resource.vanished": "It is gone with everything else of its account: nothing is removed because of that alone.",
    "resource.stopped": "Somebody else switched it off. It is kept for a while; the message says for how long.",
    "resource.tags_restored": "Somebody had removed the tags by which it is known as ours; they were put back.",
    "resource.gone_with_parents": "What it stood on is gone, and it with that.",
    "resource.maintenance": "It is being worked on for another resource.",
    "resource.owes": "What a lost lease left on it is cleaned before anybody else gets it.",
    "resource.unreachable": "It does not answer: nobody is given it until a check finds it well.",
    "resource.reachable": "It answers again, and serves.",
    "resource.changed": "A person corrected what was said when it was registered; it is checked again.",
    "resource.part": "A named part of it came, went or changed.",
    "resource.power": "Its power was switched, or is to be.",
    "resource.power_failed": "Switching its power failed.",
    "resource.quarantined": "It was taken out of service as it is: by a person, or since nobody else may get it so.",
    "resource.unquarantined": "It is back in service.",
    "resource.updated": "It was brought to its blueprint as it is now.",
    "resource.update_failed": "That failed.",
    "step.done": "A step of a plan is done.",
    "step.failed": "A step failed; `details` has its name (`step`) and the provider's own word for it (`code`).",
    "step.hold": "A step waits for a person; the message says for whom and what.",
    "step.resolved": "A person has done it.",
    "step.log": "What a step has written, blotted of secrets.",
    "token.created": "A token for the REST API was made.",
    "token.revoked": "A token was revoked.",
}
"""Kind -> what happened. Transitions of leases and resources are not in it: they come from the tables of states."""

_HEAD = """# Events

What happened, to what, why, by whom: `drydock events --follow`, `/api/v1/events`, and the timelines of the console.
Made from `leases/eventspage.py` and `leases/states.py` by `make docs`.

Every event has `id` (it grows; go on from the last one you have seen), `at` (the database's clock), `kind`, the ids of
the lease, resource and blueprint that it is about where it is about one, `message` (one sentence), `actor`, and
sometimes `details`. Transitions also have `from_state`, `to_state`, `reason` and `duration` (how long the state before
has lasted). They are written by the database's own triggers, in the transaction of the change: none can be missing.
No event has a secret. Events are kept for `DRYDOCK_EVENT_RETENTION_DAYS`.

| kind | what happened |
|---|---|"""


def transitions() -> dict[str, str]:
    """The kinds of events that triggers write: one for each state that something comes to."""
    return {
        f"{what}.{state}": f"A {what} came to the state `{state}`: see [states](states.md)."
        for what, states in (("lease", LeaseState), ("resource", ResourceState))
        for state in states
    }


def reasons() -> dict[str, str]:
    """The kinds of events that say why a lease is still in its state."""
    waits = (reason for reason in Reason if reason.startswith("waiting_") or reason in _WAITS)
    return {f"lease.{reason}": "Why it is still in its state has changed to this reason." for reason in waits}


_WAITS = (
    Reason.HELD,
    Reason.NEEDS_OPERATOR,
    Reason.BUDGET_ENDS,
    Reason.MACHINE_STOPPED,
    Reason.SUSPECTED,
    Reason.READY,
)


def page() -> str:
    """The whole page."""
    every = {**transitions(), **reasons(), **EVENTS}
    return "\n".join([_HEAD, *(f"| `{kind}` | {every[kind]} |" for kind in sorted(every))]) + "\n"


if __name__ == "__main__":
    print(page(), end="")
