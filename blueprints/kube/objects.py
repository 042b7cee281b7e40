"""Objects of the Kubernetes API as values, and the types that name them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal
from urllib.parse import quote

from blueprints.kube.errors import AnswerInvalid

Json = dict[str, Any]

MOST_CONDITIONS = 100
"""Conditions of one object that are read. The DPUs of DPF 26.4 have about 40."""
_MOST_TEXT = 1000


@dataclass(frozen=True, kw_only=True)
class ObjectType:
    """A type of object: its kind, and where the API server has it (group, version and plural)."""

    group: str
    """Empty for the core group."""
    version: str
    kind: str
    plural: str
    namespaced: bool = True

    @property
    def api_version(self) -> str:
        """The value of `apiVersion` in its objects."""
        return f"{self.group}/{self.version}" if self.group else self.version

    @property
    def resource(self) -> str:
        """Its name in messages and roles, such as `dpusets.provisioning.dpu.nvidia.com`."""
        return f"{self.plural}.{self.group}" if self.group else self.plural

    def path(self, namespace: str = "", name: str = "", subresource: str = "") -> str:
        """Return the path of an object, or of all objects if `name` is empty, in a namespace or in all of them."""
        parts = ["apis", self.group, self.version] if self.group else ["api", self.version]
        if namespace and self.namespaced:
            parts += ["namespaces", namespace]
        parts += [part for part in (self.plural, name, subresource) if part]
        return "/" + "/".join(quote(part, safe="") for part in parts)

    def manifest(self, name: str, namespace: str = "", **fields: Any) -> Json:
        """Return an object of this type with some top-level fields, such as `spec`."""
        metadata = {"name": name, **({"namespace": namespace} if self.namespaced and namespace else {})}
        metadata |= fields.pop("metadata", {})
        return {"apiVersion": self.api_version, "kind": self.kind, "metadata": metadata, **fields}


NODE = ObjectType(group="", version="v1", kind="Node", plural="nodes", namespaced=False)
SECRET = ObjectType(group="", version="v1", kind="Secret", plural="secrets")
SERVICE_ACCOUNT = ObjectType(group="", version="v1", kind="ServiceAccount", plural="serviceaccounts")
POD = ObjectType(group="", version="v1", kind="Pod", plural="pods")
CONFIG_MAP = ObjectType(group="", version="v1", kind="ConfigMap", plural="configmaps")


@dataclass(frozen=True, kw_only=True)
class Condition:
    """A condition in the status of an object."""

    type: str
    status: str
    reason: str = ""
    message: str = ""
    changed_at: str = ""
    """`lastTransitionTime`, as the server wrote it."""

    @property
    def true(self) -> bool:
        """Whether its status is True."""
        return self.status == "True"


@dataclass(frozen=True)
class Object:
    """An object as the API server returned it. `body` is not changed by anyone."""

    body: Json = field(repr=False)
    name: str
    namespace: str
    uid: str
    resource_version: str
    generation: int
    labels: Mapping[str, str] = field(repr=False)
    annotations: Mapping[str, str] = field(repr=False)
    finalizers: tuple[str, ...] = ()
    deleting: bool = False
    """Whether it has a deletionTimestamp. If so, it is being deleted, whatever its status says."""

    @classmethod
    def of(cls, body: Any) -> Object:
        """Return the value of an object. Raises AnswerInvalid if it has no usable metadata."""
        meta = body.get("metadata") if isinstance(body, dict) else None
        if not isinstance(meta, dict):
            raise AnswerInvalid("The API server sent an object without metadata.")
        texts = {key: meta.get(key, "") for key in ("name", "namespace", "uid", "resourceVersion")}
        generation, finalizers = meta.get("generation", 0), meta.get("finalizers") or []
        if (
            not all(isinstance(text, str) for text in texts.values())
            or not texts["name"]
            or type(generation) is not int
            or not isinstance(finalizers, list)
        ):
            raise AnswerInvalid("The API server sent an object whose metadata cannot be understood.")
        return cls(
            body=body, name=texts["name"], namespace=texts["namespace"], uid=texts["uid"],
            resource_version=texts["resourceVersion"], generation=generation, labels=_texts(meta.get("labels")),
            annotations=_texts(meta.get("annotations")), finalizers=tuple(str(one) for one in finalizers[:100]),
            deleting=bool(meta.get("deletionTimestamp")),
        )  # fmt: skip

    @property
    def spec(self) -> Json:
        """The spec; empty if there is none."""
        return _dict(self.body.get("spec"))

    @property
    def status(self) -> Json:
        """The status; empty if there is none."""
        return _dict(self.body.get("status"))

    @property
    def phase(self) -> str:
        """The phase in the status, or `Deleting` while it is being deleted, as the status is then out of date."""
        if self.deleting:
            return "Deleting"
        found = self.status.get("phase", "")
        return found[:_MOST_TEXT] if isinstance(found, str) else ""

    @property
    def finalizer_sentence(self) -> str:
        """Return a sentence that names the finalizers, with a space before it; empty if there are none."""
        return f" It is kept by the finalizers {', '.join(self.finalizers)}." if self.finalizers else ""

    @property
    def observed(self) -> bool:
        """Whether the status is about the present generation, as far as the object says so.

        A controller that reports `observedGeneration` for an older generation has not seen the last change yet.
        """
        seen = self.status.get("observedGeneration")
        return type(seen) is not int or seen >= self.generation

    @property
    def conditions(self) -> tuple[Condition, ...]:
        """The conditions in its status, at most 100, with texts of at most 1,000 characters."""
        return conditions(self.status.get("conditions"))

    def condition(self, type_: str) -> Condition | None:
        """Return the condition of a type, or None if the object has none."""
        return next((one for one in self.conditions if one.type == type_), None)

    @property
    def managers(self) -> tuple[Json, ...]:
        """The entries of `managedFields`: who set which fields."""
        found = self.body["metadata"].get("managedFields")
        return tuple(one for one in found if isinstance(one, dict)) if isinstance(found, list) else ()


@dataclass(frozen=True, kw_only=True)
class Page:
    """Some objects of a listing. `more` continues it; empty on the last page."""

    items: tuple[Object, ...]
    resource_version: str
    more: str = ""


@dataclass(frozen=True, kw_only=True)
class Event:
    """One line of a watch."""

    type: Literal["ADDED", "MODIFIED", "DELETED", "BOOKMARK"]
    resource_version: str
    """The resourceVersion from which a watch resumes after this event."""
    object: Object | None = None
    """None for bookmarks."""


def conditions(found: Any) -> tuple[Condition, ...]:
    """Return a list of conditions as values. Skips what is not a condition."""
    if not isinstance(found, list):
        return ()
    return tuple(
        Condition(
            type=_text(one, "type"), status=_text(one, "status"), reason=_text(one, "reason"),
            message=_text(one, "message"), changed_at=_text(one, "lastTransitionTime"),
        )
        for one in found[:MOST_CONDITIONS]
        if isinstance(one, dict) and isinstance(one.get("type"), str)
    )  # fmt: skip


def at(body: Any, path: str) -> Any:
    """Return the value at a path of names, such as `spec.dpuTemplate.spec`; None if there is none."""
    for name in path.split("."):
        body = body.get(name) if isinstance(body, dict) else None
    return body


def names(found: Sequence[Object]) -> str:
    """Return the names of objects for a message, at most ten."""
    listed = ", ".join(one.name for one in found[:10])
    return listed + (f" and {len(found) - 10} more" if len(found) > 10 else "")


def _text(of: Json, name: str) -> str:
    found = of.get(name)
    return found[:_MOST_TEXT] if isinstance(found, str) else ""


def _texts(found: Any) -> Mapping[str, str]:
    return {k: v for k, v in found.items() if isinstance(v, str)} if isinstance(found, dict) else {}


def _dict(found: Any) -> Json:
    return found if isinstance(found, dict) else {}
