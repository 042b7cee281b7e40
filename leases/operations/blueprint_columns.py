"""The columns of a blueprint as operators set them."""

from __future__ import annotations

import datetime as dt
from dataclasses import fields

from django.core.exceptions import ValidationError as ModelError

from blueprints import registry
from blueprints.models import Blueprint
from blueprints.specs import Problem
from drydock.core.errors import InvalidRequest
from drydock.core.units import duration, written
from leases import given
from leases.client.values import BlueprintChange

SPANS = ("idle_timeout", "max_lifetime", "check_interval", "default_ttl", "max_ttl")
EMPTIABLE = (*SPANS, "max_resources", "note")


def write(found: Blueprint, changed: BlueprintChange) -> None:
    """What is to be changed, into the row. Raises InvalidRequest."""
    for field in fields(changed):
        value = getattr(changed, field.name)
        if field.name == "clear" or value is None:
            continue
        given.look(field.name, value)
        if field.name in SPANS:
            value = duration(value, field=field.name)
        setattr(found, field.name, dict(value) if field.name == "config" else value)
    for column in changed.clear:
        if column not in EMPTIABLE:
            raise InvalidRequest(
                f"{column!r} cannot be empty.", field="clear", hint=f"These can: {', '.join(EMPTIABLE)}."
            )
        setattr(found, column, "" if column == "note" else None)


def limit(found: Blueprint) -> None:
    """What its kind can have at most is the limit where none is given. Raises InvalidRequest for a higher one."""
    most = registry.kind(found.kind).most_resources
    if most is None:
        return
    if found.max_resources is not None and found.max_resources > most:
        raise InvalidRequest(
            f"A blueprint of kind {found.kind!r} has at most {most} resource{'s' * (most != 1)},"
            f" not {found.max_resources}.", field="max_resources", hint="Leave it out, or give a smaller one.",
        )  # fmt: skip
    if found.max_resources is None:
        found.max_resources = most


def refuse_longer_default(usual: dt.timedelta | None, longest: dt.timedelta | None) -> None:
    """Raises InvalidRequest where leases would last longer by default than they may."""
    if usual is not None and longest is not None and usual > longest:
        raise InvalidRequest(
            f"The default lease of {written(usual)} is longer than the longest lease of {written(longest)}.",
            field="default_ttl",
        )


def take_defaults(found: Blueprint, changed: BlueprintChange) -> None:
    """A new blueprint that does not say how long its resources may stand idle, or how often they are checked, has what
    its kind says."""
    for column in ("idle_timeout", "check_interval"):
        if getattr(found, column) is None and column not in changed.clear:
            setattr(found, column, getattr(registry.kind(found.kind), column))


def idleness(found: Blueprint) -> list[Problem]:
    """A remark where idle resources cost something and nothing ends them."""
    if found.idle_timeout is not None or registry.kind(found.kind).idle_timeout is None:
        return []
    said = "Idle machines are kept, and cost, until somebody ends them: no idle timeout is set."
    cure = f"drydock blueprints change {found.name} --idle-timeout 15m"
    return [Problem(message=f"{said} Set one: {cure}.", field="idle_timeout", fatal=False)]


def clean(found: Blueprint) -> None:
    """Raises InvalidRequest for the first column that cannot be so."""
    refuse_longer_default(found.default_ttl, found.max_ttl)
    try:
        found.clean_fields()
    except ModelError as error:
        field, messages = next(iter(error.message_dict.items()))
        raise InvalidRequest(messages[0], field=field) from None
