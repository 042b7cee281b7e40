"""Generates docs/events.md, which describes every kind of event."""

from __future__ import annotations

from collections.abc import Mapping

from leases.reasons import Reason
from leases.states import LeaseState, ResourceState

EVENTS: Mapping[str, str] = {
    "authorization.requested": "A user requested authorization to use a blueprint.",
    "authorization.authorized": "A user or group was authorized to use a blueprint.",
    "authorization.declined": "A request for authorization was declined, or an authorization was withdrawn.",
    "budget.set": "The hourly budget of a user, a group or a blueprint was set.",
    "budget.removed": "A budget was removed.",
    "agent.code_created": "An operator created a code with which one agent may join. The code is not recorded.",
    "agent.joined": "The agent of a host joined a blueprint.",
    "agent.silent": "An agent stopped reporting, or never began; the resources of its host serve no new leases.",
    "agent.returned": "A silent agent reports again; the resources of its host are back in service.",
    "agent.refused": "A report of an agent was refused; the message says why. Its last good report stays in force.",
    "agent.clock_off": "The clock of an agent's host is wrong by more than a minute.",
    "agent.outdated": "An agent is older than the server.",
    "agent.ordered": "An operator gave an agent an order.",
    "agent.order_ended": "An agent has carried out an order, or failed to.",
    "agent.endpoint_announced": "An agent listens at an address or with a certificate that an operator has to confirm.",
    "agent.endpoint_confirmed": "An operator confirmed the endpoint at which the server calls an agent.",
    "agent.install_step": "A step of installing the agent on a host, or of removing it, began.",
    "agent.installed": "An operator had the program of the agent installed on a host.",
    "agent.uninstalled": "An operator had the program of the agent removed from a host.",
    "agent.revoked": "An operator revoked an agent; its token stopped working.",
    "blueprint.added": "A blueprint was added.",
    "blueprint.changed": "Columns or the config of a blueprint were changed; the message says which.",
    "blueprint.checked": "A blueprint was checked; the message has the result.",
    "blueprint.enabled": "A blueprint was enabled.",
    "blueprint.disabled": "A blueprint was disabled and serves no new leases.",
    "blueprint.drained": "A blueprint was drained: it builds nothing new, and its idle resources are removed.",
    "blueprint.undrained": "A drained blueprint was put back into service.",
    "blueprint.error_cleared": "An operator cleared a remembered error of a blueprint.",
    "blueprint.scanned": "An operator read the keys that a host presents; the message has its address.",
    "blueprint.removed": "A blueprint was removed; its history is kept.",
    "credential.validated": "The provider of a credential was validated; the message has the result.",
    "credential.added": "Secrets were stored under a name. Their values are never shown.",
    "credential.changed": "The secrets or the note of a credential were changed.",
    "credential.mended": "A poll with a credential succeeded again; operations that failed because of the credential "
    "are retried.",
    "credential.read": "An operator requested all polls of a credential's account.",
    "credential.removed": "A credential was removed.",
    "credential.deleted": "A credential was removed in the console.",
    "installation.suspended": "The installation was suspended; the message has the reason.",
    "installation.confirmed": "An operator confirmed the installation, which begins a new epoch.",
    "lease.activation_failed": "The activation of a lease failed; the lease waits again or is broken.",
    "lease.attested": "The machine of a lease returned a TDX or TPM quote; the message has the verdict.",
    "lease.cleaned": "The resource of a lease was cleaned in an unexpected state.",
    "lease.command": "A command was run on a lease. Only the name of the program is recorded.",
    "lease.extended": "A lease was extended.",
    "lease.file": "A file of a lease was written or removed.",
    "lease.health": "The health of the resource that a lease holds changed.",
    "lease.held": "A lease is held: its resource is kept unchanged for debugging.",
    "lease.unheld": "The hold of a lease ended.",
    "lease.httpd": "The web server of a lease was changed; the message says how.",
    "lease.dpu_chain": "Interfaces of a leased DPU were connected by a chain, or a chain was removed.",
    "lease.dpu_credential": "A credential of a leased DPU was requested, shown to the owner or removed.",
    "lease.dpu_network": "A network of a leased DPU was created or removed.",
    "lease.dpu_service": "A service on a leased DPU was applied or removed. Its Helm values are not recorded.",
    "lease.dpu_volume": "A volume of a leased DPU was created or removed.",
    "lease.dpu_vpc": "A VPC of a leased DPU was created or removed.",
    "lease.job": "A job was requested or cancelled.",
    "lease.transferred": "A lease was transferred; the message names the former and the new owner.",
    "lease.keys_replaced": "After a transfer, the keys of a lease were replaced on the host; the former owner lost "
    "access.",
    "lease.transfer_failed": "After a transfer, the keys of a lease could not be replaced, so the lease ends.",
    "lease.workload": "The workload of a lease started or ended; the message and the details say how.",
    "lease.key_shown": "The generated private key of a lease was shown to its owner.",
    "lease.maintenance": "Maintenance of a resource waits until a lease on the resource ends, or interrupts the lease; "
    "the message says which.",
    "lease.shortened": "A lease ends earlier than requested; the message names the limit.",
    "lease.noted": "The note of a lease was changed or removed. The text is not recorded.",
    "lease.retry": "A user retried a lease.",
    "lease.yields": "A lease was preempted: an older lease got its resources, and the lease waits again.",
    "machine.asked": "A reboot, a larger disk, another type or tags were requested for a machine; `details` names the "
    "`act`.",
    "console.attached": "A user attached to the console of a machine, and types there or only reads.",
    "console.taken": "A user took over typing at the console of a machine from another one.",
    "machine.console": "The console output of a machine was read.",
    "machine.done": "A requested action on a machine was completed.",
    "machine.failed": "A requested action on a machine failed; the machine is unchanged.",
    "act.asked": "An act of a kind was requested; `details` has its name (`act`) and its `arguments`.",
    "act.cancelling": "The cancellation of an act was requested.",
    "act.done": "An act succeeded.",
    "act.failed": "An act failed; the message says why.",
    "act.cancelled": "An act was cancelled.",
    "orphan.seen": "A provider object with this installation's tag, but without a row, was found.",
    "orphan.suspect": "A provider object with this installation's tag, but without a valid proof, was found. It is "
    "never touched.",
    "orphan.wanted": "An operator requested to destroy or adopt an orphan, which happens once it has been seen twice.",
    "orphan.adopted": "An orphan was adopted as a quarantined resource.",
    "orphan.destroying": "An orphan still exists and is being destroyed.",
    "orphan.destroyed": "An orphan was destroyed.",
    "orphan.gone": "An orphan no longer exists.",
    "user.added": "A user was added.",
    "user.password_set": "A user's password was changed.",
    "user.disabled": "A user was disabled: password and tokens are refused.",
    "user.enabled": "A user was enabled again.",
    "user.groups_changed": "A user joined or left groups; the message says which.",
    "quota.set": "The quota of a user or group was set.",
    "quota.removed": "A quota was removed.",
    "resource.check": "An operator requested a health check of a resource.",
    "resource.check_failed": "A health check of a resource failed.",
    "resource.cleaned": "A resource was cleaned after an ended or lost lease, or files that had been moved aside were "
    "removed.",
    "resource.cleaning": "An attempt to clean a resource after an ended or lost lease began.",
    "resource.cleaning_failed": "Remains of a lease could not be cleaned, or were moved aside; see the message.",
    "resource.erased": "A disk of a resource was erased and verified; `details` has the id of the `record`.",
    "resource.erasure_failed": "A disk of a resource could not be erased, or the erasure could not be verified.",
    "resource.destroy_failed": "The destruction of a resource failed twice, or was not completed in time; it is "
    "retried."
    " `details`: the cost (`hourly`).",
    "resource.drained": "A resource was drained: it serves no new leases and is removed once idle.",
    "resource.undrained": "A drained resource was put back into service.",
    "resource.forced": "An operator confirmed that a resource no longer exists.",
    "resource.credential": "An operator or a step stored, or an operator removed, the own credential of a resource.",
    "resource.health": "The health of a resource changed between ok, degraded and failed.",
    "resource.found": "A resource that was missing, suspected or stopped was found again.",
    "resource.moved": "A resource was found in another host, so its leases ended; the message names both hosts.",
    "resource.lost": "Two discoveries did not find a resource.",
    "lease.interruption": "The provider announced that it will soon take back the machine of a lease.",
    "resource.interruption": "The provider announced that it will soon take back a machine; the message quotes the "
    "announcement.",
    "resource.suspected": "A listing suggests that a resource no longer exists, so it is read by its id. Nothing else "
    "changes.",
    "resource.vanished": "A machine disappeared together with all other machines of its account. This alone removes "
    "nothing.",
    "resource.stopped": "A machine was stopped from outside. The message states how long it is kept.",
    "resource.tags_restored": "The tags that mark a resource as belonging to this installation had been removed, and "
    "were restored.",
    "resource.gone_with_parents": "A resource no longer exists, because its parent resource no longer exists.",
    "resource.maintenance": "A resource is in maintenance because a related resource needs it.",
    "resource.owes": "A resource must be cleaned after a lease before it serves another lease.",
    "resource.unreachable": "A resource does not answer, and serves no new leases until a check succeeds.",
    "resource.reachable": "A resource answers and serves leases again.",
    "resource.changed": "An operator corrected the registration of a resource, which is checked again.",
    "resource.no_reboots": "An operator forbade maintenance to reboot a resource; the message gives the reason.",
    "resource.reboots_allowed": "An operator allowed maintenance to reboot a resource again.",
    "resource.part": "A named part of a resource appeared, disappeared or changed.",
    "resource.power": "A resource was switched on or off or power-cycled, or this was requested.",
    "resource.power_failed": "Switching a resource on or off, or cycling its power, failed.",
    "resource.quarantined": "A resource was quarantined by an operator, or because no other lease may use it.",
    "resource.unquarantined": "A quarantined resource was put back into service.",
    "resource.outdated": "A resource was found to differ from its blueprint; it is updated before its next lease.",
    "resource.updated": "A resource was updated to the current config of its blueprint.",
    "resource.update_forced": "An operator forced the update of a leased resource; the message gives the reason.",
    "resource.update_failed": "The update of a resource failed.",
    "step.done": "A step of a plan was completed.",
    "step.failed": "A step failed; `details` has its name (`step`) and the provider's `code`.",
    "step.hold": "A step waits for a person; the message names the person and the task.",
    "step.resolved": "An operator answered a step that waited for a person; the details have the answer.",
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
    Reason.UPDATING,
    Reason.SUSPECTED,
    Reason.READY,
)


def page() -> str:
    """Return the content of the page."""
    every = {**transitions(), **reasons(), **EVENTS}
    return "\n".join([_HEAD, *(f"| `{kind}` | {every[kind]} |" for kind in sorted(every))]) + "\n"


if __name__ == "__main__":
    print(page(), end="")
