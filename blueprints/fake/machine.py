"""Operations on a machine of the fake provider: power, reboot, a larger disk, another type, tags, and its console."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from blueprints.answers import Answer, Failed, Json, Ready, Scope, Wait
from blueprints.contract import (
    Consoles,
    Plan,
    Powers,
    Reboots,
    Resizes,
    ResourceView,
    Retypes,
    Tags,
)
from blueprints.fake import actions
from blueprints.fake.config import ABILITIES
from blueprints.fake.faults import step
from blueprints.fake.provider import Instance, Provider
from blueprints.specs import Spec


class Machine(Powers, Reboots, Resizes, Tags, Consoles):
    """All machine operations except changing the type, which needs offers. `lacks` in a config removes some of them."""

    def lacking(self, config: Any) -> frozenset[type]:
        """Return the capabilities that the config removes."""
        return frozenset(ABILITIES[name] for name in config.lacks)

    def power(self) -> Plan:
        """Return the plan that switches off, on, or off and on, as requested."""
        return (step("power", "off", actions.switch_off), step("power", "on", actions.switch_on))

    def reboot(self) -> Plan:
        """Return the plan that reboots the instance and waits until it runs again."""
        return (step("reboot", "ask", reboot), step("reboot", "boot", boot))

    def resize(self) -> Plan:
        """Return the plan that grows the disk."""
        return (step("resize", "grow", grow),)

    def tag(self) -> Plan:
        """Return the plan that sets the tags."""
        return (step("tag", "set", tag),)

    def refused_tags(self, config: Any, tags: Mapping[str, str]) -> str:
        """Return a refusal of names that begin with `fake-`, which the fake provider reserves, or an empty string."""
        odd = next((name for name in tags if name.startswith("fake-")), "")
        return f"The provider reserves names like {odd!r}." if odd else ""

    def console(self, resource: ResourceView) -> str:
        """Return the text written to the console."""
        return Provider(resource.blueprint.config.provider).said(resource.key)


class Retypable(Machine, Retypes):
    """A machine that can also change its type."""

    def retype(self) -> Plan:
        """Return the plan that stops the instance, changes its type and starts it again."""
        return (
            step("retype", "off", switch_off),
            step("retype", "change", change),
            step("retype", "on", switch_on),
        )


def reboot(spec: Spec, memo: Json) -> Answer:
    """Reboot once for each token, regardless of repeated calls."""
    return _kept(spec, "reboot", {"rebooted": spec.token})


def boot(spec: Spec, memo: Json) -> Answer:
    """Wait until the instance runs."""
    return actions.boot(spec, memo)


def grow(spec: Spec, memo: Json) -> Answer:
    """Grow the disk to the wanted size; never shrink it."""
    disk = int(_provider(spec).settings(spec.resource.key).get("disk_gib", "0"))
    return _kept(spec, "resize", {"disk_gib": str(max(disk, spec.wanted["disk_gib"]))})


def tag(spec: Spec, memo: Json) -> Answer:
    """Set the tags; other tags stay."""
    return _kept(spec, "tag", {f"tag:{name}": value for name, value in spec.wanted["tags"].items()})


def switch_off(spec: Spec, memo: Json) -> Answer:
    """Stop the instance before its type is changed."""
    return _answer(_provider(spec).switch(spec.resource.key, "off"))


def change(spec: Spec, memo: Json) -> Answer:
    """Change the type of a machine that is off."""
    found = _provider(spec).look(spec.resource.key)
    if found is None or found.power != "off":
        return Failed(
            scope=Scope.OFFER, code="not_off", message="The instance is not off, so its type cannot be changed."
        )
    return _kept(spec, "retype", {"type": spec.wanted["type"]})


def switch_on(spec: Spec, memo: Json) -> Answer:
    """Switch the machine on, unless it was off before.

    If its new type is sold out, the machine is changed back to the old type.
    """
    if spec.wanted["power"] == "off":
        return Ready()
    there, wanted = _provider(spec), spec.wanted["type"]
    if not there.is_sold_out(wanted):
        return _answer(there.switch(spec.resource.key, "on"))
    if not memo.get("back"):
        return Wait(after=0.0, memo={"back": True}, percent=80, sentence=f"{wanted} is sold out.")
    there.set("retype", spec.resource.key, {"type": spec.wanted["from"]})
    there.switch(spec.resource.key, "on")
    message = f"{wanted} is sold out. Its instance type is {spec.wanted['from']} again, and it runs."
    return Failed(scope=Scope.OFFER, code="sold_out", message=message)


def _kept(spec: Spec, call: str, values: Mapping[str, str]) -> Answer:
    return _answer(_provider(spec).set(call, spec.resource.key, values))


def _answer(found: Instance | None) -> Answer:
    if found is None:
        return Failed(scope=Scope.OFFER, code="lost", message="The instance does not exist.")
    return Ready()


def _provider(spec: Spec) -> Provider:
    return Provider(spec.config.provider)
