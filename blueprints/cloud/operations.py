"""Operations on an existing machine: stop, start, reboot, resize, retype, tag, and read its console.

A kind offers the operations that its cloud's client supports. Every action makes one or two short calls and may be
repeated: it reads the machine's state before it requests anything.
"""

from __future__ import annotations

import datetime as dt
from abc import abstractmethod
from collections.abc import Mapping
from typing import Any, ClassVar

from blueprints.accounts.access import shell
from blueprints.answers import Answer, Failed, Json, Ready, Scope, Wait
from blueprints.cloud import actions, client, guest, inventory
from blueprints.cloud.client import Client
from blueprints.cloud.faults import CloudError, Meaning, SdkNotInstalled
from blueprints.cloud.launch_spec import instance
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
"""Maps a class of the kind's contract to the classes of the provider's contract that it needs."""
_ODD = "<>%&\\?/"
"""Characters that tag names may not contain.

One cloud refuses them, so all do, because the machines of one fleet have the same tags.
"""
_SETTLE = 30.0
"""Seconds after which a machine that answers counts as rebooted even if its boot id has not changed."""
_REACH = 600.0
"""Seconds within which a restarted machine should let us in. After that, the health checks decide."""
_LOOKS = 10
"""Number of reads after a start request that may show the machine as stopped, before the start counts as refused."""
_OVER = (Lifecycle.TERMINATED, Lifecycle.TERMINATING, Lifecycle.FAILED)
_ELSEWHERE = (Meaning.NO_CAPACITY, Meaning.QUOTA, Meaning.NOT_OFFERED, Meaning.INVALID)
"""If one of these errors occurs when a machine is started as its new type, it is changed back to the old type."""
_AWAY = (Unreachable, ConnectionLost, DeadlineExceeded, AuthenticationRefused, HostKeyMismatch)


class Operates(Powers, Reboots, Resizes, Retypes, Tags, Consoles):
    """The operations on cloud hosts, as far as the cloud's client supports them."""

    name: ClassVar[str]
    reserved_tags: ClassVar[tuple[str, ...]] = ()
    """Lower-case prefixes of tag names that the cloud reserves for itself."""

    @abstractmethod
    def client_class(self) -> type[Client]:
        """Return the client's class. Raises SdkNotInstalled."""

    @abstractmethod
    def client_of(self, resource: ResourceView) -> Client:
        """Return the client of a resource's account. Raises CloudError CREDENTIALS if the credential is missing."""

    def lacking(self, config: Any) -> frozenset[type]:
        """Return the capabilities that the client's class does not support.

        Empty if the cloud's SDK is not installed here, so that a worker that has it decides.
        """
        try:
            there = self.client_class()
        except SdkNotInstalled:
            return frozenset()
        return frozenset(base for base, needed in _NEEDED.items() if not all(issubclass(there, one) for one in needed))

    def power(self) -> Plan:
        """Return the plan that stops or starts the machine, and waits until a started machine accepts our login."""
        off = actions.switch(("off", "cycle"), Lifecycle.STOPPED)
        on = actions.switch(("on", "cycle"), Lifecycle.RUNNING)
        return (
            Step(name="stop", act=self._does(off)),
            Step(name="start", act=self._does(on)),
            Step(name="reach", act=reach, deadline=2 * _REACH),
        )

    def reboot(self) -> Plan:
        """Return the plan that reboots the machine and waits until it accepts our login after another boot."""
        return (
            Step(name="note", act=note_boot),
            Step(name="reboot", act=self._does(reboot)),
            Step(name="reach", act=reach_anew, deadline=2 * _REACH),
        )

    def resize(self) -> Plan:
        """Return the plan that requests a larger disk. At the next boot, cloud-init grows the guest's file system."""
        return (Step(name="resize", act=self._does(resize)),)

    def retype(self) -> Plan:
        """Return the plan that stops the machine if it is running, changes its type, and starts it if it should run."""
        return (
            Step(name="stop", act=self._does(stop)),
            Step(name="change", act=self._does(change)),
            Step(name="start", act=self._does(start)),
            Step(name="reach", act=reach, deadline=2 * _REACH),
        )

    def tag(self) -> Plan:
        """Return the plan that sets the tags."""
        return (Step(name="tag", act=self._does(tag)),)

    def refused_tags(self, config: Any, tags: Mapping[str, str]) -> str:
        """Return why tags are refused: set by the blueprint, reserved by the cloud, or not accepted by all clouds.

        Return an empty string if they are accepted.
        """
        for name in tags:
            if name in config.tags:
                return f"The blueprint sets {name!r} for all its machines."
            if name.lower().startswith(self.reserved_tags):
                return f"{self.name} reserves names like {name!r}."
            if any(letter in _ODD for letter in name):
                return f"The name {name!r} contains one of {_ODD}, which not all clouds accept."
        return ""

    def console(self, resource: ResourceView) -> str:
        """Return the last 64 KiB of the console output, or an empty string if it cannot be read. Raises CloudError."""
        there = self.client_of(resource)
        if not isinstance(there, client.Console) or not resource.facts.get("instance_id"):
            return ""
        return there.console(instance(resource))

    def _does(self, calls: actions.Calls) -> Any:
        return actions.called(self.client_of, calls)


def note_boot(spec: Spec, memo: Json) -> Answer:
    """Record the current boot id, or an empty string if the machine does not respond.

    A missing answer is not an error, because a reboot may be requested for that very reason.
    """
    return Ready(facts={"boot_id": _boot_id(spec)})


def _boot_id(spec: Spec) -> str:
    try:
        return shell(spec).run("cat /proc/sys/kernel/random/boot_id").strip()
    except _AWAY:
        return ""


def reboot(cloud: Client, spec: Spec, memo: Json) -> Answer:
    """Request the reboot, once."""
    if memo.get("asked"):
        return Ready(facts={"reboot_at": memo["asked"]})
    if not isinstance(cloud, client.Reboots):
        return _unable(cloud, "reboot machines")
    found = _read(cloud, spec)
    if isinstance(found, Failed):
        return found
    cloud.reboot(found)
    return Wait(
        after=3.0, memo={"asked": clock.now().isoformat()}, percent=20, sentence="The machine is being rebooted."
    )


@told
def reach_anew(spec: Spec, memo: Json) -> Answer:
    """Wait until the machine accepts our login after another boot."""
    before, since = spec.resource.facts.get("boot_id"), _since(spec.resource.facts.get("reboot_at"))
    if before and since < _SETTLE and _boot_id(spec) in (before, ""):
        return Wait(after=3.0, memo=memo, percent=40, sentence="The machine is rebooting.")
    return _patient(guest.reach(spec, memo), since, percent=60)


def reach(spec: Spec, memo: Json) -> Answer:
    """Wait until a machine that should be on accepts our login."""
    if spec.wanted.get("power") == "off":
        return Ready()
    since = memo.get("since") or clock.now().isoformat()
    answer = _patient(guest.reach(spec, {}), _since(since), percent=90)
    return Wait(**_fields(answer) | {"memo": {"since": since}}) if isinstance(answer, Wait) else answer


def _fields(answer: Wait) -> dict[str, Any]:
    return {"after": answer.after, "percent": answer.percent, "sentence": answer.sentence, "log": answer.log}


def _patient(answer: Answer, waited: float, *, percent: int) -> Answer:
    """Limit how long a machine is waited for.

    The requested operation is done by then. If the machine still refuses our login, the health checks decide what to
    do.
    """
    if isinstance(answer, Wait) and waited < _REACH:
        return Wait(**_fields(answer) | {"memo": answer.memo, "percent": percent})
    if isinstance(answer, Wait | Failed):
        return Ready(
            log=f"The machine accepts no logins: {getattr(answer, 'message', '') or getattr(answer, 'sentence', '')}"
        )
    return answer


def _since(moment: str | None) -> float:
    if not moment:
        return _SETTLE
    return (clock.now() - dt.datetime.fromisoformat(moment)).total_seconds()


def resize(cloud: Client, spec: Spec, memo: Json) -> Answer:
    """Request a larger disk until the disk has the requested size."""
    if not isinstance(cloud, client.ResizesVolume):
        return _unable(cloud, "enlarge disks")
    found = _read(cloud, spec)
    if isinstance(found, Failed):
        return found
    if (made := cloud.resize_volume(found, spec.wanted["disk_gib"])) is not None:
        return Wait(after=made.after, percent=50, sentence=made.sentence)
    return Ready(log=f"disk of {spec.wanted['disk_gib']} GiB")


def tag(cloud: Client, spec: Spec, memo: Json) -> Answer:
    """Set the tags."""
    if not isinstance(cloud, client.Tags):
        return _unable(cloud, "set tags on existing machines")
    found = _read(cloud, spec)
    if isinstance(found, Failed):
        return found
    cloud.set_tags(found, spec.wanted["tags"])
    return Ready()


def stop(cloud: Client, spec: Spec, memo: Json) -> Answer:
    """Stop the machine and wait, because the type can only be changed while the machine is stopped."""
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
    """Change the type, and wait until the machine is reported with the new type, because some clouds take a while."""
    assert isinstance(cloud, client.ChangesType)
    found = _read(cloud, spec)
    if isinstance(found, Failed):
        return found
    wanted, looks = spec.wanted["type"], memo.get("looks", 0)
    if found.type == wanted or looks >= _LOOKS:
        return Ready(log=f"the type is {wanted}")
    if not looks:
        cloud.change_type(found, wanted)
    return Wait(
        after=2.0,
        memo={"looks": looks + 1},
        percent=40,
        sentence=f"The machine is being changed to instance type {wanted}.",
    )


def start(cloud: Client, spec: Spec, memo: Json) -> Answer:
    """Start the machine if it should run.

    If its new type is not available, the machine is changed back to its old type and started. The plan then fails with
    the provider's message.
    """
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
            raise CloudError(Meaning.NO_CAPACITY, found.reason or "The machine was started but is still stopped.")
        if memo.get("why"):
            cloud.change_type(found, spec.wanted["from"])
        cloud.start(found)
    except CloudError as error:
        return _refused(spec, memo, error)
    return Wait(after=3.0, memo={**memo, "looks": 1}, percent=60, sentence="The machine is being started.")


def _looked(memo: Json, found: Instance) -> Json:
    """Return the memo, with the number of reads that showed the machine as stopped after its start was requested."""
    looks = memo.get("looks", 0)
    return {**memo, "looks": looks + 1} if looks and found.state is Lifecycle.STOPPED else memo


def _refused(spec: Spec, memo: Json, error: CloudError) -> Answer:
    """Change back to the old type at the first definite refusal, and leave the machine off at the second."""
    if error.meaning not in _ELSEWHERE:
        raise error
    if memo.get("why"):
        return _back(spec, memo, "is off. Drydock starts it as soon as capacity is available")
    sentence = f"The type cannot be changed to {spec.wanted['type']}: {error.message}"[:500]
    return Wait(after=0.0, memo={"why": error.message}, percent=80, sentence=sentence)


def _back(spec: Spec, memo: Json, how: str) -> Failed:
    said = f"The machine could not be started as a {spec.wanted['type']}: {memo['why']}"
    return Failed(
        scope=Scope.OFFER,
        code="went_back",
        message=f"{said} Its instance type is {spec.wanted['from']} again, and it {how}.",
    )


def _read(cloud: Client, spec: Spec) -> Instance | Failed:
    """Return the machine as it is now, or Failed if it is gone."""
    there = instance(spec.resource)
    found = cloud.instance(there.location, there.zone, there.key, there.id)
    if found is None or found.state in _OVER:
        return Failed(scope=Scope.OFFER, code="gone", message="The machine no longer exists.")
    return found


def _where(spec: Spec, found: Instance) -> Json:
    address = actions.address_of(spec.resource, inventory.seen_of(found))
    return {"address": address} if address else {}


def _unable(cloud: Client, what: str) -> Failed:
    return Failed(scope=Scope.OPERATOR, code="not_supported", message=f"{cloud.provider} cannot {what}.")
