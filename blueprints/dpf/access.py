"""The connection of a step to the API server of DPF, and the answers of steps to its errors."""

from __future__ import annotations

import datetime as dt
import functools
import threading
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace

from blueprints.answers import Answer, Failed, Json, Ready, Scope, Wait
from blueprints.contract import Act
from blueprints.kube import (
    ApiUnavailable,
    Cluster,
    Dialect,
    FieldsDropped,
    KubeError,
    Object,
    ObjectChanged,
    ObjectRefused,
    connect,
    ensure,
    has_labels,
    labelled,
    object_name,
    proof_labels,
    read_dialect,
    selector,
)
from blueprints.specs import BlueprintView, Owned, Spec
from drydock.core import clock

_KNOWN_FOR = 86_400.0
"""Seconds for which a dialect is used before it is read again."""
_PAUSE = 2.0
SELDOM = 600.0
"""Seconds between two calls of a step while every object that it waits for is watched."""
_UNAVAILABLE = "unavailable_since"
INSTALLATION = "drydock-installation"
"""The label of all objects that an installation has created."""
KEY = "drydock-key"
"""The label with the key of the resource, on objects whose name does not follow from it alone."""
_TAGS = "drydock-"
_MOST_DIALECTS = 16
_dialects: dict[str, tuple[float, Dialect]] = {}
_lock = threading.Lock()


def dialect_of(cluster: Cluster, *, fresh: bool = False) -> Dialect:
    """Return the dialect of a server. It is read once a day in each process, because it has some megabytes."""
    with _lock:
        known = _dialects.get(cluster.where)
    if known is not None and not fresh and clock.monotonic() - known[0] < _KNOWN_FOR:
        return known[1]
    found = read_dialect(cluster)
    with _lock:
        while len(_dialects) >= _MOST_DIALECTS:
            _dialects.pop(next(iter(_dialects)))
        _dialects[cluster.where] = clock.monotonic(), found
    return found


def forget(where: str) -> None:
    """Let the dialect of a server be read again, because it refused what the dialect allows."""
    with _lock:
        _dialects.pop(where, None)


@dataclass(frozen=True)
class Site:
    """An installation of DPF: the open connection, its dialect and its namespace, for one resource of ours."""

    cluster: Cluster
    dialect: Dialect
    namespace: str
    tags: Mapping[str, str]

    @property
    def proof(self) -> dict[str, str]:
        """The labels that prove that an object belongs to the resource."""
        return proof_labels(self.tags)

    def name(self, kind: str, key: str) -> str:
        """Return the name of our object of a kind under a key."""
        return object_name(key, self.dialect.name_limit(kind))

    def find(self, kind: str, name: str) -> Object | None:
        """Read an object of the namespace; None if it does not exist."""
        return self.cluster.find(self.dialect.type(kind), name, self.namespace)

    def ours(self, kind: str) -> tuple[Object, ...]:
        """Return the objects of a kind that have the proof of the resource, such as the DPUs of its DPUSet."""
        return self.cluster.list(self.dialect.type(kind), self.namespace, labels=selector(self.proof))

    def ensure(self, manifest: Json) -> Object:
        """Create an object with the proof of the resource, or adopt it if it is there with that proof."""
        type_ = self.dialect.known(manifest).type
        try:
            return ensure(self.cluster, type_, labelled(manifest, self.proof), proves=has_labels(self.proof))
        except (FieldsDropped, ObjectRefused):
            forget(self.cluster.where)
            raise

    def delete(self, kind: str, name: str) -> Object | None:
        """Delete an object if it is ours. Return it while it is still there, or None once it does not exist."""
        found = self.find(kind, name)
        if found is None or not has_labels(self.proof)(found.labels):
            return None
        return self.cluster.delete(self.dialect.type(kind), found.name, found.namespace, uid=found.uid)


@contextmanager
def site_of(blueprint: BlueprintView, tags: Mapping[str, str], *, deadline: float) -> Iterator[Site]:
    """Open a connection to the API server of a blueprint, for a resource with these tags. Raises KubeError."""
    config = blueprint.config
    with connect(blueprint.credentials.get(config.credential, {}), deadline=deadline) as cluster:
        yield Site(cluster, dialect_of(cluster), config.namespace, tags)


@contextmanager
def opened(spec: Spec) -> Iterator[Site]:
    """Open a connection to the API server of the spec's blueprint. Raises KubeError."""
    with site_of(spec.resource.blueprint, spec.tags, deadline=min(10.0, spec.deadline * 0.4)) as site:
        yield site


def kube_told(act: Act) -> Act:
    """Wrap an act so that errors of the API server become its answer. An outage is waited for, up to `outage`."""

    @functools.wraps(act)
    def answered(spec: Spec, memo: Json) -> Answer:
        memo = dict(memo)
        since = memo.pop(_UNAVAILABLE, None)
        try:
            return act(spec, memo)
        except (ApiUnavailable, ObjectChanged) as error:
            since = since or clock.now().isoformat()
            out = (clock.now() - dt.datetime.fromisoformat(since)).total_seconds()
            if out > spec.config.outage:
                return Failed(scope=Scope.STEP, code=error.code, message=f"{error} This lasts for {out:.0f} s now.")
            after = error.pause if isinstance(error, ApiUnavailable) else _PAUSE
            return Wait(after=after, memo={**memo, _UNAVAILABLE: since}, sentence=error.message[:500])
        except KubeError as error:
            return error.answer()

    return answered


def delete_ours(kind: str) -> Act:
    """Return the act that deletes the object of a kind of the spec's resource, and waits until it does not exist.

    The kind of the resource must watch these objects.
    """

    @kube_told
    def deleted(spec: Spec, memo: Json) -> Answer:
        with opened(spec) as site:
            left = site.delete(kind, site.name(kind, spec.resource.key))
        if left is None:
            return Ready()
        return Wait(
            after=_PAUSE,
            watched=SELDOM,
            memo=memo,
            sentence=f"{kind} {left.name} is being deleted.{left.finalizer_sentence}",
        )

    return deleted


def owned(
    blueprint: BlueprintView, installation: str, kinds: Sequence[str], *, named: Mapping[str, str] = {}
) -> list[Owned]:
    """Return the objects of these kinds that have the installation's label, with all labels of ours.

    Objects that are being deleted are left out, as are those that a controller has made of another one. `named` maps a
    kind to the fact with the name of its object, where that is not the key of the resource. Raises KubeError.
    """
    config = blueprint.config
    found: dict[str, Owned] = {}
    with connect(blueprint.credentials[config.credential]) as cluster:
        dialect = dialect_of(cluster)
        for kind in (one for one in kinds if dialect.has(one)):
            for one in cluster.list(dialect.type(kind), config.namespace, labels=f"{INSTALLATION}={installation}"):
                if one.deleting or one.body["metadata"].get("ownerReferences"):
                    continue
                key = one.labels.get(KEY, one.name)
                before = found.get(key, Owned(key=key, tags=tags_of(one), named=False))
                facts = {**before.facts, **({named[kind]: one.name} if kind in named else {})}
                found[key] = replace(before, facts=facts, named=before.named or key == one.name)
    return [one for _, one in sorted(found.items())]


def tags_of(one: Object) -> dict[str, str]:
    """Return the labels of ours of an object."""
    return {key: value for key, value in one.labels.items() if key.startswith(_TAGS) and key != KEY}
