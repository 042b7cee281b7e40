"""Secrets that blueprints name in their config: they go in and never come out."""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from django.core.exceptions import ValidationError as ModelError
from django.db import IntegrityError, transaction

from blueprints.models import Blueprint, Credential
from drydock.core.crypto import Undecryptable
from drydock.core.errors import Conflict, InvalidRequest, NotFound
from leases import given, hints
from leases.client.values import CredentialInfo, ReadingInfo
from leases.engine.core.transitions import record_event
from leases.operations import readings
from leases.operations.callers import Caller, operator_only

_FIELD = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,62}")
_LARGEST = 64 << 10
"""Bytes of all secrets of a credential together, as JSON."""


def list_(who: Caller, *, capabilities: bool = False) -> list[CredentialInfo]:
    """All credentials by name, without their secrets, and how the readings with them go. `capabilities`: also what
    their clouds can do. Raises NotAllowed."""
    operator_only(who, "see credentials")
    return _infos(list(Credential.objects.order_by("name")), able=capabilities)


@given.checked
def get(who: Caller, name: str) -> CredentialInfo:
    """One credential, without its secrets, with what its clouds can do. Raises NotFound, NotAllowed."""
    operator_only(who, "see credentials")
    return _infos([row_of(name)], able=True)[0]


@given.checked
def read(who: Caller, name: str) -> CredentialInfo:
    """Have everything that is read with it read at once, by a worker. Raises Conflict where nothing is, NotFound,
    NotAllowed."""
    operator_only(who, "have an account read")
    found = row_of(name)
    readings.make_due(who, found, [row.kind for row in users_of(name)])
    return get(who, name)


def row_of(name: str) -> Credential:
    """Its row, for operations of operators. Raises NotFound."""
    found = Credential.objects.filter(name=name).first()
    if found is None:
        raise NotFound(f"No credential {name!r}.", field="name", hint="`drydock credentials` lists them.")
    return found


def users_of(name: str) -> list[Blueprint]:
    """The blueprints whose config names a credential, by name."""
    return [row for row in Blueprint.objects.order_by("name") if name in _named(row)]


def _users() -> dict[str, list[Blueprint]]:
    """Credential -> the blueprints whose config names it."""
    found: dict[str, list[Blueprint]] = {}
    for row in Blueprint.objects.order_by("name").only("name", "config", "kind"):
        for name in _named(row):
            found.setdefault(name, []).append(row)
    return found


def _named(row: Blueprint) -> set[str]:
    config = row.config if isinstance(row.config, dict) else {}
    return {value for key, value in config.items() if key.endswith("credential") and isinstance(value, str) and value}


def _infos(found: Sequence[Credential], *, able: bool) -> list[CredentialInfo]:
    users, read_with = _users(), readings.of(found)
    return [_info(row, users.get(row.name, ()), read_with.get(row.pk, ()), able) for row in found]


def _info(
    row: Credential, users: Sequence[Blueprint], read_with: tuple[ReadingInfo, ...], able: bool
) -> CredentialInfo:
    kinds = [*(one.kind for one in users), *(one.kind for one in read_with)]
    return CredentialInfo(
        id=row.pk, name=row.name, fields=_fields(row), note=row.note, created_at=row.created_at,
        used_by=tuple(one.name for one in users), readers=readings.readers(kinds, able=able), readings=read_with,
    )  # fmt: skip


def _fields(row: Credential) -> tuple[str, ...]:
    """The names of its secrets; none where the key it was written under is not at hand."""
    try:
        return tuple(sorted(row.secrets or {}))
    except Undecryptable:
        return ()


def checked(secrets: Mapping[str, Any]) -> dict[str, Any]:
    """The secrets as they may be stored. Raises InvalidRequest, which never quotes one."""
    if not isinstance(secrets, Mapping) or not secrets:
        raise InvalidRequest("Give at least one secret.", field="secrets", hint="Kinds say which they need.")
    for name, value in secrets.items():
        if not isinstance(name, str) or not _FIELD.fullmatch(name):
            raise InvalidRequest("The name of a secret is letters, digits, '_', '.' and '-'.", field="secrets")
        if value in ("", None):
            raise InvalidRequest(f"The secret {name!r} is empty.", field=f"secrets.{name}")
    given.document(secrets, "secrets")
    if len(json.dumps(dict(secrets), default=str)) > _LARGEST:
        raise InvalidRequest(f"Secrets are at most {_LARGEST >> 10} KiB together.", field="secrets")
    return dict(secrets)


@given.checked
def add(who: Caller, name: str, secrets: Mapping[str, Any], *, remark: str = "") -> CredentialInfo:
    """Store secrets under a name; blueprints that name it already are tried again.

    Raises InvalidRequest with the field, Conflict when the name is taken, NotAllowed.
    """
    operator_only(who, "add credentials")
    made = Credential(name=name, note=remark)
    made.secrets = checked(secrets)
    try:
        made.clean_fields(exclude=["secrets"])
    except ModelError as error:
        field, messages = next(iter(error.message_dict.items()))
        raise InvalidRequest(messages[0], field=field) from None
    try:
        with transaction.atomic():
            made.save(force_insert=True)
            _tell(who, made, "added")
    except IntegrityError:
        hint = f"`drydock credentials replace {name}` stores other secrets."
        raise Conflict(f"There is a credential {name!r} already.", field="name", hint=hint) from None
    return get(who, name)


@given.checked
def change(
    who: Caller, name: str, *, secrets: Mapping[str, Any] | None = None, remark: str | None = None
) -> CredentialInfo:
    """Other secrets in place of all that are stored, or another note; the next step already uses them.

    Raises InvalidRequest, NotFound, NotAllowed.
    """
    operator_only(who, "change credentials")
    columns: dict[str, Any] = {} if secrets is None else {"secrets": checked(secrets)}
    columns |= {} if remark is None else {"note": remark}
    found = row_of(name)
    for column, value in columns.items():
        setattr(found, column, value)
    with transaction.atomic():
        found.save(update_fields=list(columns))
        if columns:
            _tell(who, found, "changed", list(columns))
    return get(who, name)


def _tell(who: Caller, row: Credential, word: str, columns: list[str] | None = None) -> None:
    what = ", ".join(columns or [word])
    record_event(f"credential.{word}", f"Credential {row.name}: {what}.", actor=who.actor)
    for resource_type in sorted({found.resource_type for found in users_of(row.name)}):
        hints.after_commit("serve", resource_type)


@given.checked
def remove(who: Caller, name: str) -> None:
    """Remove a credential. Raises Conflict while a blueprint names it, NotFound, NotAllowed."""
    operator_only(who, "remove credentials")
    with transaction.atomic():
        found = Credential.objects.select_for_update().filter(name=name).first() or row_of(name)
        if users := users_of(name):
            names = ", ".join(row.name for row in users)
            raise Conflict(f"It is named by blueprint {names}.", hint="Let them name another first.")
        record_event("credential.removed", f"Credential {name}.", actor=who.actor)
        found.delete()
