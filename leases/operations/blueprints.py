"""Blueprints, for operators (try, add, check, change, drain, remove), and the kinds that blueprints select."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, fields, replace
from typing import Any

from django.core.exceptions import ValidationError as ModelError
from django.db import IntegrityError, transaction
from django.db.models import Q
from django.db.models.functions import Now
from pydantic import ValidationError

from blueprints import registry
from blueprints.contract import CatalogueStale, Registers, acts_of, capabilities
from blueprints.models import Blueprint
from blueprints.specs import Draft, Problem
from drydock.core.errors import Conflict, DrydockError, InvalidRequest, NotFound
from drydock.core.units import duration, written
from drydock_client.values import BlueprintChange, BlueprintInfo, DeclaredActInfo, KindInfo
from leases.engine.catalogue import drafts as machine_drafts
from leases.engine.catalogue import generations
from leases.engine.core import specs
from leases.engine.core.database import refuse_inside_transaction
from leases.engine.core.transitions import record_event
from leases.engine.resources import failures, maintenance
from leases.messaging import hints
from leases.models import Authorization, Lease, Resource, Search, Sync
from leases.operations import infos
from leases.operations.callers import Caller, operator_only
from leases.states import HOLDING, LeaseState
from leases.validation import input_checks
from leases.validation.input_checks import checked
from leases.validation.requests import invalid


@input_checks.checked
def list_(who: Caller, *, type_: str = "") -> list[BlueprintInfo]:
    """Return all blueprints in the order in which they are tried. Only operators see configs and errors."""
    found = Blueprint.objects.filter(resource_type=type_) if type_ else Blueprint.objects.all()
    return [_shown(who, info) for info in infos.blueprints(found)]


@input_checks.checked
def get(who: Caller, name: str) -> BlueprintInfo:
    """Return a blueprint by its name. Raises NotFound."""
    found = infos.blueprints(Blueprint.objects.filter(name=name))
    if not found:
        raise NotFound(f"Blueprint {name!r} does not exist.", field="blueprint")
    return _shown(who, found[0])


def _shown(who: Caller, info: BlueprintInfo) -> BlueprintInfo:
    return info if who.operator else replace(info, config={}, errors=(), note="")


@input_checks.checked
def row(who: Caller, name: str, what: str) -> Blueprint:
    """Return a blueprint's row if the caller is an operator. Raises NotAllowed, NotFound."""
    operator_only(who, what)
    found = Blueprint.objects.filter(name=name).first()
    if found is None:
        raise NotFound(f"Blueprint {name!r} does not exist.", field="blueprint")
    return found


@input_checks.checked
def add(
    who: Caller, name: str, kind: str, config: Mapping[str, Any] | None = None, *,
    change: BlueprintChange | None = None, enabled: bool = True,
) -> BlueprintInfo:  # fmt: skip
    """Add a blueprint. It is checked first, and is not enabled if the check finds a fatal problem.

    The operator who adds the blueprint is authorized to use it. Raises NotAllowed, InvalidRequest with the field
    (`config.…` for fields of the kind), and Conflict if the name is taken.
    """
    operator_only(who, "add blueprints")
    refuse_inside_transaction("Adding a blueprint")
    made = Blueprint(name=name, kind=kind, config=checked_config(kind, config or {}), enabled=False)
    made.resource_type = registry.kind(kind).resource_type
    write_columns(made, change or BlueprintChange())
    take_defaults(made, change or BlueprintChange())
    check_limit(made)
    clean_columns(made)
    try:
        with transaction.atomic():
            made.save(force_insert=True)
            record_event("blueprint.added", f"Of kind {kind}.", actor=who.actor, blueprint_id=made.pk)
            _authorize(who, made)
    except IntegrityError:
        raise Conflict(f"A blueprint named {name!r} already exists.", field="name") from None
    return enable(who, name) if enabled else get(who, name)


def _authorize(who: Caller, made: Blueprint) -> None:
    """Authorize the operator who adds a blueprint to use it. Its audience determines who else may use it."""
    if made.audience == Blueprint.Audience.AUTHORIZED:
        allowed = {"state": Authorization.State.AUTHORIZED, "decided_by_id": who.id, "decided_at": Now()}
        Authorization.objects.create(blueprint=made, user_id=who.id, **allowed)


@input_checks.checked
def checked_config(kind: str, config: Mapping[str, Any]) -> dict[str, Any]:
    """Return the config as the kind parses it. Raises KindNotFound, and InvalidRequest for `config.<field>`."""
    try:
        return registry.kind(kind).Config.model_validate(dict(config)).model_dump(mode="json", exclude_unset=True)
    except ValidationError as error:
        raise invalid(error, "config") from None


@input_checks.checked
def change(who: Caller, name: str, changed: BlueprintChange) -> BlueprintInfo:
    """Change a blueprint.

    If the blueprint's kind or config changes, its generation is incremented and pending leases are decided again.
    Raises NotAllowed, NotFound, InvalidRequest.
    """
    operator_only(who, "change blueprints")
    with transaction.atomic():
        found = Blueprint.objects.select_for_update(no_key=True).filter(name=name).first()
        if found is None:
            raise NotFound(f"Blueprint {name!r} does not exist.", field="blueprint")
        before = (found.kind, found.config)
        write_columns(found, changed)
        found.config = checked_config(found.kind, found.config)
        if (found.kind, found.config) != before:
            generations.keep(found, *before)
            failures.retry_updates(found.pk)
            _another(found)
            _refuse_cycle(found)
        check_limit(found)
        clean_columns(found)
        found.save()
        maintenance.close_outdated(found.pk, found.kind)
        names = [f.name for f in fields(changed) if f.name != "clear" and getattr(changed, f.name) is not None]
        said = ", ".join([*names, *(f"no {column}" for column in changed.clear)])
        record_event("blueprint.changed", f"Changed: {said}.", actor=who.actor, blueprint_id=found.pk)
        hints.after_commit("serve", found.resource_type)
        hints.after_commit("sweep")
    return get(who, name)


def _refuse_cycle(found: Blueprint) -> None:
    for problem in cycle_problems(found) if found.enabled else ():
        raise Conflict(problem.message, field="config", hint="Disable one of them first.")


def _another(found: Blueprint) -> None:
    new_type = registry.kind(found.kind).resource_type
    if new_type != found.resource_type and Resource.objects.filter(blueprint=found).exists():
        raise Conflict(
            f"The blueprint has resources of resource type {found.resource_type!r}, but kind {found.kind!r} provides "
            f"{new_type!r}.",
            field="kind",
        )
    found.resource_type = new_type
    found.generation += 1


@input_checks.checked
def check(who: Caller, name: str) -> BlueprintInfo:
    """Check whether a blueprint could work, without creating anything. The result contains the `problems` found."""
    found = row(who, name, "check blueprints")
    refuse_inside_transaction("Checking a blueprint")
    checked_config(found.kind, found.config)
    view = specs.blueprint_view(found, secrets=True)
    problems = [
        {"field": p.field, "message": p.message, "fatal": p.fatal}
        for p in (*registry.kind(found.kind).check_blueprint(view), *cycle_problems(found), *idleness(found))
    ]
    said = "; ".join(str(p["message"]) for p in problems) or "No problems found."
    record_event("blueprint.checked", said[:2000], actor=who.actor, blueprint_id=found.pk)
    return infos.blueprints(Blueprint.objects.filter(pk=found.pk), problems)[0]


@input_checks.checked
def enable(who: Caller, name: str) -> BlueprintInfo:
    """Enable a blueprint unless its check finds a fatal problem. The result contains the `problems` found."""
    checked = check(who, name)
    if any(problem["fatal"] for problem in checked.problems):
        return checked
    _switch(who, name, "enabled", True, "enabled")
    return infos.blueprints(Blueprint.objects.filter(name=name), checked.problems)[0]


@input_checks.checked
def disable(who: Caller, name: str) -> BlueprintInfo:
    """Disable a blueprint, so that no new leases are placed on its resources. Existing leases are not affected."""
    return _switch(who, name, "enabled", False, "disabled")


@input_checks.checked
def drain(who: Caller, name: str, *, drained: bool = True) -> BlueprintInfo:
    """Drain a blueprint: build no new resources, and remove idle ones. With `drained=False`, undrain it."""
    return _switch(who, name, "drained", drained, "drained" if drained else "undrained")


def _switch(who: Caller, name: str, column: str, value: bool, word: str) -> BlueprintInfo:
    found = row(who, name, "switch blueprints")
    with transaction.atomic():
        if Blueprint.objects.filter(pk=found.pk, **{column: not value}).update(**{column: value}):
            record_event(f"blueprint.{word}", "", actor=who.actor, blueprint_id=found.pk)
            hints.after_commit("serve", found.resource_type)
            hints.after_commit("sweep")
    return get(who, name)


@input_checks.checked
def remove(who: Caller, name: str) -> None:
    """Remove a blueprint. The history of its resources is kept, and its name can be used again.

    Raises NotFound, NotAllowed, and Conflict while resources or leases need the blueprint; the message names them.
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
    "Disable and drain it (`drydock blueprints drain {name}`), release the leases, and wait until "
    "the resources are gone. `drydock resources destroy RESOURCE --force` closes a resource that "
    "cannot be destroyed."
)

_SHOWN = 5


def _needed_by(found: Blueprint) -> list[str]:
    """Return descriptions of what needs a blueprint: existing resources, and leases that can use no other blueprint.

    Describes only the first few of each, and states the number of the others.
    """
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
    generations.forget(found)
    Sync.objects.filter(blueprint=found).delete()
    Search.objects.filter(blueprint=found).delete()
    Blueprint.objects.filter(pk=found.pk).update(enabled=False, min_ready=0, removed_at=Now())


SPANS = ("idle_timeout", "max_lifetime", "check_interval", "discovery_interval", "default_ttl", "max_ttl")

EMPTIABLE = (*SPANS, "max_resources", "note")


def write_columns(found: Blueprint, changed: BlueprintChange) -> None:
    """Set the changed columns on a blueprint's row, which the caller saves. Raises InvalidRequest."""
    for field in fields(changed):
        value = getattr(changed, field.name)
        if field.name == "clear" or value is None:
            continue
        input_checks.check(field.name, value)
        if field.name in SPANS:
            value = duration(value, field=field.name)
        setattr(found, field.name, dict(value) if field.name == "config" else value)
    for column in changed.clear:
        if column not in EMPTIABLE:
            raise InvalidRequest(
                f"{column!r} cannot be empty.",
                field="clear",
                hint=f"Only these fields can be empty: {', '.join(EMPTIABLE)}.",
            )
        setattr(found, column, "" if column == "note" else None)


def check_limit(found: Blueprint) -> None:
    """Limit the number of a blueprint's resources to what its kind allows.

    Sets the limit if the blueprint has none. Raises InvalidRequest if the blueprint's limit is higher than its kind
    allows.
    """
    most = registry.kind(found.kind).most_resources
    if most is None:
        return
    if found.max_resources is not None and found.max_resources > most:
        raise InvalidRequest(
            f"A blueprint of kind {found.kind!r} can have at most {most} resource{'s' * (most != 1)},"
            f" not {found.max_resources}.", field="max_resources", hint="Omit max_resources, or set a smaller number.",
        )  # fmt: skip
    if found.max_resources is None:
        found.max_resources = most


def refuse_longer_default(usual: dt.timedelta | None, longest: dt.timedelta | None) -> None:
    """Raise InvalidRequest if the default duration of leases exceeds the maximum duration."""
    if usual is not None and longest is not None and usual > longest:
        raise InvalidRequest(
            f"The default duration of {written(usual)} exceeds the maximum duration of {written(longest)}.",
            field="default_ttl",
        )


def take_defaults(found: Blueprint, changed: BlueprintChange) -> None:
    """Set the idle timeout and check interval of a new blueprint to its kind's defaults, if none were given."""
    for column in ("idle_timeout", "check_interval"):
        if getattr(found, column) is None and column not in changed.clear:
            setattr(found, column, getattr(registry.kind(found.kind), column))


def idleness(found: Blueprint) -> list[Problem]:
    """Return a list with one warning if a blueprint has no idle timeout although its idle resources cost money.

    Otherwise the list is empty.
    """
    if found.idle_timeout is not None or registry.kind(found.kind).idle_timeout is None:
        return []
    said = "Without an idle timeout, idle machines are kept and cost money until somebody removes them."
    cure = f"drydock blueprints change {found.name} --idle-timeout 15m"
    return [Problem(message=f"{said} Set an idle timeout: {cure}.", field="idle_timeout", fatal=False)]


def clean_columns(found: Blueprint) -> None:
    """Raise InvalidRequest for the first column of a blueprint that is invalid."""
    refuse_longer_default(found.default_ttl, found.max_ttl)
    try:
        found.clean_fields()
    except ModelError as error:
        field, messages = next(iter(error.message_dict.items()))
        raise InvalidRequest(messages[0], field=field) from None


def cycle_problems(found: Blueprint) -> list[Problem]:
    """Return a list with one fatal problem if this blueprint and enabled ones need each other in a cycle.

    Otherwise the list is empty.
    """
    there = [found, *Blueprint.objects.filter(enabled=True).exclude(pk=found.pk)]
    needs = {one.name: _needed_types(one) for one in there}
    gives = {one.name: one.resource_type for one in there}
    circle = cycle(found.name, needs, gives)
    if not circle:
        return []
    if len(circle) == 2:
        return [
            Problem(
                message=f"{found.name} needs a lease of resource type {found.resource_type!r}, which it provides itself."
            )
        ]
    return [Problem(message=f"Blueprints that need each other in a cycle cannot serve leases: {' -> '.join(circle)}.")]


def cycle(start: str, needs: Mapping[str, frozenset[str]], gives: Mapping[str, str]) -> list[str]:
    """Return the names of the blueprints on the shortest dependency cycle through `start`, or an empty list.

    `needs` maps the name of each blueprint to the resource types that the blueprint needs. `gives` maps the name to the
    resource type that the blueprint provides.
    """
    ways, seen = [[start]], set[str]()
    while ways:
        way = ways.pop(0)
        for name in sorted(name for name, given in gives.items() if given in needs[way[-1]]):
            if name == start:
                return [*way, start]
            if name not in seen:
                seen.add(name)
                ways.append([*way, name])
    return []


def _needed_types(blueprint: Blueprint) -> frozenset[str]:
    """Return the resource types that a blueprint may lease. Returns none if its kind or config cannot be read."""
    try:
        return registry.kind(blueprint.kind).needed_types(specs.config(blueprint.kind, blueprint.config))
    except DrydockError:
        return frozenset()


@input_checks.checked
def kinds(*, type_: str = "") -> list[KindInfo]:
    """Return the kinds that blueprints may select. If `type_` is given, return only kinds of that resource type."""
    return [schema(name) for name in registry.names() if not type_ or name in registry.kinds_of_type(type_)]


@input_checks.checked
def schema(kind: str) -> KindInfo:
    """Return the description and capabilities of a kind, and JSON Schemas of its fields. Raises KindNotFound."""
    found = registry.kind(kind)
    said = (type(found).__doc__ or "").strip().split("\n\n")[0]
    return KindInfo(
        name=kind, type=found.resource_type, description=" ".join(said.split()),
        capabilities=tuple(sorted(capabilities(found))), interfaces=tuple(sorted(found.interfaces())),
        config=found.Config.model_json_schema(), requirements=found.Requirements.model_json_schema(),
        attributes=found.Attributes.model_json_schema(),
        registration=found.Registration.model_json_schema() if isinstance(found, Registers) else None,
        acts=tuple(DeclaredActInfo(**infos.declared_act(act)) for act in acts_of(found).values()),
    )  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Trial:
    """The result of a trial. `drafts` has what the blueprint would build first for a lease without requirements."""

    problems: Sequence[Problem] = ()
    drafts: Sequence[Draft] = ()
    says: str = ""
    """An explanation if there are no drafts, otherwise empty."""


@checked
def trial(who: Caller, *, name: str, kind: str, config: Mapping[str, Any], id: int = 0, most: int = 10) -> Trial:
    """Try a blueprint without storing or creating anything. May call a provider.

    Raises KindNotFound, NotAllowed, and pydantic's ValidationError for a config that the kind does not accept.
    """
    operator_only(who, "try blueprints")
    refuse_inside_transaction("Trying a blueprint")
    found = registry.kind(kind)
    view = specs.blueprint_view(Blueprint(pk=id, name=name, kind=kind, config=dict(config)), secrets=True)
    problems = tuple(found.check_blueprint(view))
    if not machine_drafts.builds(found):
        return Trial(
            problems=problems, says="The blueprint builds nothing: its resources are registered or discovered."
        )
    try:
        drafts = tuple(machine_drafts.drafts(Blueprint(kind=kind), found, view.config, None))[:most]
    except (CatalogueStale, DrydockError) as error:
        return Trial(problems=problems, says=str(error))
    return Trial(
        problems=problems, drafts=drafts, says="" if drafts else "Nothing is built until a lease is requested."
    )
