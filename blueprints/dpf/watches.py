"""Watches of DPF objects: one for each type of objects and namespace, whatever their number.

The objects of an installation have its label, and the proof of the resource that they belong to. Other objects concern
the DPUs whose host they are about.
"""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace

from blueprints.dpf.access import INSTALLATION, tags_of
from blueprints.dpf.cards import DEVICE_NODE as NODE_LABEL
from blueprints.dpf.config import Server
from blueprints.dpf.phases import REBOOT, held, reported
from blueprints.kube import (
    ApiUnavailable,
    Bookmark,
    Changed,
    Cluster,
    Follower,
    KubeError,
    Listed,
    Marked,
    Object,
    ObjectType,
    Pause,
    RequestForbidden,
    connect,
    find_type,
    follow,
)
from blueprints.specs import BlueprintView, Owned
from blueprints.watches import Changes, Ending, WatchFailed, WatchNews, WatchPlace

_DPU = "DPU"
_SET = "DPUSet"
"""A type of objects whose status counts the DPUs in each phase. No step reads it, and it changes with each of them."""
_ABSENT = "absent"
"""The bookmark of the watch of a type that the server does not have."""
_LOOK = 300.0
"""Seconds until it is looked again whether the server has the type."""
_PAUSE = 5.0
_MOST = 10_000
"""Names that a watch remembers between two listings. Above it, all are forgotten, so the next change of each wakes."""


def _at_node(one: Object) -> str:
    return one.name if REBOOT in one.annotations else ""


def _at_maintenance(one: Object) -> str:
    return str(one.spec.get("dpuNodeName") or one.name.removesuffix("-hold")) if held(one) else ""


OF_HOSTS: Mapping[str, Callable[[Object], str]] = {"DPUNode": _at_node, "DPUNodeMaintenance": _at_maintenance}
"""Types of objects about a host -> the function that returns the name of its DPUNode while DPF waits for us there."""


def places(config: Server, kinds: Sequence[str]) -> list[WatchPlace]:
    """Return the places to watch for objects of these types."""
    return [WatchPlace(credential=config.credential, name=f"{config.namespace}/{kind}") for kind in kinds]


def watch(
    blueprint: BlueprintView, place: str, installation: str, bookmark: str, ending: Ending
) -> Iterator[WatchNews]:
    """Yield the changes of the objects of one type, from a bookmark or a listing."""
    namespace, _, kind = place.partition("/")
    try:
        with connect(blueprint.credentials.get(blueprint.config.credential, {})) as cluster:
            ending.then(cluster.end_watches)
            type_ = find_type(cluster, kind)
            if type_ is None:
                yield Changes(bookmark=_ABSENT, listed=True, after=_LOOK)
                return
            yield from _Followed(cluster, type_, namespace, installation, bookmark).news()
    except KubeError as error:
        yield _failure(error, _PAUSE, bookmark)


def _failure(error: KubeError, seconds: float, bookmark: str) -> WatchFailed:
    """Return the news of an error."""
    after = max(seconds, error.pause) if isinstance(error, ApiUnavailable) else seconds
    return WatchFailed(message=str(error), after=after, bookmark=bookmark)


class _Found:
    """The part of a listing that is kept: all names, and the objects that have changed."""

    def __init__(self) -> None:
        self.names: set[str] = set()
        self.newer: list[Object] = []

    def take(self, objects: Sequence[Object], before: Bookmark | None) -> None:
        """Take a page. Without a bookmark no object is kept, because any may have changed."""
        self.names.update(one.name for one in objects)
        if before is not None:
            self.newer += [one for one in objects if _is_newer(one, before)]


class _Followed:
    """The watch of one type of objects on an open connection."""

    def __init__(self, cluster: Cluster, type_: ObjectType, namespace: str, installation: str, bookmark: str) -> None:
        self._cluster, self._type, self._namespace = cluster, type_, namespace
        self._label = f"{INSTALLATION}={installation}"
        self._node_of = OF_HOSTS.get(type_.kind)
        self._waiting: set[str] = set()
        """The objects about hosts at which DPF waits for us."""
        self._sets: dict[int, int] = {}
        """Hash of the name of each DPUSet that has changed -> hash of all but its status."""
        self._mark = _read(bookmark)
        self._dpus: ObjectType | None = None

    def news(self) -> Iterator[WatchNews]:
        """Yield news until the credential must be read again, or the DPUs of a host cannot be read."""
        try:
            yield from self._followed()
        except KubeError as error:
            yield _failure(error, _PAUSE, _written(self._mark))

    def _followed(self) -> Iterator[WatchNews]:
        """Yield news until the credential must be read again. Raises KubeError if the DPUs of a host cannot be read."""
        follower, found = Follower(self._mark), _Found()
        labels = "" if self._node_of else self._label
        for one in follow(self._cluster, self._type, self._namespace, labels=labels, follower=follower):
            match one:
                case Listed():
                    found = _Found() if one.first else found
                    found.take(one.objects, None if one.missed else self._mark)
                    if one.bookmark is not None:
                        yield self._listed(found, one.bookmark, missed=one.missed)
                        found = _Found()
                case Changed():
                    gone = self._gone if one.deleted else self._concerned
                    yield self._told(gone([one.object]), one.bookmark)
                case Marked():
                    yield self._told((), one.bookmark)
                case Pause():
                    yield _failure(one.error, one.seconds, _written(follower.bookmark))
                    if not isinstance(one.error, ApiUnavailable | RequestForbidden):
                        return

    def _listed(self, found: _Found, mark: Bookmark, *, missed: bool) -> Changes:
        """Return what has changed since the bookmark before, of the objects of a listing."""
        before, self._waiting = self._mark, self._waiting & found.names
        there = {hash(name) for name in found.names}
        self._sets = {name: known for name, known in self._sets.items() if name in there}
        if missed or before is None:
            self._mark = mark
            return Changes(bookmark=_written(mark), listed=True, missed=True)
        return self._told(self._concerned(found.newer), mark, listed=True)

    def _told(self, objects: tuple[Owned, ...], mark: Bookmark, *, listed: bool = False) -> Changes:
        self._mark = mark
        return Changes(objects=objects, bookmark=_written(mark), listed=listed)

    def _concerned(self, changed: Sequence[Object]) -> tuple[Owned, ...]:
        """Return the objects of ours that changed objects are about."""
        if self._type.kind == _DPU:
            return tuple(replace(_owned(one), progress=reported(one)) for one in changed)
        if self._type.kind == _SET:
            return tuple(_owned(one) for one in changed if self._is_more_than_status(one))
        if self._node_of is None:
            return tuple(_owned(one) for one in changed)
        nodes = set[str]()
        for one in changed:
            if len(self._waiting) >= _MOST:
                self._waiting.clear()
            node = self._node_of(one)
            if node and one.name not in self._waiting:
                nodes.add(node)
            (self._waiting.add if node else self._waiting.discard)(one.name)
        return self._dpus_of(nodes) if nodes else ()

    def _is_more_than_status(self, changed: Object) -> bool:
        """Return whether more than the status of a DPUSet differs from its last change, as far as that is known."""
        parts = [sorted(changed.labels.items()), sorted(changed.annotations.items()), changed.finalizers]
        now, name = hash(repr([changed.uid, changed.generation, changed.deleting, *parts])), hash(changed.name)
        known = self._sets.get(name)
        if len(self._sets) >= _MOST:
            self._sets.clear()
        self._sets[name] = now
        return now != known

    def _gone(self, deleted: Sequence[Object]) -> tuple[Owned, ...]:
        for one in deleted:
            self._sets.pop(hash(one.name), None)
        if self._node_of is None:
            return tuple(_owned(one) for one in deleted)
        self._waiting.difference_update(one.name for one in deleted)
        return ()

    def _dpus_of(self, nodes: set[str]) -> tuple[Owned, ...]:
        """Return the DPUs of ours in hosts. Raises KubeError."""
        type_ = self._dpus = self._dpus or find_type(self._cluster, _DPU)
        if type_ is None:
            return ()
        found = self._listed_dpus(type_, sorted(nodes))
        return tuple(_owned(one) for one in found if one.spec.get("dpuNodeName") in nodes)

    def _listed_dpus(self, type_: ObjectType, nodes: Sequence[str]) -> Sequence[Object]:
        """Return our DPUs in hosts: by the label that DPF gives them, or all of ours if one host has none with it."""
        found = list[Object]()
        for node in nodes:
            labelled = self._cluster.list(type_, self._namespace, labels=f"{self._label},{NODE_LABEL}={node}")
            if not labelled:
                return self._cluster.list(type_, self._namespace, labels=self._label)
            found += labelled
        return found


def _owned(one: Object) -> Owned:
    return Owned(key=one.name, tags=tags_of(one))


def _is_newer(one: Object, than: Bookmark) -> bool:
    if not (one.resource_version.isdecimal() and than.resource_version.isdecimal()):
        return True
    return int(one.resource_version) > int(than.resource_version)


def _read(bookmark: str) -> Bookmark | None:
    """Return a stored bookmark; None if a listing is needed."""
    if bookmark in ("", _ABSENT):
        return None
    stored = json.loads(bookmark)
    return Bookmark(resource_version=str(stored["version"]), listed_at=float(stored["listed_at"]))


def _written(mark: Bookmark | None) -> str:
    if mark is None:
        return ""
    return json.dumps({"version": mark.resource_version, "listed_at": round(mark.listed_at, 3)})
