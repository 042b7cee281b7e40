"""The secrets that a step works with, so that neither a log nor an event repeats them."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import fields, replace
from typing import Any

from blueprints.answers import Answer, Ready
from blueprints.specs import LeaseView, ResourceView, Spec
from drydock.core.logging import hidden, redact


def of(spec: Spec) -> list[Any]:
    """Every secret value within reach of a step, those of the leases that it stands on too."""
    leases = [*spec.parents.values(), *([spec.lease] if spec.lease is not None else [])]
    return [*of_resource(spec.resource), *(found for lease in leases for found in _of_lease(lease))]


def _of_lease(lease: LeaseView) -> Iterator[Any]:
    yield lease.secrets
    yield from of_resource(lease.resource)
    for parent in lease.parents.values():
        yield from _of_lease(parent)


def of_resource(resource: ResourceView) -> Iterator[Any]:
    """Those of a resource, its account and all that it stands on."""
    yield resource.secrets
    yield resource.blueprint.credentials
    for parent in resource.parents.values():
        yield from _of_lease(parent)


def told(answer: Answer) -> Answer:
    """The answer as it may be told: its texts without secrets, its own among them, and without zero bytes, of which
    the database keeps none."""
    said = {field.name: getattr(answer, field.name) for field in fields(answer)}
    with hidden(answer.secrets if isinstance(answer, Ready) else None):
        clean = {name: redact(text.replace("\0", "")) for name, text in said.items() if type(text) is str}
    return replace(answer, **clean)  # type: ignore[arg-type]
