"""What EC2 would say to a call: it is made with DryRun, which checks it and carries nothing out.

`DryRunOperation` is yes and `UnauthorizedOperation` no (https://docs.aws.amazon.com/AWSEC2/latest/APIReference/
API_RunInstances.html, DryRun); anything else tells nothing of permissions. The policy of docs/kinds/ec2.md allows
changes only of what bears our tag, and launches only into groups that bear it. So these are asked about things of ours;
as long as there are none, a no tells nothing either.
"""

from __future__ import annotations

import re
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

from blueprints.cloud.faults import CloudError, Meaning
from blueprints.cloud.values import Order
from blueprints.ec2 import images, network
from blueprints.ec2.calls import Calls, filters, listed, tags_of
from blueprints.ec2.changes import ABOUT, NOTHING, About
from blueprints.ec2.launches import launch
from blueprints.ec2.readings import image_of, instances_in
from blueprints.ec2.remains import SORTS

YES, NO = "DryRunOperation", "UnauthorizedOperation"
GROUP, RUN = "ec2:CreateSecurityGroup", "ec2:RunInstances"
INSTALLATION = "drydock-installation"
_REFUSED = re.compile(r"not authorized to perform: (?P<action>\S+)(?: on resource: (?P<resource>\S+))?")
_NONE_YET = "that is seen once something of Drydock's is there"
_WORD = re.compile(r"(?<!^)(?=[A-Z])")
_MOST = 3
"""Installations whose things are asked about."""
_IDS = {"instance": "InstanceId", **{sort.name: sort.id for sort in SORTS}}


@dataclass(frozen=True, kw_only=True)
class Answer:
    """What is known of one permission; `unclear` says why nothing is."""

    held: bool | None
    unclear: str = ""


Thing = dict[str, Any]
Found = dict[str, Answer]


class DryRuns:
    """Of one region. `known`: the API surely knows DryRun, as Amazon's does; another's must have shown it."""

    def __init__(self, calls: Calls, order: Order, *, known: bool) -> None:
        self._calls, self._order, self._region, self._known = calls, order, order.location, known

    def look(self, name: str) -> Answer:
        """A call that only reads."""
        refused = self._refused(name, {})
        if refused is None:
            return Answer(held=True)
        self._known |= refused.provider_code == YES
        return _told(refused)

    def changes(self) -> Found:
        """All that changes something."""
        if not self._known:
            return self._unknown()
        try:
            launching = self._launching(*network.place(self._calls, self._order))
        except CloudError as error:
            launching = dict.fromkeys((GROUP, RUN), _unclear(f"there is no network to ask it with ({error.message})"))
        return self._changing() | launching if self._known else launching

    def _unknown(self) -> Found:
        self._known = False
        return dict.fromkeys((GROUP, RUN, *(one.name for one in ABOUT)), _unclear("this API does not know DryRun"))

    def _changing(self) -> Found:
        there = self._things()
        return {one.name: self._about(one, there[one.sort]) for one in ABOUT}

    def _about(self, one: About, things: Sequence[Thing]) -> Answer:
        """Of things of ours: allowed for one is allowed, as others may be of another installation. Of nothing: only a
        yes tells something."""
        ids = [thing[_IDS[one.sort]] for thing in things] or [NOTHING[one.sort]]
        asked = [self._refused(one.name, {one.argument: [it] if one.many else it, **one.more}) for it in ids]
        told = [Answer(held=True) if refused is None else _told(refused) for refused in asked]
        if any(answer.held for answer in told):
            return Answer(held=True)
        return told[0] if things else _unclear(_NONE_YET)

    def _things(self) -> dict[str, list[Thing]]:
        """Sort -> what is there and bears our tag: one of each installation."""
        ours = filters(tag_key=INSTALLATION)
        found = {sort.name: self._one_each(sort.tags, self._listed(sort.list, sort.field, ours)) for sort in SORTS}
        up = filters(instance_state_name=["pending", "running", "stopping", "stopped"])
        reservations = self._listed("describe_instances", "Reservations", [*ours, *up])
        return {**found, "instance": self._one_each("Tags", [*instances_in({"Reservations": reservations})])}

    def _listed(self, operation: str, name: str, wanted: list[dict[str, Any]]) -> list[Thing]:
        try:
            found: list[Thing] = list(listed(self._calls, operation, self._region, name, Filters=wanted))
        except CloudError as error:
            if error.meaning is not Meaning.CREDENTIALS:
                raise
            return []
        return found

    def _one_each(self, field: str, things: Sequence[Thing]) -> list[Thing]:
        return list({tags_of(one, field).get(INSTALLATION, ""): one for one in things}.values())[:_MOST]

    def _launching(self, vpc: str, subnet: str) -> Found:
        wanted = filters(tag_key=INSTALLATION, vpc_id=vpc)
        groups = self._one_each("Tags", self._listed("describe_security_groups", "SecurityGroups", wanted))
        orders = [self._order, *(replace(self._order, tags=tags_of(one)) for one in groups)]
        making = _best([self._group(order, vpc) for order in orders])
        if not self._known:
            return self._unknown()
        try:
            prepared = {"vpc": vpc, "subnet": subnet, **self._image()}
        except CloudError as error:
            return making | {RUN: _unclear(f"there is no image to ask it with ({error.message})")}
        if not groups:
            return making | self._run_elsewhere({**prepared, "group": self._usual_group(vpc)})
        pairs = zip(orders[1:], groups, strict=True)
        ran = [_named(RUN, self._run(order, {**prepared, "group": one["GroupId"]})) for order, one in pairs]
        return making | _best(ran)

    def _usual_group(self, vpc: str) -> str:
        wanted = filters(group_name="default", vpc_id=vpc)
        found = self._listed("describe_security_groups", "SecurityGroups", wanted)
        return str(found[0]["GroupId"]) if found else NOTHING["security group"]

    def _group(self, order: Order, vpc: str) -> Found:
        def undo(made: Thing) -> None:
            self._known = False
            self._calls.call("delete_security_group", self._region, GroupId=made["GroupId"])

        return _named(GROUP, self._refused(GROUP, network.making(order, vpc), undo))

    def _image(self) -> dict[str, str]:
        found = images.described(self._calls, self._region, self._order.image)
        return {"root_device": found["RootDeviceName"], "disk_gib": str(image_of(found).disk_gib or 1)}

    def _run_elsewhere(self, prepared: Mapping[str, str]) -> Found:
        """Into a group that is not ours, which the policy does not allow: only what is refused besides tells."""
        refused = self._run(self._order, prepared)
        about = _REFUSED.search(refused.message) if refused else None
        if refused is None or refused.provider_code != NO or (about and ":security-group/" not in about["resource"]):
            return _named(RUN, refused)
        return {RUN: _unclear(_NONE_YET)}

    def _run(self, order: Order, prepared: Mapping[str, str]) -> CloudError | None:
        def undo(made: Thing) -> None:
            ids = [one["InstanceId"] for one in made["Instances"]]
            self._calls.call("terminate_instances", self._region, InstanceIds=ids)

        return self._refused(RUN, launch(order, prepared), undo)

    def _refused(
        self, name: str, arguments: Mapping[str, Any], undo: Callable[[Thing], None] = lambda made: None
    ) -> CloudError | None:
        """How EC2 refuses it, as it always should; None, and undone, where it was carried out after all."""
        operation = _WORD.sub("_", name.partition(":")[2]).lower()
        try:
            undo(self._calls.call(operation, self._region, DryRun=True, **arguments))
        except CloudError as error:
            return error
        return None


def _unclear(why: str) -> Answer:
    return Answer(held=None, unclear=why)


def _told(refused: CloudError) -> Answer:
    if refused.provider_code in (YES, NO):
        return Answer(held=refused.provider_code == YES)
    return _unclear(f"EC2 answered {refused.provider_code or refused.meaning}: {refused.message}")


def _named(asked: str, refused: CloudError | None) -> Found:
    """By the permission that a refusal names: a call with tags needs that of tagging too."""
    if refused is None or refused.provider_code != NO:
        return {asked: Answer(held=True) if refused is None else _told(refused)}
    about = _REFUSED.search(refused.message)
    named = about["action"] if about else asked
    return {asked: Answer(held=named != asked)} | {named: Answer(held=False)}


def _best(tried: Sequence[Found]) -> Found:
    """Of the same for several installations: that which is allowed, else the first."""
    return next((one for one in tried if all(answer.held for answer in one.values())), tried[0])
