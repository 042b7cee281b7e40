"""Dialects: the kinds that one API server knows, their fields, and which of them are required.

DPF 24.10 and 26.4 both call their API `v1alpha1`, and there are releases between them, so a version says nothing. A
dialect is made from what the server itself says about fields, or from CRD files.
"""

from __future__ import annotations

import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cached_property
from pathlib import Path
from typing import Any

from blueprints.kube import schemas
from blueprints.kube.cluster import Cluster
from blueprints.kube.errors import AnswerInvalid, KindUnknown, ObjectAbsent
from blueprints.kube.objects import Json, ObjectType
from blueprints.kube.schemas import Findings

DPF_GROUPS = (
    "provisioning.dpu.nvidia.com", "svc.dpu.nvidia.com", "operator.dpu.nvidia.com", "storage.dpu.nvidia.com",
    "vpc.dpu.nvidia.com", "noderesources.dpu.nvidia.com",
)  # fmt: skip
NAME_LIMITS = {"BFB": 187, "BlueFieldSoftware": 187, "DPUDeployment": 20, "DPUNode": 48}
"""Characters in names, from the rules of the CRDs of DPF 26.4, for servers that do not show rules (before 1.25)."""
_LIMIT = 63
"""Characters in the names of all other kinds, which are also values of labels."""
_SIZE = re.compile(r"\s*self\.metadata\.name\.size\(\)\s*<=\s*(\d{1,3})\s*\Z")
_REF = "#/definitions/"
_BUNDLE = Path(__file__).parent / "crds"
"""The CRDs of DPF, which NVIDIA publishes under the Apache License 2.0, without descriptions. `python -m
tests.kube.bundle` makes these files from the CRDs."""
_EITHER = {"x-kubernetes-int-or-string": True}
_SCALARS: Mapping[str, Json] = {
    "io.k8s.apimachinery.pkg.api.resource.Quantity": _EITHER,
    "io.k8s.apimachinery.pkg.util.intstr.IntOrString": _EITHER,
    "io.k8s.apimachinery.pkg.apis.meta.v1.ObjectMeta": {"type": "object", "x-kubernetes-preserve-unknown-fields": True},
}


@dataclass(frozen=True, kw_only=True)
class KnownType:
    """A type of object that a server has, with the schema of its fields."""

    type: ObjectType
    schema: Json | None = field(default=None, repr=False)
    """None if the server does not publish it. Nothing is then known about its fields."""
    subresources: tuple[str, ...] = ()

    @property
    def name_limit(self) -> int:
        """Characters that the name of an object may have."""
        rules = (self.schema or {}).get("x-kubernetes-validations") or ()
        found = (_SIZE.match(str(rule.get("rule", ""))) for rule in rules if isinstance(rule, dict))
        said = [int(one[1]) for one in found if one]
        return min(said, default=NAME_LIMITS.get(self.type.kind, _LIMIT))


@dataclass(frozen=True, kw_only=True)
class Dialect:
    """The types of a server, frozen: what can be written to it, decided by fields and never by a version."""

    types: tuple[KnownType, ...]

    @cached_property
    def _by_kind(self) -> Mapping[str, KnownType]:
        return {one.type.kind: one for one in reversed(self.types)}

    @cached_property
    def _by_api(self) -> Mapping[tuple[str, str], KnownType]:
        return {(one.type.api_version, one.type.kind): one for one in self.types}

    @property
    def kinds(self) -> tuple[str, ...]:
        """The names of all kinds."""
        return tuple(sorted(self._by_kind))

    def has(self, kind: str, path: str = "") -> bool:
        """Return whether the server has a kind and, if given, a field of it.

        A path is like `spec.dpuTemplate.spec.bfb` or, through a list, `spec.dpuSets[].nameSuffix`.
        """
        known = self._by_kind.get(kind)
        if known is None or not path:
            return known is not None
        return known.schema is not None and schemas.below(known.schema, path) is not None

    def type(self, kind: str) -> ObjectType:
        """Return the type of a kind. Raises KindUnknown."""
        return self._known(kind).type

    def field(self, kind: str, path: str) -> Json:
        """Return the schema of a field; empty if the server does not have it, or does not constrain it."""
        known = self._known(kind)
        return (schemas.below(known.schema, path) if known.schema is not None else None) or {}

    def field_type(self, kind: str, path: str) -> str:
        """Return the type of a field (object, array, string, integer, number, boolean); empty if it has none."""
        found = self.field(kind, path).get("type")
        return found if isinstance(found, str) else ""

    def required(self, kind: str, path: str) -> bool:
        """Return whether a field must be given where the object that it is part of is given."""
        above, _, name = path.rpartition(".")
        found = self.field(kind, above) if above else (self._known(kind).schema or {})
        return name in (found.get("required") or ()) and "default" not in self.field(kind, path)

    def enum(self, kind: str, path: str) -> tuple[Any, ...]:
        """Return the values that a field may have; empty if it is not limited to some."""
        return tuple(self.field(kind, path).get("enum") or ())

    def name_limit(self, kind: str) -> int:
        """Return the number of characters that a name of this kind may have."""
        return self._known(kind).name_limit

    def missing(self, manifest: Json) -> Findings:
        """Return the fields of a manifest that the server does not know, requires, or does not accept.

        Rules in CEL are not evaluated (`check.check` does). Raises KindUnknown.
        """
        known = self.known(manifest)
        if known.schema is None:
            return Findings()
        return schemas.check(manifest, known.schema, namespaced=known.type.namespaced)[0]

    def known(self, manifest: Json) -> KnownType:
        """Return the type of a manifest, by its apiVersion and kind. Raises KindUnknown."""
        api, kind = manifest.get("apiVersion"), manifest.get("kind")
        found = self._by_api.get((str(api), str(kind)))
        if found is None:
            there = [one.type.api_version for one in self.types if one.type.kind == kind]
            said = f" It has it as {', '.join(there)}." if there else ""
            raise KindUnknown(f"The API server has no {str(kind)[:100]} of {str(api)[:100]}.{said}", field="kind")
        return found

    def to_json(self) -> Json:
        """Return the dialect as JSON, for storing it."""
        return {
            "types": [
                {
                    "group": one.type.group, "version": one.type.version, "kind": one.type.kind,
                    "plural": one.type.plural, "namespaced": one.type.namespaced, "schema": one.schema,
                    "subresources": list(one.subresources),
                }
                for one in self.types
            ]
        }  # fmt: skip

    @classmethod
    def from_json(cls, stored: Json) -> Dialect:
        """Return a dialect that `to_json` has made."""
        return cls(
            types=tuple(
                KnownType(
                    type=ObjectType(**{k: one[k] for k in ("group", "version", "kind", "plural", "namespaced")}),
                    schema=one["schema"], subresources=tuple(one["subresources"]),
                )
                for one in stored["types"]
            )
        )  # fmt: skip

    def _known(self, kind: str) -> KnownType:
        found = self._by_kind.get(kind)
        if found is None:
            raise KindUnknown(f"The API server has no {kind}. Install its CRD, or use a version of DPF that has it.")
        return found


def read_dialect(cluster: Cluster, groups: Sequence[str] = DPF_GROUPS) -> Dialect:
    """Read the dialect of a server: its types in some groups and in the core group.

    Reads megabytes (`/openapi/v2`), so keep it: read it at a check, daily, and after a refusal that names fields.
    """
    resources = _offered(cluster, groups)
    return with_defaults(dialect(resources, cluster.document("/openapi/v2")), tuple(bundled().values()))


def find_type(cluster: Cluster, kind: str, groups: Sequence[str] = DPF_GROUPS) -> ObjectType | None:
    """Return the type of a kind in some groups of a server, without its fields; None if the server does not have it."""
    found = (type_ for listed in _offered(cluster, groups) for type_, _ in _types(listed))
    return next((one for one in found if one.kind == kind), None)


def _offered(cluster: Cluster, groups: Sequence[str]) -> list[Json]:
    """Return the lists of resources of some groups and of the core group."""
    offered = _preferred(cluster.document("/apis"))
    resources = [_resources(cluster, "api/v1")]
    return resources + [_resources(cluster, f"apis/{offered[group]}") for group in groups if group in offered]


def dialect(resources: Sequence[Json], openapi: Json) -> Dialect:
    """Return the dialect that follows from lists of resources (APIResourceList) and the OpenAPI v2 document."""
    definitions = openapi.get("definitions")
    if not isinstance(definitions, dict):
        raise AnswerInvalid("The OpenAPI document of the API server has no definitions.")
    by_kind = {key: one for one in definitions.values() if isinstance(one, dict) for key in _kinds_of(one)}
    types = []
    for listed in resources:
        for type_, subresources in _types(listed):
            found = by_kind.get((type_.group, type_.version, type_.kind))
            schema = _resolved(found, definitions, ()) if found and found.get("properties") else None
            types.append(
                KnownType(type=type_, schema=schemas.compact(schema) if schema else None, subresources=subresources)
            )
    return Dialect(types=tuple(types))


def with_defaults(found: Dialect, known: Sequence[Dialect]) -> Dialect:
    """Return a dialect with defaults of other dialects at fields for which the server shows none.

    Servers leave defaults out of the OpenAPI v2 document (seen with 1.20), so a required field with a default looks
    as if it must be given. If the server has no default after all, its dry run refuses the object.
    """
    types = []
    for one in found.types:
        others = [
            other.schema
            for them in known
            for other in them.types
            if other.schema and (other.type.group, other.type.kind) == (one.type.group, one.type.kind)
        ]
        types.append(replace(one, schema=_filled(one.schema, others)) if one.schema and others else one)
    return Dialect(types=tuple(types))


def bundled() -> dict[str, Dialect]:
    """Return the dialects of the versions of DPF whose CRDs come with Drydock, by version."""
    return {file.stem: Dialect.from_json(json.loads(file.read_text())) for file in sorted(_BUNDLE.glob("dpf-*.json"))}


def dialect_of_crds(crds: Sequence[Json]) -> Dialect:
    """Return the dialect of a server with these CustomResourceDefinitions. Raises AnswerInvalid for anything else."""
    types = []
    for crd in crds:
        try:
            spec, names = crd["spec"], crd["spec"]["names"]
            for version in spec["versions"]:
                if version.get("served", True):
                    type_ = ObjectType(
                        group=spec["group"], version=version["name"], kind=names["kind"], plural=names["plural"],
                        namespaced=spec.get("scope", "Namespaced") == "Namespaced",
                    )  # fmt: skip
                    schema = schemas.compact(version["schema"]["openAPIV3Schema"])
                    types.append(
                        KnownType(type=type_, schema=schema, subresources=tuple(version.get("subresources") or ()))
                    )
        except (KeyError, TypeError, AttributeError):
            raise AnswerInvalid("A CustomResourceDefinition has no usable spec.") from None
    return Dialect(types=tuple(types))


def _filled(schema: Json, others: Sequence[Json]) -> Json:
    made = dict(schema)
    if "default" not in made:
        defaults = [one["default"] for one in others if "default" in one]
        made |= {"default": defaults[0]} if defaults else {}
    if isinstance(made.get("properties"), dict):
        made["properties"] = {
            name: _filled(one, [found for other in others if (found := (other.get("properties") or {}).get(name))])
            for name, one in made["properties"].items()
        }
    for key in ("items", "additionalProperties"):
        if isinstance(made.get(key), dict):
            made[key] = _filled(made[key], [other[key] for other in others if isinstance(other.get(key), dict)])
    return made


def _preferred(groups: Json) -> dict[str, str]:
    """Return the preferred version of each group, as `group/version`."""
    found: dict[str, str] = {}
    for group in groups.get("groups") or ():
        preferred = group.get("preferredVersion") if isinstance(group, dict) else None
        version = preferred.get("groupVersion") if isinstance(preferred, dict) else None
        if isinstance(version, str) and re.fullmatch(r"[a-z0-9.-]+/[a-z0-9]+", version):
            found[version.split("/")[0]] = version
    return found


def _resources(cluster: Cluster, path: str) -> Json:
    try:
        return cluster.document(f"/{path}")
    except ObjectAbsent:  # the last CRD of the group was deleted meanwhile
        return {}


def _types(listed: Json) -> Iterator[tuple[ObjectType, tuple[str, ...]]]:
    group, _, version = str(listed.get("groupVersion", "")).rpartition("/")
    resources = [
        one for one in listed.get("resources") or () if isinstance(one, dict) and isinstance(one.get("name"), str)
    ]
    for one in resources:
        if "/" in one["name"] or not isinstance(one.get("kind"), str):
            continue
        below = tuple(r["name"].split("/", 1)[1] for r in resources if r["name"].startswith(f"{one['name']}/"))
        type_ = ObjectType(
            group=group, version=version, kind=one["kind"], plural=one["name"], namespaced=bool(one.get("namespaced"))
        )
        yield type_, below


def _kinds_of(definition: Json) -> Iterator[tuple[str, str, str]]:
    found = definition.get("x-kubernetes-group-version-kind")
    for one in found if isinstance(found, list) else ():
        if isinstance(one, dict):
            yield str(one.get("group", "")), str(one.get("version", "")), str(one.get("kind", ""))


def _resolved(schema: Any, definitions: Json, within: tuple[str, ...]) -> Json:
    """Return a schema with its references replaced by what they refer to."""
    if not isinstance(schema, dict):
        return {"x-kubernetes-preserve-unknown-fields": True}
    reference = schema.get("$ref")
    if isinstance(reference, str):
        name = reference.removeprefix(_REF)
        if name in _SCALARS:
            return dict(_SCALARS[name])
        if name in within or len(within) > schemas.MOST_LEVELS:  # a type that contains itself
            return {"x-kubernetes-preserve-unknown-fields": True}
        return _resolved(definitions.get(name), definitions, (*within, name))
    made = dict(schema)
    if isinstance(made.get("properties"), dict):
        made["properties"] = {name: _resolved(one, definitions, within) for name, one in made["properties"].items()}
    for key in ("items", "additionalProperties"):
        if isinstance(made.get(key), dict):
            made[key] = _resolved(made[key], definitions, within)
    return made
