"""The registry of installed kinds: those of Drydock and those of other packages (entry point group `drydock.kinds`)."""

from __future__ import annotations

import sys
from functools import cache, lru_cache
from importlib.metadata import entry_points
from pathlib import Path

from blueprints.contract import Kind
from drydock.core import forking
from drydock.core.errors import NotFound

GROUP = "drydock.kinds"

BUILT_IN = {
    "accelerators": "blueprints.accelerators.kind:Accelerators",
    "azure": "blueprints.azure.kind:AzureHost",
    "bare_metal": "blueprints.baremetal.kind:BareMetal",
    "bluefield": "blueprints.dpu.bluefield.kind:Bluefield",
    "bluefield_card": "blueprints.dpu.bluefield_card.kind:BluefieldCard",
    "dpf": "blueprints.dpu.dpf.kind:Dpf",
    "dpf_card": "blueprints.dpu.dpf_card.kind:DpfCard",
    "dpf_cluster": "blueprints.dpu.dpf_cluster.kind:DpfCluster",
    "dpf_image": "blueprints.dpu.dpf_image.kind:DpfImage",
    "ec2": "blueprints.ec2.kind:Ec2Host",
    "fake": "blueprints.fake.kind:Fake",
    "fake_activated": "blueprints.fake.kind:FakeActivated",
    "fake_reported": "blueprints.fake.kind:FakeReported",
    "fake_cloud": "blueprints.fake.offering:FakeCloud",
    "gce": "blueprints.gce.kind:GceHost",
    "local_host": "blueprints.local.kind:LocalHost",
    "ssh_host": "blueprints.sshhost.kind:SshHost",
    "storage": "blueprints.layered.storage.kind:Storage",
    "webroot": "blueprints.layered.webroot.kind:Webroot",
    "working_copy": "blueprints.layered.workingcopy.kind:WorkingCopy",
}
"""Maps a kind to the path of its class, which is imported at first use so that no unused SDK is loaded."""


class KindNotFound(NotFound):
    """No kind with that name is installed."""


class KindBroken(NotFound):
    """The kind is installed but could not be loaded."""


@cache
def kind(name: str) -> Kind:
    """Return the kind called `name`. Raises KindNotFound or KindBroken."""
    places = _places()
    if name not in places:
        raise KindNotFound(
            f"Kind {name!r} does not exist.", field="kind", hint=f"Choose one of: {', '.join(sorted(places))}."
        )
    return _load(name, places[name])


def names() -> list[str]:
    """Return the names of all installed kinds, sorted."""
    return sorted(_places())


@cache
def kinds_of_type(resource_type: str) -> tuple[str, ...]:
    """Return the kinds whose resources have this type, except for those that cannot be loaded."""
    return tuple(name for name in names() if _type_of(name) == resource_type)


@cache
def resource_types() -> frozenset[str]:
    """Return the resource types of all kinds that can be loaded."""
    return frozenset(found for name in names() if (found := _type_of(name)))


def register(new: Kind) -> None:
    """Register a kind in this process, for tests and for programs that create kinds at run time."""
    if new.name in _places() and _registered.get(new.name) is not new:
        raise ValueError(f"a kind named {new.name!r} is already registered")
    _registered[new.name] = new
    forget()


def forget() -> None:
    """Clear the caches, after packages were added or removed."""
    for cached in (kind, kinds_of_type, resource_types, _entry_points):
        cached.cache_clear()


_registered: dict[str, Kind] = {}


def _places() -> dict[str, str]:
    found = dict(BUILT_IN)
    for name, value in _entry_points(tuple(map(_changed_at, sys.path))):
        found.setdefault(name, value)
    return found | {name: "" for name in _registered}


@lru_cache(maxsize=1)
def _entry_points(_path: tuple[tuple[str, int], ...]) -> tuple[tuple[str, str], ...]:
    """Return the kinds of other packages. The argument changes when a package is added or removed.

    The result is cached because every sweep asks for it, and reading it means reading every package's metadata.
    """
    return tuple((point.name, point.value) for point in entry_points(group=GROUP))


def _changed_at(folder: str) -> tuple[str, int]:
    """Return a folder of the module path, with the time in ns at which a file in it was last added or removed."""
    try:
        return folder, Path(folder).stat().st_mtime_ns
    except OSError:
        return folder, 0


def _load(name: str, place: str) -> Kind:
    if name in _registered:
        return _registered[name]
    module, _, attribute = place.partition(":")
    try:
        loaded = getattr(forking.load(module), attribute)()
    except Exception as error:
        raise KindBroken(f"The kind {name!r} ({place}) cannot be loaded: {error}", field="kind") from error
    if not isinstance(loaded, Kind):
        raise KindBroken(f"{place}, registered as the kind {name!r}, is not a subclass of Kind.", field="kind")
    if loaded.name != name:
        raise KindBroken(f"{place} is registered as the kind {name!r}, but its name is {loaded.name!r}.", field="kind")
    for match in loaded.matches:
        has, asks = loaded.Attributes.model_fields, loaded.Requirements.model_fields
        if match.attribute in asks and match.requirement in has and match.attribute not in has:
            raise KindBroken(
                f"The kind {name!r} declares {match!r} with attribute and requirement swapped.", field="kind",
                hint="Write Match(attribute, operator, requirement).",
            )  # fmt: skip
    return loaded


def _type_of(name: str) -> str | None:
    try:
        return kind(name).resource_type
    except KindBroken:
        return None
