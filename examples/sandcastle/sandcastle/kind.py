"""The kind `sandcastle`: a storage and a web root, found by the number of the change that they show."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from typing import Any, ClassVar

from blueprints.amounts import Amounts
from blueprints.answers import Answer, Failed, Json, Need, NeededLease, Ready, Scope
from blueprints.contract import Builds, Checks, Cleans, Fields, Kind, Match, Opener, Plan, Step
from blueprints.specs import Asked, Draft, LeaseView, Spec
from sandcastle.interface import Preview


class Settings(Fields):
    disk_mib: int = 64


class Diff(Fields):
    diff_id: int | None = None


def lease_parents(spec: Spec, memo: Json) -> Answer:
    if {"storage", "webroot"} <= spec.parents.keys():
        return Ready()
    size = Amounts(disk_mib=spec.config.disk_mib)
    return Need(leases=tuple(NeededLease(name=name, type=name, amounts=size) for name in ("storage", "webroot")))


def build_castle(spec: Spec, memo: Json) -> Answer:
    files, httpd = things(spec.resource.parents or spec.parents)[1:]
    number = spec.resource.attributes["diff_id"]
    files.write_text("castle", str(number))
    return Ready(facts={"link": httpd.publish("index.html", f"<h1>Change {number}</h1>\n")})


def look(spec: Spec, memo: Json) -> Answer:
    files, httpd = things(spec.parents)[1:]
    if files.exists("castle") and httpd.status().pid:
        return Ready()
    return Failed(scope=Scope.STEP, message="The tide has taken it.")


def wash_away(spec: Spec, memo: Json) -> Answer:
    if {"storage", "webroot"} <= spec.parents.keys():
        _, files, httpd = things(spec.parents)
        files.remove("", recursive=True)
        httpd.unpublish("")
    return Ready()


def things(parents: Mapping[str, LeaseView]) -> tuple[Any, Any, Any]:
    storage, webroot = parents["storage"], parents["webroot"]
    return storage.interface("command"), storage.interface("filesystem"), webroot.interface("httpd")


def preview(lease: LeaseView, still_mine: Callable[[], None]) -> Preview:
    return Preview(*things(lease.resource.parents), still_mine=still_mine)


class Sandcastle(Kind, Builds, Cleans, Checks):
    """One resource for each change; leases of the same change follow one another on it."""

    name: ClassVar[str] = "sandcastle"
    resource_type: ClassVar[str] = "sandcastle"
    Config, Attributes, Requirements = Settings, Diff, Diff
    matches = (Match("diff_id", "=", "diff_id"),)
    needs = ("storage", "webroot")
    gone_with_needs = True

    def drafts(self, config: Settings, asked: Asked | None) -> Sequence[Draft]:
        number = asked.requirements.diff_id if asked else None
        return [Draft(name=f"diff-{number}", attributes={"diff_id": number})] if number is not None else []

    def build(self) -> Plan:
        return (Step(name="parents", act=lease_parents), Step(name="castle", act=build_castle))

    def clean(self) -> Plan:
        return (Step(name="wash", act=wash_away), Step(name="castle", act=build_castle))

    def check(self) -> Plan:
        return (Step(name="look", act=look),)

    def destroy(self) -> Plan:
        return (Step(name="wash", act=wash_away),)

    def interfaces(self) -> Mapping[str, Opener]:
        return {"sandcastle": preview}
