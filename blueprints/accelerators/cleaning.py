"""Step actions that bring a device back to the state that it had before a lease."""

from __future__ import annotations

from contextlib import suppress

from blueprints.accelerators import health, nvidia
from blueprints.accelerators.host import hardware_of
from blueprints.accelerators.nodes import known_of
from blueprints.answers import Answer, Failed, Health, Json, Ready, Scope, Wait
from blueprints.hosts import lease_of
from blueprints.hostshell import CannotBecomeRoot, told
from blueprints.specs import Spec
from drydock_agent import Device
from drydock_agent.drivers.nvidia import VENDOR

_PATIENCE = 10
"""Looks, two seconds apart, at memory that the driver gives back."""
_SLACK_MIB = 64
"""Difference in used memory that is no remainder of a lease."""


@told
def restore_settings(spec: Spec, memo: Json) -> Answer:
    """Set the compute mode and power limit as they are declared or were before the lease, and undo locked clocks."""
    before = _wanted(spec)
    if not before or known_of(spec)["class"] != "gpu" or (gpu := nvidia.gpu_of(spec)) is None:
        return Ready()
    if (now := gpu.read()) is None:
        return _without_tool(spec)
    if spec.config.clocks == "reset":
        with suppress(CannotBecomeRoot):  # then no lease could, either
            gpu.reset_clocks()
    if not (other := nvidia.changed(before, now.attributes)):
        return Ready()
    for name, value in other.items():
        gpu.change(name, value)
    again = gpu.read()
    if left := nvidia.changed(before, again.attributes if again else {}):
        names = ", ".join(f"{name.replace('_', ' ')} is not {value}" for name, value in left.items())
        return _failed("settings", f"{spec.resource.name}: {names}.")
    return Ready()


@told
def wait_until_idle(spec: Spec, memo: Json) -> Answer:
    """Wait until the memory of the lease is free. Reset the GPU if it stays in use, or if the config says always."""
    before = lease_of(spec).facts.get("before")
    if not before or (gpu := nvidia.gpu_of(spec)) is None:
        return Ready()
    if (now := gpu.read()) is None:
        return _without_tool(spec)
    whole = known_of(spec)["class"] == "gpu"
    looks, was_reset = memo.get("looks", 0), memo.get("reset", False)
    left = _left(now, before, whole=whole)
    if not left and (was_reset or not whole or spec.config.reset != "always"):
        return Ready()
    if left and looks < _PATIENCE:
        return Wait(after=2.0, memo={"looks": looks + 1, "reset": was_reset}, sentence=f"{spec.resource.name}: {left}")
    if not whole:
        return _failed("not_idle", f"{left} The GPU would have to be reset, which would end its other slices.")
    if was_reset or spec.config.reset == "never":
        return _failed("not_idle", f"{left} The device has {'been' if was_reset else 'not been'} reset.")
    if said := gpu.reset():
        return _failed("not_reset", f"{left} The device cannot be reset: {said}".strip())
    return Wait(after=1.0, memo={"looks": 0, "reset": True}, sentence=f"{spec.resource.name} was reset.")


@told
def repair(spec: Spec, memo: Json) -> Answer:
    """Reset a GPU if errors since the lease began say so. One that a reset does not repair is taken out of service."""
    known, host, before = known_of(spec), spec.resource.host(), lease_of(spec).facts.get("errors")
    if known["vendor"] != VENDOR or not before or host is None or memo.get("reset"):
        return Ready()
    found = hardware_of(spec.config, host, only=health.drivers_of(known["class"]))
    findings = [one for one in health.since(found, known["id"], before) if one.repair]
    if not (needed := health.repairs(findings)):
        return Ready()
    reason = health.judged(findings).reason
    gpu = nvidia.gpu_of(spec)
    if "restart" in needed or known["class"] != "gpu" or gpu is None or spec.config.reset == "never":
        return _unrepaired(reason)
    if said := gpu.reset():
        return _unrepaired(f"{reason} It cannot be reset: {said}")
    return Wait(after=1.0, memo={"reset": True}, sentence=f"{spec.resource.name} was reset.")


def _unrepaired(reason: str) -> Ready:
    """Return that a device serves no other lease. It is clean, so the lease that ends does not wait for its repair."""
    return Ready(health=Health(state="failed", reason=reason), log=reason)


def _wanted(spec: Spec) -> Json:
    declared = {"compute_mode": spec.config.compute_mode, "power_limit_watts": spec.config.power_limit_watts}
    before: Json = lease_of(spec).facts.get("before", {})
    return before | {name: value for name, value in declared.items() if value is not None} if before else {}


def _left(now: Device, before: Json, *, whole: bool) -> str:
    processes = now.attributes.get("compute_processes", 0) if whole else 0
    if processes:
        return f"{processes} processes compute on the GPU."
    used, idle = now.attributes.get("memory_used_mib"), before.get("memory_used_mib")
    if isinstance(used, int) and isinstance(idle, int) and used > idle + _SLACK_MIB:
        return f"{used} MiB of memory are in use; before the lease it was {idle} MiB."
    return ""


def _without_tool(spec: Spec) -> Answer:
    return _failed("no_tool", f"nvidia-smi is no longer on the host, so {spec.resource.name} cannot be cleaned.")


def _failed(code: str, message: str) -> Failed:
    return Failed(scope=Scope.OPERATOR, code=code, message=message)
