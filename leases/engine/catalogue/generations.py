"""The generations of a blueprint: the configs that it had, and whether a change between two of them disturbs leases."""

from __future__ import annotations

import logging
from collections.abc import Callable
from typing import Any, NamedTuple

from blueprints import registry
from blueprints.contract import Updates
from blueprints.models import Blueprint
from leases.engine.core import specs
from leases.models import FormerConfig, Resource, Run

log = logging.getLogger(__name__)


class Change(NamedTuple):
    """What brings an outdated resource up to date: the generation, and how the update disturbs leases, if it does."""

    generation: int
    disruption: str

    @property
    def wanted(self) -> dict[str, Any]:
        """The arguments that are stored with the run of the update."""
        return {"generation": self.generation, "disruptive": bool(self.disruption)}


def keep(blueprint: Blueprint, kind: str, config: Any) -> None:
    """Keep the former kind and config of a locked blueprint, whose generation is about to be incremented.

    Deletes those of generations that no resource has any more.
    """
    there = Resource.objects.filter(blueprint=blueprint, gone_at=None)
    needed = set(there.order_by().values_list("generation", flat=True).distinct())
    running = Run.objects.filter(resource__blueprint=blueprint, phase=Run.Phase.UPDATE)
    needed |= {wanted.get("generation", 0) for wanted in running.values_list("wanted", flat=True)}
    FormerConfig.objects.filter(blueprint=blueprint).exclude(generation__in=needed).delete()
    kept = {"kind": kind, "config": config}
    FormerConfig.objects.update_or_create(blueprint=blueprint, generation=blueprint.generation, defaults=kept)


def forget(blueprint: Blueprint) -> None:
    """Delete the former configs of a blueprint that is removed."""
    FormerConfig.objects.filter(blueprint=blueprint).delete()


def pending(resource_id: int) -> Change | None:
    """Return the change that a resource needs, or None if it is up to date."""
    resource = Resource.objects.select_related("blueprint").get(pk=resource_id)
    if resource.generation >= resource.blueprint.generation:
        return None
    return Change(resource.blueprint.generation, disruption(resource.blueprint, resource.generation))


def disruption(blueprint: Blueprint, generation: int) -> str:
    """Return how an update from an earlier generation disturbs leases, or an empty string if it does not.

    Raises KindNotFound.
    """
    kind = registry.kind(blueprint.kind)
    if not isinstance(kind, Updates):
        return f"Resources of kind {blueprint.kind} are replaced."
    return _of_change(blueprint, generation, kind.disruption)


def _of_change(blueprint: Blueprint, generation: int, judge: Callable[[Any, Any], object]) -> str:
    """Return what a kind says of the change from an earlier generation of a config, or why it cannot say that."""
    former = FormerConfig.objects.filter(blueprint=blueprint, generation=generation).first()
    if former is not None and former.kind != blueprint.kind:
        return f"The kind changes from {former.kind} to {blueprint.kind}."
    try:
        after = specs.config(blueprint.kind, blueprint.config)
    except specs.BadConfig as error:
        return f"The config of {blueprint} is not valid: {error}"
    said: object = None
    try:
        said = judge(_parsed(former), after)
    except Exception:  # a kind that fails must neither hide resources nor disturb their leases
        log.exception("The kind %s cannot say how a change of its config disturbs leases.", blueprint.kind)
    return said if isinstance(said, str) else f"The kind {blueprint.kind} cannot say what changes."


def in_place(resource_id: int) -> bool:
    """Return whether an outdated resource is updated, and not replaced once it is idle."""
    kind = registry.kind(Resource.objects.select_related("blueprint").get(pk=resource_id).blueprint.kind)
    if not isinstance(kind, Updates):
        return False
    change = pending(resource_id) if kind.replaces else None
    return change is None or not change.disruption


def unforcible(resource_id: int) -> str:
    """Return why an operator cannot force the update of an outdated resource, or an empty string. Raises KindNotFound."""
    resource = Resource.objects.select_related("blueprint").get(pk=resource_id)
    kind = registry.kind(resource.blueprint.kind)
    if not (isinstance(kind, Updates) and kind.forcible):
        return f"A resource of kind {kind.name!r} cannot be updated while leases hold it in a way that disturbs them."
    return _of_change(resource.blueprint, resource.generation, kind.unforcible)


def closes(blueprint: Blueprint) -> bool:
    """Return whether a resource that differs from the config must serve no lease before it is updated.

    That is so if its update would disturb leases.
    """
    return bool(disruption(blueprint, 0))


def _parsed(former: FormerConfig | None) -> Any:
    """Return a former config as the kind parses it, or None if it is unknown or no longer valid."""
    if former is None:
        return None
    try:
        return specs.config(former.kind, former.config)
    except specs.BadConfig:
        return None
