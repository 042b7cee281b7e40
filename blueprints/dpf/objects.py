"""The DPF objects of an owner's definition, such as a chain, and their common state. Pure.

Each object of a definition has a label with its name, and an annotation with the definition as JSON.
"""

from __future__ import annotations

import json
from abc import ABC, abstractmethod
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, ClassVar, Generic, TypeVar

from blueprints.answers import Json
from blueprints.dpf.services import labels_of
from blueprints.kube import Dialect, Object, dropped
from drydock.core.errors import InvalidRequest, NotSupported
from interfaces.dpu_services import Chain, Condition, Found, Network, Volume, Vpc

SELECTORS = ("dpuClusterSelector", "clusterSelector")
"""The field that selects clusters, in newer and in older versions of DPF. Those that have both prefer the first."""
_UNCHANGED = "Unchanged"
_READY = "Ready"

D = TypeVar("D", Chain, Network, Volume, Vpc)


@dataclass(frozen=True, kw_only=True)
class Place:
    """The place of the objects of a lease, and the node of its DPU, to which they apply."""

    dialect: Dialect
    lease: str
    namespace: str
    proof: Mapping[str, str]
    """The labels that prove whose an object is, which are also those of the node."""
    cluster: Mapping[str, str]
    """The labels of the DPU cluster."""
    network: str = ""
    """The network of interfaces of services that have none of their own."""
    host: str = ""
    """The name of the DPUNode of the DPU."""

    def selected(self, kind: str, spec: Json) -> Json:
        """Return a spec that selects the DPU cluster, as far as the server can tell it by labels."""
        field = next((one for one in SELECTORS if self.dialect.has(kind, f"spec.{one}")), "")
        return {**({field: {"matchLabels": dict(self.cluster)}} if field and self.cluster else {}), **spec}


class Written(ABC, Generic[D]):
    """How definitions of one type are written."""

    kinds: ClassVar[tuple[str, ...]]
    """The kinds of their objects, in the order in which they are removed."""
    root: ClassVar[str] = ""
    """The kind to which the others refer, if there is one. It is removed last."""
    newer: ClassVar[tuple[str, ...]] = ()
    """The kinds that DPF 24.10 does not have, and without which nothing is written."""
    name: ClassVar[str]
    """The label with the name."""
    definition: ClassVar[str]
    """The annotation with the definition."""

    @abstractmethod
    def parse(self, given: Json) -> D:
        """Return a definition from JSON. Raises InvalidRequest."""

    @abstractmethod
    def specs(self, place: Place, made: D) -> Sequence[tuple[str, str, Json]]:
        """Return kind, name and spec of each object of a definition. Raises InvalidRequest with the field."""

    def former(self, place: Place, found: Object) -> Place:
        """Return the place as it was when an object was written, as far as that does not matter now."""
        return place

    def facts(self, objects: Sequence[tuple[str, Object]]) -> Mapping[str, str]:
        """Return what the objects of a definition, each given with its kind, report beside their conditions."""
        return {}

    def check_known(self, dialect: Dialect) -> None:
        """Raise NotSupported for servers without one of the newer kinds."""
        if missing := [kind for kind in self.newer if not dialect.has(kind)]:
            raise NotSupported(
                f"This version of DPF has no {' and no '.join(missing)}.",
                hint="DPF 26.4 has them, and DPF 24.10 does not.",
            )

    def waits(self, kind: str, found: Object, left: Collection[str]) -> bool:
        """Return whether an object must not be deleted yet, as objects of the kinds `left` may refer to it.

        DPF keeps it until then once it has put its finalizer on it, but not before. A DPUVirtualNetwork whose DPUVPC is
        gone would keep its own finalizer for ever (doca-platform, `internal/vpc/ovn/controllers`).
        """
        return kind == self.root and not found.finalizers and any(one in self.kinds for one in left)

    def manifests(self, place: Place, made: D) -> list[Json]:
        """Return the objects of a definition, in the order in which they are created."""
        found = []
        for kind, name, spec in self.specs(place, made):
            one = place.dialect.type(kind).manifest(name, place.namespace, spec=place.selected(kind, spec))
            one["metadata"]["labels"] = {**place.proof, **labels_of(place.lease), self.name: made.name}
            one["metadata"]["annotations"] = {self.definition: _text(made)}
            found.append(one)
        return found

    def definition_of(self, found: Object) -> D | None:
        """Return the definition that an object was written for; None if it is not one of ours, or was garbled."""
        try:
            written = json.loads(found.annotations.get(self.definition, ""))
            made = self.parse(written if isinstance(written, dict) else {})
        except (InvalidRequest, ValueError, RecursionError):
            return None
        return made if found.labels.get(self.name) == made.name else None

    def found(self, place: Place, objects: Sequence[tuple[str, Object]]) -> list[Found[D]]:
        """Return the definitions to which these objects belong, each given with its kind. Sorted by name."""
        parts: dict[str, list[tuple[str, Object]]] = {}
        parsed: dict[tuple[str, str], D | None] = {}
        for kind, one in objects:
            text = one.annotations.get(self.definition, ""), one.labels.get(self.name, "")
            if text not in parsed:
                parsed[text] = self.definition_of(one)
            if (made := parsed[text]) is not None:
                parts.setdefault(made.name, []).append((kind, one))
        return [self._found(place, parts[name]) for name in sorted(parts)]

    def _found(self, place: Place, parts: Sequence[tuple[str, Object]]) -> Found[D]:
        # What is left of an earlier definition of this name does not say what is there now.
        first = min((kind for kind, _ in parts), key=self.kinds.index)
        made = next(self.definition_of(one) for kind, one in parts if kind == first)
        assert made is not None
        wanted = {(kind, name) for kind, name, _ in self.specs(place, made)}
        conditions = list(self._conditions(place, parts, made))
        ready = all(one.observed and (said := one.condition(_READY)) is not None and said.true for _, one in parts)
        return Found(
            definition=made, version=" ".join(sorted(one.uid for _, one in parts)), conditions=tuple(conditions),
            complete={(kind, one.name) for kind, one in parts if not one.deleting} == wanted,
            ready=ready and not any(one.type.endswith(_UNCHANGED) for one in conditions),
            removing=any(one.deleting for _, one in parts), facts=self.facts(parts),
        )  # fmt: skip

    def _conditions(self, place: Place, parts: Sequence[tuple[str, Object]], made: D) -> Iterator[Condition]:
        """Yield the conditions of objects, with their names, and one more for each that somebody else has changed."""
        known: list[tuple[Place, dict[tuple[str, str], Json]]] = []
        for kind, one in parts:
            wanted = self._wanted(self.former(place, one), made, known).get((kind, one.name))
            if wanted is None or not is_part(one, wanted):
                said = "Its object is not as Drydock wrote it. Remove it, and create it again."
                type_ = f"{kind} {one.name}: {_UNCHANGED}"
                yield Condition(type=type_, status="False", reason="ChangedByOthers", message=said)
            for each in one.conditions:
                type_ = f"{kind} {one.name}: {each.type}"
                yield Condition(type=type_, status=each.status, reason=each.reason, message=each.message)

    def _wanted(
        self, place: Place, made: D, known: list[tuple[Place, dict[tuple[str, str], Json]]]
    ) -> Mapping[tuple[str, str], Json]:
        """Return the manifests of a definition by kind and name. Made once for each place, as there may be many."""
        for former, manifests in known:
            if former == place:
                return manifests
        found = {(one["kind"], one["metadata"]["name"]): one for one in self.manifests(place, made)}
        known.append((place, found))
        return found


def is_part(found: Object, manifest: Json) -> bool:
    """Return whether an object is as a manifest says. Clusters may have other labels meanwhile."""
    wanted = {key: value for key, value in manifest["spec"].items() if key not in SELECTORS}
    return not dropped({"metadata": manifest["metadata"], "spec": wanted}, found.body)


def _text(made: Any) -> str:
    return json.dumps(made.to_json(), sort_keys=True, separators=(",", ":"))
