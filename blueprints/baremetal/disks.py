"""The disks that a host must have: those that the ramdisk found when the host was enrolled, or an operator accepted.

A tenant with root can detach an NVMe namespace, or let a disk show fewer blocks than it has (host protected area,
device configuration overlay, block count of SCSI). What is out of sight is not erased, and the next tenant can bring it
back.
"""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Any, TypeAlias

from blueprints.answers import Answer, Failed, Hold, Json, Ready, Scope
from blueprints.baremetal import ramdisk_agent
from blueprints.baremetal.ramdisk import abandoned
from blueprints.baremetal.ramdisk_agent import AgentRefused
from blueprints.baremetal.sessions import bmc_told
from blueprints.specs import Spec

CHANGED = "disks_changed"
"""Code of a failure: the host has other disks than those that were recorded."""
FACT = "disks"
"""Name of the fact with the disks of the host."""
CONTROLLERS = "disk_controllers"
"""Name of the fact with its NVMe controllers. Missing if an older ramdisk recorded the disks."""
_MOST = 1024
_TOLD = 10
"""Maximum number of differences that are named."""

Entry: TypeAlias = Mapping[str, Any]
_Same: TypeAlias = Callable[[Entry, Entry], bool]


def read(spec: Spec) -> Json:
    """Return the disks and NVMe controllers that the ramdisk finds, as facts. Raises AgentRefused, InterfaceError.

    More than 1024 are refused rather than cut, as those that are left out would neither be compared nor proven empty.
    """
    listed = ramdisk_agent.call(spec.resource, "disks", "list")
    found: Json = {FACT: _entries(listed.get("disks"))}
    if isinstance(listed.get("controllers"), list):
        found[CONTROLLERS] = _entries(listed["controllers"])
    return found


def _entries(listed: object) -> list[Any]:
    if not isinstance(listed, list):
        return []
    if len(listed) > _MOST:
        raise AgentRefused(
            "too_many_disks", f"The ramdisk lists {len(listed)} disks or controllers; {_MOST} can be compared."
        )
    return [one for one in listed if isinstance(one, dict)]


def fixed(facts: Entry) -> list[Entry]:
    """Return the disks that are erased."""
    return [one for one in facts.get(FACT) or [] if not one.get("removable")]


def differences(recorded: Entry, found: Entry) -> list[str]:
    """Return a sentence for each disk and each NVMe controller that differs from what was recorded."""
    return [*_of_disks(fixed(recorded), fixed(found)), *_of_controllers(recorded, found)]


def _of_disks(recorded: list[Entry], found: list[Entry]) -> Iterator[str]:
    pairs, missing, unknown = _paired(recorded, found)
    for one in missing:
        yield f"{named(one)} is missing; {_size(one)} were recorded."
    for was, now in pairs:
        if was.get("size_bytes") != now.get("size_bytes"):
            yield f"{named(now)} has {_size(now)}; {_size(was)} were recorded."
    for one in unknown:
        yield f"{named(one)} with {_size(one)} was not recorded."


def _of_controllers(recorded: Entry, found: Entry) -> Iterator[str]:
    """Compare the NVMe controllers, if both sides list them."""
    if recorded.get(CONTROLLERS) is None or found.get(CONTROLLERS) is None:
        return
    pairs, missing, unknown = _paired(recorded[CONTROLLERS], found[CONTROLLERS])
    for one in missing:
        yield f"The NVMe controller {named(one)} is missing; {_spaces(one)} recorded."
    for was, now in pairs:
        lists = was.get("namespaces"), now.get("namespaces")
        if lists[0] is not None and lists[0] != lists[1]:
            yield f"The NVMe controller {named(now)} has {_spaces(now, '')}; {_spaces(was)} recorded."
    for one in unknown:
        yield f"The NVMe controller {named(one)} was not recorded."


def hidden(found: Entry) -> Iterator[tuple[Entry, str]]:
    """Yield the NVMe controllers that have namespaces which are no disks, and so cannot be erased one by one."""
    for one in found.get(CONTROLLERS) or []:
        if one.get("hidden"):
            ids = ", ".join(map(str, one["hidden"]))
            hint = "Attach them (nvme attach-ns) or delete them (nvme delete-ns)"
            yield one, f"{named(one)}: these namespaces are not shown as disks: {ids}. {hint}"


def named(one: Entry) -> str:
    """Return the name of a disk or controller, with its model and serial number."""
    about = " ".join(str(one[key]) for key in ("model", "serial") if one.get(key))
    return f"{one.get('name')} ({about or 'no serial number'})"


def _size(one: Entry) -> str:
    size = one.get("size_bytes")
    return f"{size} bytes ({size / 1e9:.1f} GB)" if isinstance(size, int) and size else "no bytes"


def _spaces(one: Entry, verb: str = "were") -> str:
    ids = one.get("namespaces")
    if ids is None:
        return f"unknown namespaces {verb}".strip()
    many = "namespaces" if len(ids) != 1 else "namespace"
    said = f"the {many} {', '.join(map(str, ids))}" if ids else "no namespaces"
    return f"{said} {'was' if verb and len(ids) == 1 else verb}".strip()


def _same(*keys: str) -> _Same:
    """Return whether two entries have the same text under the first of these keys, and the same values otherwise."""
    return lambda one, other: bool(_text(one, keys[0])) and all(_text(one, key) == _text(other, key) for key in keys)


def _text(one: Entry, key: str) -> str:
    return str(one.get(key) or "").casefold()


def _nameless(one: Entry) -> bool:
    return not one.get("serial") and not one.get("wwn")


_SAME: tuple[_Same, ...] = (
    _same("serial", "wwn", "size_bytes", "name"),
    _same("serial", "wwn", "size_bytes"),
    _same("serial", "wwn", "name"),
    _same("serial", "wwn"),
    _same("wwn"),
    _same("serial", "name"),
    _same("serial"),
    lambda one, other: _nameless(one) and _nameless(other) and _same("name", "model", "size_bytes")(one, other),
    lambda one, other: _nameless(one) and _nameless(other) and _same("size_bytes", "model")(one, other),
    lambda one, other: _nameless(one) and _nameless(other) and _same("name")(one, other),
)
"""Rules by which two entries are the same thing, the most certain first.

Names change between boots. The namespaces of one NVMe controller have its serial number in common, and so may volumes
of a RAID controller, which the size tells apart.
"""


def _paired(recorded: Sequence[Entry], found: Sequence[Entry]) -> tuple[list[tuple[Entry, Entry]], Any, Any]:
    """Return the pairs of entries that are the same thing, and those of either side that have no partner."""
    pairs: list[tuple[Entry, Entry]] = []
    missing, unknown = list(recorded), list(found)
    for same in _SAME:
        for one in tuple(missing):
            at = next((number for number, other in enumerate(unknown) if same(one, other)), None)
            if at is not None:
                pairs.append((one, unknown.pop(at)))
                missing = [each for each in missing if each is not one]
    return pairs, missing, unknown


@bmc_told
def compare(spec: Spec, memo: Json) -> Answer:
    """Compare the disks with those recorded, before anything is erased. An operator decides about differences.

    With yes, what is found is recorded, and the cleaning goes on. With no, the cleaning fails, and is tried again
    later.
    """
    try:
        found = read(spec)
    except AgentRefused as error:
        return abandoned(spec, Failed(scope=Scope.OPERATOR, code=error.code, message=error.message))
    wrong = _wrong(spec.resource.facts, found)
    if not wrong:
        return Ready()
    said, shown, answer = _sentence(wrong), _digest(found), spec.resolution
    if answer is None or memo.get("shown") != shown:
        return Hold(who="operator", what=f"{said} {_QUESTION}", memo={"shown": shown})
    if not answer.yes:
        why = f" ({answer.text})" if answer.text else ""
        message = f"{said} {answer.actor or 'An operator'} did not accept this{why}."
        return abandoned(spec, Failed(scope=Scope.OPERATOR, code=CHANGED, message=message))
    return Ready(resource_facts=found, log=f"{answer.actor or 'An operator'} accepted this: {said}")


_QUESTION = (
    "A tenant may have hidden them, so that data stays behind. If so, bring them back and answer no: the host is "
    "cleaned again later. Were the disks changed on purpose, so that these are recorded and erased?"
)


@bmc_told
def compare_before_lease(spec: Spec, memo: Json) -> Answer:
    """Compare the disks before an image is written: one that was not erased is nobody's to read.

    A host that was enrolled without a ramdisk has no record yet; what is found is recorded.
    """
    try:
        found = read(spec)
    except AgentRefused as error:
        return abandoned(spec, Failed(scope=Scope.OPERATOR, code=error.code, message=error.message))
    if spec.resource.facts.get(FACT) is None:
        return Ready(resource_facts=found, log="The disks were recorded, because there was no record of them.")
    if not (wrong := differences(spec.resource.facts, found)):
        return Ready()
    message = f"{_sentence(wrong)} {_ERASE_FIRST}"
    return abandoned(spec, Failed(scope=Scope.OPERATOR, code=CHANGED, message=message, quarantines=True))


_ERASE_FIRST = (
    "Let the host be erased (the act erase), which asks whether the disks were changed on purpose. Then end the "
    "quarantine."
)


def _wrong(facts: Entry, found: Entry) -> list[str]:
    if facts.get(FACT) is not None:
        return differences(facts, found)
    there = ", ".join(f"{named(one)} with {_size(one)}" for one in fixed(found)) or "none"
    return [f"The disks of the host were never recorded. It has: {there}."]


def _sentence(wrong: Sequence[str]) -> str:
    more = f" {len(wrong) - _TOLD} more differ." if len(wrong) > _TOLD else ""
    return f"The disks differ from those that were recorded. {' '.join(wrong[:_TOLD])}"[:3000] + more


def _digest(found: Entry) -> str:
    """Return a digest of what an operator decides about, without what changes by itself, such as the names."""
    keys = ("serial", "wwn", "model", "size_bytes", "namespaces")
    entries = (*fixed(found), *(found.get(CONTROLLERS) or []))
    about = sorted([_text(one, key) for key in keys] for one in entries)
    return hashlib.sha256(json.dumps(about).encode()).hexdigest()[:16]
