"""What operators do with blueprints."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

from django.db import IntegrityError, transaction
from django.db.models import Q
from django.db.models.functions import Now
from pydantic import ValidationError

from blueprints import registry
from blueprints.models import Blueprint
from drydock.core.errors import Conflict, NotFound
from leases import given, hints
from leases.client.values import BlueprintChange, BlueprintInfo
from leases.engine.core import specs
from leases.engine.core.database import refuse_inside_transaction
from leases.engine.core.transitions import record_event
from leases.engine.resources import maintenance
from leases.models import Authorization, Lease, Resource, Search, Sync
from leases.operations import cycles, reading
from leases.operations.blueprint_columns import EMPTIABLE as EMPTIABLE
from leases.operations.blueprint_columns import SPANS as SPANS
from leases.operations.blueprint_columns import clean, idleness, limit, take_defaults, write
from leases.operations.callers import Caller, operator_only
from leases.operations.kinds import kinds as kinds
from leases.operations.kinds import schema as schema
from leases.requests import invalid
from leases.states import HOLDING, LeaseState


@given.checked
def list_(who: Caller, *, type_: str = "") -> list[BlueprintInfo]:
    """All blueprints in the order in which they are tried. Only operators see configs and errors."""
    found = Blueprint.objects.filter(resource_type=type_) if type_ else Blueprint.objects.all()
    return [_shown(who, info) for info in reading.blueprints(found)]


@given.checked
def get(who: Caller, name: str) -> BlueprintInfo:
    """One blueprint. Raises NotFound."""
    found = reading.blueprints(Blueprint.objects.filter(name=name))
    if not found:
        raise NotFound(f"No blueprint {name!r}.", field="blueprint")
    return _shown(who, found[0])


def _shown(who: Caller, info: BlueprintInfo) -> BlueprintInfo:
    return info if who.operator else replace(info, config={}, errors=(), note="")


@given.checked
def row(who: Caller, name: str, what: str) -> Blueprint:
    """The row of a blueprint that an operator works on. Raises NotAllowed, NotFound."""
    operator_only(who, what)
    found = Blueprint.objects.filter(name=name).first()
    if found is None:
        raise NotFound(f"No blueprint {name!r}.", field="blueprint")
    return found


@given.checked
def add(
    who: Caller, name: str, kind: str, config: Mapping[str, Any] | None = None, *,
    change: BlueprintChange | None = None, enabled: bool = True,
) -> BlueprintInfo:  # fmt: skip
    """Add a blueprint. It is checked first, and stays disabled while its check finds something fatal. Whoever adds
    it may use it.

    Raises InvalidRequest with the field (`config.…` for the kind's own), Conflict when the name is taken.
    """
    operator_only(who, "add blueprints")
    refuse_inside_transaction("Adding a blueprint")
    made = Blueprint(name=name, kind=kind, config=checked_config(kind, config or {}), enabled=False)
    made.resource_type = registry.kind(kind).resource_type
    write(made, change or BlueprintChange())
    take_defaults(made, change or BlueprintChange())
    limit(made)
    clean(made)
    try:
        with transaction.atomic():
            made.save(force_insert=True)
            record_event("blueprint.added", f"Of kind {kind}.", actor=who.actor, blueprint_id=made.pk)
            _authorize(who, made)
    except IntegrityError:
        raise Conflict(f"There is a blueprint {name!r} already.", field="name") from None
    return enable(who, name) if enabled else get(who, name)


def _authorize(who: Caller, made: Blueprint) -> None:
    """Whoever adds a blueprint may use it; others as its audience says."""
    if made.audience == Blueprint.Audience.AUTHORIZED:
        allowed = {"state": Authorization.State.AUTHORIZED, "decided_by_id": who.id, "decided_at": Now()}
        Authorization.objects.create(blueprint=made, user_id=who.id, **allowed)


@given.checked
def checked_config(kind: str, config: Mapping[str, Any]) -> dict[str, Any]:
    """The config as the kind reads it. Raises InvalidRequest naming `config.<field>`, KindNotFound."""
    try:
        return registry.kind(kind).Config.model_validate(dict(config)).model_dump(mode="json", exclude_unset=True)
    except ValidationError as error:
        raise invalid(error, "config") from None


@given.checked
def change(who: Caller, name: str, changed: BlueprintChange) -> BlueprintInfo:
    """Change a blueprint. Another kind or config raises its generation; whoever waits is decided for again."""
    operator_only(who, "change blueprints")
    with transaction.atomic():
        found = Blueprint.objects.select_for_update(no_key=True).filter(name=name).first()
        if found is None:
            raise NotFound(f"No blueprint {name!r}.", field="blueprint")
        before = (found.kind, found.config)
        write(found, changed)
        found.config = checked_config(found.kind, found.config)
        if (found.kind, found.config) != before:
            _another(found)
            _refuse_cycle(found)
        limit(found)
        clean(found)
        found.save()
        maintenance.close_outdated(found.pk, found.kind)
        names = [f.name for f in fields(changed) if f.name != "clear" and getattr(changed, f.name) is not None]
        said = ", ".join([*names, *(f"no {column}" for column in changed.clear)])
        record_event("blueprint.changed", f"Changed: {said}.", actor=who.actor, blueprint_id=found.pk)
        hints.after_commit("serve", found.resource_type)
        hints.after_commit("sweep")
    return get(who, name)


def _refuse_cycle(found: Blueprint) -> None:
    for problem in cycles.problems(found) if found.enabled else ():
        raise Conflict(problem.message, field="config", hint="Disable one of them first.")


def _another(found: Blueprint) -> None:
    new_type = registry.kind(found.kind).resource_type
    if new_type != found.resource_type and Resource.objects.filter(blueprint=found).exists():
        raise Conflict(
            f"Its resources are of type {found.resource_type!r}, and {found.kind!r} gives {new_type!r}.", field="kind"
        )
    found.resource_type = new_type
    found.generation += 1


@given.checked
def check(who: Caller, name: str) -> BlueprintInfo:
    """Look, without creating anything, whether the blueprint could work; the answer has `problems`."""
    found = row(who, name, "check blueprints")
    refuse_inside_transaction("Checking a blueprint")
    checked_config(found.kind, found.config)
    view = specs.blueprint_view(found, secrets=True)
    problems = [
        {"field": p.field, "message": p.message, "fatal": p.fatal}
        for p in (*registry.kind(found.kind).check_blueprint(view), *cycles.problems(found), *idleness(found))
    ]
    said = "; ".join(str(p["message"]) for p in problems) or "No problem found."
    record_event("blueprint.checked", said[:2000], actor=who.actor, blueprint_id=found.pk)
    return reading.blueprints(Blueprint.objects.filter(pk=found.pk), problems)[0]


@given.checked
def enable(who: Caller, name: str) -> BlueprintInfo:
    """Let it serve, unless its check finds something fatal: then it stays disabled and `problems` says why."""
    checked = check(who, name)
    if any(problem["fatal"] for problem in checked.problems):
        return checked
    _switch(who, name, "enabled", True, "enabled")
    return reading.blueprints(Blueprint.objects.filter(name=name), checked.problems)[0]


@given.checked
def disable(who: Caller, name: str) -> BlueprintInfo:
    """Let it serve nobody; what is leased stays leased."""
    return _switch(who, name, "enabled", False, "disabled")


@given.checked
def drain(who: Caller, name: str, *, drained: bool = True) -> BlueprintInfo:
    """Build nothing new and remove idle resources; or (`drained=False`) serve again."""
    return _switch(who, name, "drained", drained, "drained" if drained else "undrained")


def _switch(who: Caller, name: str, column: str, value: bool, word: str) -> BlueprintInfo:
    found = row(who, name, "switch blueprints")
    with transaction.atomic():
        if Blueprint.objects.filter(pk=found.pk, **{column: not value}).update(**{column: value}):
            record_event(f"blueprint.{word}", "", actor=who.actor, blueprint_id=found.pk)
            hints.after_commit("serve", found.resource_type)
            hints.after_commit("sweep")
    return get(who, name)


@given.checked
def remove(who: Caller, name: str) -> None:
    """Remove a blueprint. The history of its resources stays; its name is free again.

    Raises Conflict, saying which, while a resource or a lease needs it; NotFound, NotAllowed.
    """
    found = row(who, name, "remove blueprints")
    with transaction.atomic():
        locked = Blueprint.objects.select_for_update().get(pk=found.pk)
        if needed := _needed_by(locked):
            raise Conflict(f"{name} is needed by {', '.join(needed)}.", hint=_UNTIL_GONE.format(name=name))
        record_event("blueprint.removed", f"{name}, of kind {found.kind}.", actor=who.actor, blueprint_id=found.pk)
        if Resource.objects.filter(blueprint=locked).exists():
            _retire(locked)
        else:
            locked.delete()


_UNTIL_GONE = (
    "Disable and drain it (`drydock blueprints drain {name}`), release the leases, and wait until the resources are "
    "gone; `drydock resources destroy RESOURCE --force` closes what cannot be destroyed."
)
_SHOWN = 5


def _needed_by(found: Blueprint) -> list[str]:
    """The first few resources and leases that need a blueprint: what is not gone, and who waits for it alone."""
    resources = Resource.objects.filter(blueprint=found, gone_at=None).order_by("id")
    leases = Lease.objects.filter(
        Q(resource__in=resources.values("pk"), state__in=HOLDING)
        | Q(state=LeaseState.PENDING, allowed_blueprints__contained_by=[found.pk])
    ).order_by("id")
    named = [f"resource {one.pk} ({one.state})" for one in resources[:_SHOWN]]
    named += [f"lease {one.pk} ({one.state})" for one in leases[:_SHOWN]]
    more = sum(max(0, queryset.count() - _SHOWN) for queryset in (resources, leases)) if named else 0
    return named + ([f"{more} more"] if more else [])


def _retire(found: Blueprint) -> None:
    Authorization.objects.filter(blueprint=found).delete()
    found.errors.all().delete()
    Sync.objects.filter(blueprint=found).delete()
    Search.objects.filter(blueprint=found).delete()
    Blueprint.objects.filter(pk=found.pk).update(enabled=False, min_ready=0, removed_at=Now())
