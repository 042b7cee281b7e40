"""The kinds that blueprints may select."""

from __future__ import annotations

from blueprints import registry
from blueprints.contract import Registers, capabilities
from leases import given
from leases.client.values import KindInfo


@given.checked
def kinds(*, type_: str = "") -> list[KindInfo]:
    """The kinds that blueprints may select (of one type)."""
    return [schema(name) for name in registry.names() if not type_ or name in registry.kinds_of_type(type_)]


@given.checked
def schema(kind: str) -> KindInfo:
    """What a kind understands, as JSON Schemas. Raises KindNotFound."""
    found = registry.kind(kind)
    said = (type(found).__doc__ or "").strip().split("\n\n")[0]
    return KindInfo(
        name=kind, type=found.resource_type, description=" ".join(said.split()),
        capabilities=tuple(sorted(capabilities(found))), interfaces=tuple(sorted(found.interfaces())),
        config=found.Config.model_json_schema(), requirements=found.Requirements.model_json_schema(),
        attributes=found.Attributes.model_json_schema(),
        registration=found.Registration.model_json_schema() if isinstance(found, Registers) else None,
    )  # fmt: skip
