"""What is done to a machine that is there, on whatever cloud: stop, start, reboot, a larger disk, another type, tags,
its console. Each as far as the cloud's client can.

Every act is one short call or two, and may be repeated: it looks how the machine is before it asks for anything.
"""

from __future__ import annotations

import datetime as dt
from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

from blueprints.accounts.access import shell
from blueprints.answers import Answer, Failed, Json, Ready, Scope, Wait
from blueprints.cloud import acts, client, guest
from blueprints.cloud.client import Client
from blueprints.cloud.faults import CloudError, Meaning, SdkNotInstalled
from blueprints.cloud.order import instance
from blueprints.cloud.values import Instance, Lifecycle
from blueprints.contract import Consoles, Plan, Powers, Reboots, Resizes, Retypes, Step, Tags
from blueprints.hostshell import told
from blueprints.specs import ResourceView, Spec
from drydock.core import clock
from interfaces.errors import AuthenticationRefused, ConnectionLost, DeadlineExceeded, HostKeyMismatch, Unreachable

_NEEDED: Mapping[type, tuple[type, ...]] = {
    Powers: (client.StopsStarts,),
    Reboots: (client.Reboots,),
    Resizes: (client.ResizesVolume,),
    Retypes: (client.ChangesType, client.StopsStarts),
    Tags: (client.Tags,),
    Consoles: (client.Console,),
}
"""Class of the kind's contract -> what of the provider's contract it stands on."""
_RESERVED: Mapping[str, tuple[str, ...]] = {
    "ec2": ("aws:",),
    "gce": ("goog",),
    "azure": ("microsoft", "azure", "windows"),
}
"""How the names of tags begin that a cloud keeps for itself."""
_ODD = "<>%&\\?/"
"""What the names of tags may not hold at Azure, and so nowhere: machines of one fleet bear the same tags."""
_SETTLE = 30.0
"""Seconds after which a machine that answers counts as rebooted, though its boot id is the one from before."""
_REACH = 600.0
"""Seconds until a machine that was started anew should let us in. Afterwards it is for the health checks to say."""
_LOOKS = 10
"""So many looks at a machine that was asked to start and is still stopped, and its start was refused."""
_OVER = (Lifecycle.TERMINATED, Lifecycle.TERMINATING, Lifecycle.FAILED)
_ELSEWHERE = (Meaning.NO_CAPACITY, Meaning.QUOTA, Meaning.NOT_OFFERED, Meaning.INVALID)
"""Errors at the start of a machine as its new type after which it becomes the old one again."""
_AWAY = (Unreachable, ConnectionLost, DeadlineExceeded, AuthenticationRefused, HostKeyMismatch)


class Operates(Powers, Reboots, Resizes, Retypes, Tags, Consoles):
    """What the kinds of cloud hosts can do to a machine, where their clients can."""

    name: ClassVar[str]

    @abstractmethod
    def client_class(self) -> type[Client]:
        """Return the client's class. Raises SdkNotInstalled."""

    @abstractmethod
    def client_of(self, resource: ResourceView) -> Client:
        """The client of a resource's account. Raises CloudError CREDENTIALS without it."""

    def lacking(self, config: Any) -> frozenset[type]:
        """What the client's class does not implement. Where the cloud's SDK is not installed, nothing is said: a worker
        that has it decides."""
        try:
            there = self.client_class()
        except SdkNotInstalled:
            return frozenset()
        return frozenset(base for base, needed in _NEEDED.items() if not all(issubclass(there, one) for one in needed))

    def power(self) -> Plan:
        """Stop, start, or both; and what is started lets us in again."""
        off = acts.switch(("off", "cycle"), Lifecycle.STOPPED)
        on = acts.switch(("on", "cycle"), Lifecycle.RUNNING)
        return (
            Step(name="stop", act=self._does(off)),
            Step(name="start", act=self._does(on)),
            Step(name="reach", act=reach, deadline=2 * _REACH),
        )

    def reboot(self) -> Plan:
        """Note which boot it is in, reboot it, and wait until it lets us in, in another."""
        return (
            Step(name="note", act=note_boot),
            Step(name="reboot", act=self._does(reboot)),
            Step(name="reach", act=reach_anew, deadline=2 * _REACH),
        )

    def resize(self) -> Plan:
        """Ask for a larger disk. The guest's file system grows at its next boot, by cloud-init."""
        return (Step(name="resize", act=self._does(resize)),)

    def retype(self) -> Plan:
        """Stop it where it runs, change it, start it where it shall run."""
        return (
            Step(name="stop", act=self._does(stop)),
            Step(name="change", act=self._does(change)),
            Step(name="start", act=self._does(start)),
            Step(name="reach", act=reach, deadline=2 * _REACH),
        )

    def tag(self) -> Plan:
        """Set the tags."""
        return (Step(name="tag", act=self._does(tag)),)

    def refused_tags(self, config: Any, tags: Mapping[str, str]) -> str:
        """Names that the blueprint sets itself, that the cloud keeps for itself, or that no cloud takes."""
        for name in tags:
            if name in config.tags:
                return f"{name!r} is set by the blueprint for all its machines."
            if name.lower().startswith(_RESERVED.get(self.name, ())):
                return f"{self.name} keeps names like {name!r} for itself."
            if any(letter in _ODD for letter in name):
                return f"The name {name!r} holds one of {_ODD}, which clouds do not take."
        return ""

    def console(self, resource: ResourceView) -> str:
        """The newest 64 KiB. Raises CloudError."""
        there = self.client_of(resource)
        if not isinstance(there, client.Console) or not resource.facts.get("instance_id"):
            return ""
        return there.console(instance(resource))

    def _does(self, calls: acts.Calls) -> Any:
        return acts.called(self.client_of, calls)


def note_boot(spec: Spec, memo: Json) -> Answer:
    """Which boot it is in; nothing where it does not answer, which is why one reboots."""
    return Ready(facts={"boot_id": _boot_id(spec)})


def _boot_id(spec: Spec) -> str:
    try:
        return shell(spec).run("cat /proc/sys/kernel/random/boot_id").strip()
    except _AWAY:
        return ""


def reboot(cloud: Client, spec: Spec, memo: Json) -> Answer:
    """Ask for it, once."""
    if memo.get("asked"):
        return Ready(facts={"reboot_at": memo["asked"]})
    if not isinstance(cloud, client.Reboots):
        return _unable(cloud, "reboot machines")
    found = _read(cloud, spec)
    if isinstance(found, Failed):
        return found
    cloud.reboot(found)
    return Wait(after=3.0, memo={"asked": clock.now().isoformat()}, percent=20, sentence="It is asked to reboot.")


@told
def reach_anew(spec: Spec, memo: Json) -> Answer:
    """Until it lets us in, in another boot than before."""
    before, since = spec.resource.facts.get("boot_id"), _since(spec.resource.facts.get("reboot_at"))
    if before and since < _SETTLE and _boot_id(spec) in (before, ""):
        return Wait(after=3.0, memo=memo, percent=40, sentence="It reboots.")
    return _patient(guest.reach(spec, memo), since, percent=60)


def reach(spec: Spec, memo: Json) -> Answer:
    """Until what shall be on lets us in."""
    if spec.wanted.get("power") == "off":
        return Ready()
    since = memo.get("since") or clock.now().isoformat()
    answer = _patient(guest.reach(spec, {}), _since(since), percent=90)
    return Wait(**_fields(answer) | {"memo": {"since": since}}) if isinstance(answer, Wait) else answer


def _fields(answer: Wait) -> dict[str, Any]:
    return {"after": answer.after, "percent": answer.percent, "sentence": answer.sentence, "log": answer.log}


def _patient(answer: Answer, waited: float, *, percent: int) -> Answer:
    """What was asked has happened; a machine that lets nobody in is for the health checks to find."""
    if isinstance(answer, Wait) and waited < _REACH:
        return Wait(**_fields(answer) | {"memo": answer.memo, "percent": percent})
    if isinstance(answer, Wait | Failed):
        return Ready(log=f"It does not let us in: {getattr(answer, 'message', '') or getattr(answer, 'sentence', '')}")
    return answer


def _since(moment: str | None) -> float:
    if not moment:
        return _SETTLE
    return (clock.now() - dt.datetime.fromisoformat(moment)).total_seconds()


def resize(cloud: Client, spec: Spec, memo: Json) -> Answer:
    """Ask for the larger disk until it is as large."""
    if not isinstance(cloud, client.ResizesVolume):
        return _unable(cloud, "let disks grow")
    found = _read(cloud, spec)
    if isinstance(found, Failed):
        return found
    if (made := cloud.resize_volume(found, spec.wanted["disk_gib"])) is not None:
        return Wait(after=made.after, percent=50, sentence=made.sentence)
    return Ready(log=f"disk of {spec.wanted['disk_gib']} GiB")


def tag(cloud: Client, spec: Spec, memo: Json) -> Answer:
    """Set the tags."""
    if not isinstance(cloud, client.Tags):
        return _unable(cloud, "set tags on what is there")
    found = _read(cloud, spec)
    if isinstance(found, Failed):
        return found
    cloud.set_tags(found, spec.wanted["tags"])
    return Ready()


def stop(cloud: Client, spec: Spec, memo: Json) -> Answer:
    """Until it is stopped, as it must be to become another type."""
    if not isinstance(cloud, client.StopsStarts) or not isinstance(cloud, client.ChangesType):
        return _unable(cloud, "change the type of machines")
    found = _read(cloud, spec)
    if isinstance(found, Failed):
        return found
    if found.state is Lifecycle.STOPPED:
        return Ready()
    if not memo.get("asked") and found.state is not Lifecycle.STOPPING:
        cloud.stop(found)
    return Wait(after=3.0, memo={"asked": True}, percent=10, sentence=f"The machine is {found.state}.")


def change(cloud: Client, spec: Spec, memo: Json) -> Answer:
    """Make it the other type, and see that it is: some clouds take a while."""
    assert isinstance(cloud, client.ChangesType)
    found = _read(cloud, spec)
    if isinstance(found, Failed):
        return found
    wanted, looks = spec.wanted["type"], memo.get("looks", 0)
    if found.type == wanted or looks >= _LOOKS:
        return Ready(log=f"it is a {wanted}")
    if not looks:
        cloud.change_type(found, wanted)
    return Wait(after=2.0, memo={"looks": looks + 1}, percent=40, sentence=f"It becomes a {wanted}.")


def start(cloud: Client, spec: Spec, memo: Json) -> Answer:
    """Start it where it shall run. Where it cannot be had as its new type it becomes the old one again, and is started
    as that; the plan fails then, with the provider's words."""
    assert isinstance(cloud, client.StopsStarts)
    assert isinstance(cloud, client.ChangesType)
    if spec.wanted["power"] == "off":
        return Ready()
    found = _read(cloud, spec)
    if isinstance(found, Failed):
        return found
    if found.state is Lifecycle.RUNNING:
        return _back(spec, memo, "runs") if memo.get("why") else Ready(facts=_where(spec, found))
    if found.state is not Lifecycle.STOPPED or memo.get("looks", 0) in range(1, _LOOKS):
        return Wait(after=3.0, memo=_looked(memo, found), percent=70, sentence=f"The machine is {found.state}.")
    try:
        if memo.get("looks", 0) >= _LOOKS:
            raise CloudError(Meaning.NO_CAPACITY, found.reason or "It was asked to start and stayed stopped.")
        if memo.get("why"):
            cloud.change_type(found, spec.wanted["from"])
        cloud.start(found)
    except CloudError as error:
        return _refused(spec, memo, error)
    return Wait(after=3.0, memo={**memo, "looks": 1}, percent=60, sentence="The machine is asked to start.")


def _looked(memo: Json, found: Instance) -> Json:
    """Only what is still stopped after it was asked to start is counted."""
    looks = memo.get("looks", 0)
    return {**memo, "looks": looks + 1} if looks and found.state is Lifecycle.STOPPED else memo


def _refused(spec: Spec, memo: Json, error: CloudError) -> Answer:
    """It goes back to the old type at the first definite no, and is left off at the second."""
    if error.meaning not in _ELSEWHERE:
        raise error
    if memo.get("why"):
        return _back(spec, memo, "is off; it is started as soon as that can be had")
    sentence = f"It cannot be a {spec.wanted['type']}: {error.message}"[:500]
    return Wait(after=0.0, memo={"why": error.message}, percent=80, sentence=sentence)


def _back(spec: Spec, memo: Json, how: str) -> Failed:
    said = f"It could not be started as {spec.wanted['type']}: {memo['why']}"
    return Failed(
        scope=Scope.OFFER, code="went_back", message=f"{said} It is a {spec.wanted['from']} again, and {how}."
    )


def _read(cloud: Client, spec: Spec) -> Instance | Failed:
    """The machine as it is now."""
    there = instance(spec.resource)
    found = cloud.instance(there.location, there.zone, there.key, there.id)
    if found is None or found.state in _OVER:
        return Failed(scope=Scope.OFFER, code="gone", message="The machine is gone.")
    return found


def _where(spec: Spec, found: Instance) -> Json:
    address = acts.address_of(spec.resource, acts.seen_of(found))
    return {"address": address} if address else {}


def _unable(cloud: Client, what: str) -> Failed:
    return Failed(scope=Scope.OPERATOR, code="not_supported", message=f"{cloud.provider} cannot {what}.")
