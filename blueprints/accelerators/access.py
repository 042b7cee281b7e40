"""Step actions that give a device to the account of a lease, and take it back. Everything runs as root on the host."""

from __future__ import annotations

from collections.abc import Sequence
from contextlib import suppress

from blueprints import devices
from blueprints.accelerators import nvidia
from blueprints.accelerators.host import host_of, shell
from blueprints.accelerators.nodes import closable, isolated, known_of, lacks_nodes, opens
from blueprints.answers import Answer, Failed, Json, Ready, Scope, Wait
from blueprints.devices import Account, DeviceRefused, Holder
from blueprints.hosts import lease_of
from blueprints.hostshell import CannotBecomeRoot, told
from blueprints.specs import LeaseView, Spec

GROUPS = "cgroup-v1"
_WHOLE = "machine"
"""Isolation of a lease that has the whole host, so that there is no other account to keep away."""
_NONE = "none"


@told
def find_account(spec: Spec, memo: Json) -> Answer:
    """Find out which account gets the device, before anything is opened to it."""
    lease, known = lease_of(spec), spec.resource.facts["device"]
    if lacks_nodes(known) and spec.config.isolation != _NONE:
        return _refused("no_nodes", f"The device nodes of {known['id']} are not known, so they cannot be isolated.")
    isolated(known)
    facts = {"opens": opens(spec)}
    if not known["nodes"]:
        return Ready(facts=facts | {"isolation": _NONE})
    host = host_of(lease)
    if host is None:
        return host_gone()
    between = host.facts.get("isolation", host.resource.attributes.get("isolation"))
    control = host.control()
    if control is not None and (between in ("uid", _WHOLE) or spec.config.isolation == _NONE):
        account = Account.of(control)
        return Ready(facts=facts | {"account": {"uid": account.uid, "gid": account.gid}})
    if control is None and (between == _WHOLE or host.asked.exclusive):
        return Ready(facts=facts | {"isolation": _WHOLE})
    if spec.config.isolation == _NONE:
        return Ready(facts=facts | {"isolation": _NONE})
    return _refused(
        "no_isolation",
        f"Leases share an account on {host.resource.name}, or can become root there, so the device nodes of "
        f"{known['id']} cannot be kept from other leases. Use a host whose leases have accounts of their own, or set "
        "isolation to none in the blueprint.",
    )


@told
def open_device(spec: Spec, memo: Json) -> Answer:
    """Open the device to the account, and tell the lease which device it has and how programs find it."""
    there = shell(spec)
    if there is not None:
        there.run("true")
    lease, known = lease_of(spec), known_of(spec)
    host = host_of(lease)
    if host is None:
        return host_gone()
    device = isolated(known)
    facts: Json = {name: host.facts[name] for name in ("user", "home", "connect", "hostname") if name in host.facts}
    variables = devices.environment([device]) | {"DRYDOCK_DEVICES": device.id}
    facts |= {"device": device.id, "nodes": known["nodes"], "environment": variables, "host": host.resource.name}
    if (gpu := nvidia.gpu_of(spec)) is not None and (now := gpu.read()) is not None:
        facts["before"] = nvidia.settings_of(now)
    account = account_of(lease)
    if account is None:
        return Ready(facts=facts)
    if there is None:
        return no_control()
    granted = devices.grant(there, account, lease.key, [device])
    if spec.config.isolation == "groups" and granted.mechanism != GROUPS:
        devices.revoke(there, account, lease.key, [device])
        return _refused(
            "no_isolation",
            f"{host.resource.name} has no device control groups that Drydock can use, and the blueprint requires them.",
        )
    devices.publish(there, [device], granted.numbers)
    facts |= {"isolation": granted.mechanism, "container_device": devices.qualified_name(device)}
    return Ready(facts=facts | {"warnings": list(granted.warnings)}, log=" ".join(granted.warnings))


@told
def close_device(spec: Spec, memo: Json) -> Answer:
    """Close the device to the account. Processes that have it open keep it for the moment."""
    there, account = shell(spec), account_of(lease_of(spec))
    if there is None:
        return Ready() if account is None or spec.resource.host() is None else no_control()
    there.run("true")
    device = closable(known_of(spec))
    left: tuple[str, ...] = ()
    # An account that cannot become root has not opened anything.
    with suppress(*() if account else (CannotBecomeRoot,)):
        if device.nodes:
            devices.withdraw(there, [device])
            left = devices.revoke(there, account, lease_of(spec).key, [device])
    return Ready(log=" ".join(left))


@told
def end_use(spec: Spec, memo: Json) -> Answer:
    """End the processes of the account that have the device open, and wait until no other lease's process has it."""
    there, account = shell(spec), account_of(lease_of(spec))
    if there is None or account is None:
        return Ready()
    device = closable(known_of(spec))
    if left := devices.end_users(there, account, [device]):
        return Wait(after=2.0, sentence=f"{_named(left)} still use the device {device.id}.")
    return Ready()


@told
def prove_closed(spec: Spec, memo: Json) -> Answer:
    """Read the nodes, lists and groups again, and fail if the account still has a right to the device."""
    there, account = shell(spec), account_of(lease_of(spec))
    if there is None or account is None:
        return Ready()
    device = closable(known_of(spec))
    if left := devices.remaining(there, account, lease_of(spec).key, [device]):
        return Failed(scope=Scope.STEP, code="still_open", message=" ".join(left))
    return Ready()


def keep_closed(spec: Spec) -> str:
    """Close the nodes of a device to everyone but root while no lease holds it. Return why that is not possible."""
    device = closable(known_of(spec))
    if not device.nodes or spec.config.isolation == _NONE or (there := shell(spec)) is None:
        return ""
    try:
        devices.close(there, [device])
    except (CannotBecomeRoot, DeviceRefused) as error:
        return f"Its nodes cannot be closed: {error}"
    return ""


@told
def hand_back(spec: Spec, memo: Json) -> Answer:
    """Hand the device back with the owner and mode that its nodes had. It stays in its host."""
    device = closable(known_of(spec))
    if device.nodes and (there := shell(spec)) is not None:
        # An account that cannot become root has not changed anything.
        with suppress(CannotBecomeRoot):
            devices.hand_back(there, [device])
    return Ready()


def account_of(lease: LeaseView) -> Account | None:
    """Return the account that the device is opened to, or None if nothing is opened."""
    known = lease.facts.get("account")
    return Account(uid=known["uid"], gid=known["gid"]) if known else None


def _named(holders: Sequence[Holder]) -> str:
    names = [f"process {one.pid} ({one.name}) of uid {one.uid}" for one in holders]
    text = ", ".join(names[:3]) + (f" and {len(names) - 3} others" if len(names) > 3 else "")
    return text[:1].upper() + text[1:]


def _refused(code: str, message: str) -> Failed:
    return Failed(scope=Scope.OPERATOR, code=code, message=message)


def host_gone() -> Failed:
    """Return the failure of a step whose host lease has ended."""
    return Failed(scope=Scope.STEP, code="host_gone", message="The lease of the host has ended.")


def no_control() -> Failed:
    """Return the failure of a step that needs the control account of the host."""
    return _refused("no_control", "Drydock has no control account on the host of the device.")
