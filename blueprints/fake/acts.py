"""Acts of the fake kinds: `program`, `service`, which waits until the resource is free, and `label`, beside leases."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from pydantic import Field

from blueprints.answers import Answer, Failed, Json, Ready, Scope, Wait
from blueprints.contract import Acts, DeclaredAct, Fields, Plan
from blueprints.fake.actions import reached
from blueprints.fake.faults import step
from blueprints.fake.provider import Provider
from blueprints.specs import Spec


class Program(Fields):
    """Arguments of the act `program`."""

    image: str = Field(min_length=1, max_length=63, pattern=r"^[a-z0-9][a-z0-9._-]*$", description="Name of the image.")
    passes: int = Field(default=1, ge=1, le=20, description="Number of times that the image is written.")


class Label(Fields):
    """Arguments of the act `label`."""

    text: str = Field(default="", max_length=40, description="Text of the label. Empty: no label.")


class FakeActs(Acts):
    """Acts of every fake resource."""

    def acts(self) -> Sequence[DeclaredAct]:
        """Return the acts `program`, `service` and `label`."""
        return (
            DeclaredAct(
                name="program", summary="Write an image to the resource, as to an FPGA.", plan=program,
                Arguments=Program, by="holder", holders="refuse", dangerous=True, quarantines=True,
            ),
            DeclaredAct(
                name="service", summary="Service the resource once no lease holds it and it is off.", plan=service,
                holders="wait", power="off",
            ),
            DeclaredAct(
                name="label", summary="Label the resource, beside its leases.", plan=label, Arguments=Label,
                by="holder", holders="keep",
            ),
        )  # fmt: skip


def program() -> Plan:
    """Return the plan that erases the resource, writes the image and verifies it. Writing cannot be interrupted."""
    return (
        step("program", "erase", erase),
        step("program", "write", write, interruptible=False),
        step("program", "verify", verify),
    )


def service() -> Plan:
    """Return the plan that services the resource."""
    return (step("service", "inspect", inspect),)


def label() -> Plan:
    """Return the plan that sets the label."""
    return (step("label", "set", set_label),)


@reached
def erase(spec: Spec, memo: Json) -> Answer:
    """Remove the image."""
    return _kept(spec, "erase", {"image": ""})


@reached
def write(spec: Spec, memo: Json) -> Answer:
    """Write the image as often as requested, one pass at each call."""
    done, passes = memo.get("done", 0) + 1, spec.arguments.passes
    answer = _kept(spec, "write_image", {"image": spec.arguments.image if done >= passes else f"pass {done}"})
    if done >= passes or not isinstance(answer, Ready):
        return answer
    return Wait(
        after=spec.config.poll_seconds, memo={"done": done}, percent=100 * done // passes,
        sentence=f"Wrote pass {done} of {passes}.",
    )  # fmt: skip


@reached
def verify(spec: Spec, memo: Json) -> Answer:
    """Compare the image with the requested one."""
    there = _provider(spec).settings(spec.resource.key).get("image", "")
    if there != spec.arguments.image:
        return Failed(scope=Scope.OPERATOR, code="image", message=f"The image is {there!r}.")
    return Ready(facts={"image": there})


@reached
def inspect(spec: Spec, memo: Json) -> Answer:
    """Service the resource once for each token, regardless of repeated calls."""
    return _kept(spec, "service", {"serviced": spec.token})


@reached
def set_label(spec: Spec, memo: Json) -> Answer:
    """Set the label."""
    return _kept(spec, "label", {"label": spec.arguments.text}, label=spec.arguments.text)


def _kept(spec: Spec, call: str, values: dict[str, str], **facts: Any) -> Answer:
    if _provider(spec).set(call, spec.resource.key, values) is None:
        return Failed(scope=Scope.OPERATOR, code="lost", message="The instance does not exist.")
    return Ready(facts=facts)


def _provider(spec: Spec) -> Provider:
    return Provider(spec.config.provider)
