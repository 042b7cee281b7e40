"""Set up devices: the act `setup`, and the number of VFs that a blueprint declares. Root does it on the host.

The engine calls these steps while no lease holds the device, its parts, or its host as a whole.
"""

from __future__ import annotations

from pydantic import Field

from blueprints.accelerators import hostscripts, layouts, mig
from blueprints.accelerators.drafts import identity
from blueprints.accelerators.host import hardware_of, pci_function, shell
from blueprints.answers import Answer, Failed, Json, Ready, Scope
from blueprints.contract import DeclaredAct, Fields, Plan, Step
from blueprints.devices.values import DeviceRefused, refused_by
from blueprints.hostshell import HostShell, told
from blueprints.specs import Spec
from drydock_agent import Readiness

_NONE = "none"


class Setup(Fields):
    """Arguments of the act `setup`."""

    driver: layouts.Driver = Field(
        default="",
        description="Kernel driver to bind: its name, vfio-pci, none, or empty for the one that the kernel chooses.",
    )
    vfs: int | None = Field(
        default=None, ge=0, le=65535, description="Number of VFs to create, instead of binding a driver."
    )


def acts() -> tuple[DeclaredAct, ...]:
    """Return the acts of the kind."""
    return (
        DeclaredAct(
            name="setup",
            summary="Bind a kernel driver to the device, or create its VFs.",
            plan=lambda: (Step(name="setup", act=set_up, interruptible=False, deadline=120.0),),
            Arguments=Setup,
            holders="refuse",
            dangerous=True,
        ),
    )


def update() -> Plan:
    """Return the plan that brings a card to the number of VFs or the MIG layout that its blueprint declares."""
    return (Step(name="layout", act=bring_to_layout, interruptible=False, deadline=900.0),)


@told
def set_up(spec: Spec, memo: Json) -> Answer:
    """Bind a driver or create VFs, read the host again, and undo everything if the device is not ready then."""
    known, wanted = spec.resource.facts["device"], spec.arguments
    if not layouts.allows_setup(spec.config, known["id"]):
        return _refused(f"The blueprint does not allow {known['id']} to be set up: `setup` does not name it.")
    if (there := shell(spec)) is None:
        return _refused(f"Drydock has no control account on the host of {known['id']}.")
    if wanted.vfs is not None:
        if wanted.driver:
            return _refused("Set either driver or vfs. The driver of VFs is declared in the blueprint.")
        declared = layouts.first(spec.config.vfs, known["id"], spec.resource.attributes.get("model", ""))
        return _set_vfs(spec, there, wanted.vfs, declared.driver if declared else "")
    function = pci_function(spec)
    with refused_by(hostscripts.REFUSED):
        said = there.as_root(hostscripts.SETUP, spec.config.captured, function, wanted.driver).split()
    was, override = said[1], "".join(said[2:3])
    if problem := "" if wanted.driver == _NONE else _not_ready(spec, known["id"]):
        try:
            with refused_by(hostscripts.REFUSED):
                there.as_root(hostscripts.UNDO, spec.config.captured, function, was, override)
            problem += f" The driver is {was} again, as before."
        except DeviceRefused as error:
            problem += f" It could not be undone: {error}"
        return _refused(problem)
    return Ready(rediscover=True, log=f"{known['id']}: the driver was {was}, and is {wanted.driver or 'bound'} now.")


def _not_ready(spec: Spec, id: str) -> str:
    host = spec.resource.host()
    found = hardware_of(spec.config, host).device(id) if host is not None else None
    if found is None:
        return f"{id} is not in the host any more."
    if found.readiness is not Readiness.READY:
        return f"The driver {found.driver or 'none'} is bound to {id}, but it is still not ready: {found.reason}"
    return ""


def _set_vfs(spec: Spec, there: HostShell, count: int, driver: str) -> Answer:
    function = pci_function(spec)
    with refused_by(hostscripts.REFUSED):
        said = there.as_root(hostscripts.VFS, spec.config.captured, function, str(count), driver).splitlines()
    gone = tuple(identity(spec.resource.facts["host"], line.split()[1]) for line in said if line.startswith("gone "))
    return Ready(rediscover=bool(said), gone=gone, log=f"{function} has {count} VFs.")


@told
def bring_to_layout(spec: Spec, memo: Json) -> Answer:
    """Bring a card to the layout that its blueprint declares. For anything else there is nothing to do."""
    known, model = spec.resource.facts["device"], spec.resource.attributes.get("model", "")
    declared = layouts.first(spec.config.vfs, known["id"], model) if known["class"] == "nic" else None
    if declared is not None and known.get("sriov"):
        if (there := shell(spec)) is None:
            return _refused(f"Drydock has no control account on the host of {known['id']}.")
        return _set_vfs(spec, there, declared.count, declared.driver)
    layout = layouts.first(spec.config.mig, known["id"], model) if known["class"] == "gpu" else None
    return Ready() if layout is None else mig.bring_to(spec, memo, layout.profiles)


def _refused(message: str) -> Failed:
    return Failed(scope=Scope.OPERATOR, code="not_set_up", message=message)
