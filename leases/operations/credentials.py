"""Credentials that blueprints refer to by name, and the polls made with them. Secrets are never returned."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from django.core.exceptions import ValidationError as ModelError
from django.db import IntegrityError, transaction
from django.db.models.functions import Now

from blueprints import registry
from blueprints.cloud.client import capabilities
from blueprints.cloud.faults import SdkNotInstalled
from blueprints.cloud.kind import CloudHost
from blueprints.models import Blueprint, Credential, Reading
from drydock.core import clock
from drydock.core.crypto import Undecryptable
from drydock.core.errors import Conflict, InvalidRequest, NotFound
from drydock_client.values import CredentialInfo, ReaderInfo, ReadingInfo, ResourceInfo, WatchInfo
from leases.engine.catalogue.poll_schedule import reads
from leases.engine.core.transitions import lock_resource, record_event
from leases.engine.resources import provision
from leases.messaging import hints
from leases.models import ProviderWatch
from leases.operations import resources
from leases.operations.callers import Caller, operator_only
from leases.validation import input_checks

_FIELD = re.compile(r"[A-Za-z_][A-Za-z0-9_.-]{0,62}")

_LARGEST = 64 << 10
"""The maximum size of all secrets of one credential, in bytes of JSON."""


def list_(who: Caller, *, capabilities: bool = False) -> list[CredentialInfo]:
    """Return all credentials, sorted by name, each with the state of its polls. Raises NotAllowed.

    If `capabilities` is true, the result includes the capabilities of the clouds that use each credential.
    """
    operator_only(who, "see credentials")
    return _infos(list(Credential.objects.order_by("name")), able=capabilities)


@input_checks.checked
def get(who: Caller, name: str) -> CredentialInfo:
    """Return a credential with the capabilities of its clouds. Raises NotFound, NotAllowed."""
    operator_only(who, "see credentials")
    return _infos([row_of(name)], able=True)[0]


@input_checks.checked
def read(who: Caller, name: str) -> CredentialInfo:
    """Make all polls of a credential due now, so that workers carry them out.

    Raises Conflict if there is nothing to poll with the credential, NotFound, NotAllowed.
    """
    operator_only(who, "poll an account")
    found = row_of(name)
    make_polls_due(who, found, [row.kind for row in users_of(name)])
    return get(who, name)


def row_of(name: str) -> Credential:
    """Return the row of a credential. Raises NotFound. Checks no permission: callers must be operators."""
    found = Credential.objects.filter(name=name).first()
    if found is None:
        raise NotFound(f"Credential {name!r} does not exist.", field="name", hint="`drydock credentials` lists them.")
    return found


def users_of(name: str) -> list[Blueprint]:
    """Return the blueprints whose config names a credential."""
    return [row for row in Blueprint.objects.order_by("name") if name in _named(row)]


def _users() -> dict[str, list[Blueprint]]:
    """Return the blueprints whose config names each credential, by the name of the credential."""
    found: dict[str, list[Blueprint]] = {}
    for row in Blueprint.objects.order_by("name").only("name", "config", "kind"):
        for name in _named(row):
            found.setdefault(name, []).append(row)
    return found


def _named(row: Blueprint) -> set[str]:
    config = row.config if isinstance(row.config, dict) else {}
    return {value for key, value in config.items() if key.endswith("credential") and isinstance(value, str) and value}


def _infos(found: Sequence[Credential], *, able: bool) -> list[CredentialInfo]:
    users, read_with, watched = _users(), polls_of(found), watches_of(found)
    return [
        _info(row, users.get(row.name, ()), read_with.get(row.pk, ()), watched.get(row.name, ()), able) for row in found
    ]


def _info(
    row: Credential, users: Sequence[Blueprint], read_with: tuple[ReadingInfo, ...], watched: tuple[WatchInfo, ...],
    able: bool,
) -> CredentialInfo:  # fmt: skip
    kinds = [*(one.kind for one in users), *(one.kind for one in read_with)]
    return CredentialInfo(
        id=row.pk, name=row.name, fields=_fields(row), note=row.note, created_at=row.created_at,
        used_by=tuple(one.name for one in users), readers=pollers(kinds, able=able), readings=read_with,
        watches=watched,
    )  # fmt: skip


def _fields(row: Credential) -> tuple[str, ...]:
    """Return the names of a credential's secrets, or none if the key that encrypted the secrets is not available."""
    try:
        return tuple(sorted(row.secrets or {}))
    except Undecryptable:
        return ()


def checked(secrets: Mapping[str, Any]) -> dict[str, Any]:
    """Return the given secrets after checking them, in the form in which they are stored.

    Raises InvalidRequest, whose message never contains a secret.
    """
    if not isinstance(secrets, Mapping) or not secrets:
        raise InvalidRequest(
            "Give at least one secret.",
            field="secrets",
            hint="The page of each kind in docs/kinds lists the secrets that the kind needs.",
        )
    for name, value in secrets.items():
        if not isinstance(name, str) or not _FIELD.fullmatch(name):
            raise InvalidRequest(
                "The name of a secret may contain only letters, digits, '_', '.' and '-'.", field="secrets"
            )
        if value in ("", None):
            raise InvalidRequest(f"The secret {name!r} is empty.", field=f"secrets.{name}")
    input_checks.document(secrets, "secrets")
    if len(json.dumps(dict(secrets), default=str)) > _LARGEST:
        raise InvalidRequest(f"The secrets must be at most {_LARGEST >> 10} KiB in total.", field="secrets")
    return dict(secrets)


@input_checks.checked
def add(who: Caller, name: str, secrets: Mapping[str, Any], *, remark: str = "") -> CredentialInfo:
    """Store secrets under a name. Blueprints that already name this credential are tried again.

    Raises InvalidRequest with the field, Conflict if the name is taken, NotAllowed.
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
        hint = f"Use `drydock credentials replace {name}` to store other secrets."
        raise Conflict(f"A credential named {name!r} already exists.", field="name", hint=hint) from None
    return get(who, name)


@input_checks.checked
def change(
    who: Caller, name: str, *, secrets: Mapping[str, Any] | None = None, remark: str | None = None
) -> CredentialInfo:
    """Replace the secrets of a credential, its note, or both. The next step uses the new secrets.

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


@input_checks.checked
def remove(who: Caller, name: str) -> None:
    """Remove a credential. Raises Conflict while a blueprint names the credential, NotFound, NotAllowed."""
    operator_only(who, "remove credentials")
    with transaction.atomic():
        found = Credential.objects.select_for_update().filter(name=name).first() or row_of(name)
        if users := users_of(name):
            names = ", ".join(row.name for row in users)
            raise Conflict(
                f"The credential cannot be removed while these blueprints use it: {names}.",
                hint="Change these blueprints to another credential first.",
            )
        record_event("credential.removed", f"Credential {name}.", actor=who.actor)
        found.delete()


@input_checks.checked
def set_resource_credential(
    who: Caller, resource_id: int, *, secrets: Mapping[str, Any] | None = None
) -> ResourceInfo:  # fmt: skip
    """Replace the credential of one resource, or remove that credential if no secrets are given.

    The next step of the resource uses the new secrets.

    Raises InvalidRequest with the field, NotSupported, NotFound, Conflict, NotAllowed.
    """
    resource = resources.there(who, resource_id, "change credentials")
    stored = resources.own_credential(resource.blueprint, secrets) if secrets else {}
    with transaction.atomic():
        lock_resource(resource_id)
        provision.set_credential(resource_id, stored)
        said = f"Stored: {', '.join(sorted(stored))}." if stored else "Removed."
        record_event("resource.credential", said, actor=who.actor, resource_id=resource_id)
        hints.after_commit("sweep")
    return resources.get(who, resource_id)


def polls_of(accounts: Sequence[Credential]) -> dict[int, tuple[ReadingInfo, ...]]:
    """Return a mapping from credential id to the polls of the credential, ordered by kind, place and type of poll."""
    found: dict[int, list[ReadingInfo]] = {}
    for row in Reading.objects.filter(credential__in=accounts).order_by("kind", "place", "what"):
        found.setdefault(row.credential_id, []).append(_poll_info(row))
    return {pk: tuple(those) for pk, those in found.items()}


def _poll_info(row: Reading) -> ReadingInfo:
    return ReadingInfo(
        kind=row.kind, what=row.what, place=row.place, seen_at=row.seen_at,
        age=None if row.seen_at is None else clock.now() - row.seen_at, due_at=row.due_at, found=row.found,
        message=row.message,
    )  # fmt: skip


def watches_of(accounts: Sequence[Credential]) -> dict[str, tuple[WatchInfo, ...]]:
    """Return a mapping from the name of a credential to the watches with it, ordered by kind and place."""
    found: dict[str, list[WatchInfo]] = {}
    names = [one.name for one in accounts]
    for row in ProviderWatch.objects.filter(credential__in=names).order_by("kind", "place"):
        found.setdefault(row.credential, []).append(_watch_info(row))
    return {name: tuple(those) for name, those in found.items()}


def _watch_info(row: ProviderWatch) -> WatchInfo:
    works = row.token_until is not None and row.token_until > clock.now()
    return WatchInfo(
        kind=row.kind, place=row.place, worker=row.worker if works else "", since=row.started_at if works else None,
        event_at=row.event_at, listed_at=row.listed_at, failing_since=row.failing_since, message=row.message,
    )  # fmt: skip


def pollers(kinds: Iterable[str], *, able: bool) -> tuple[ReaderInfo, ...]:
    """Return the kinds among `kinds` that poll providers for offers.

    If `able` is true, also load the clients of the clouds, and return the capabilities of the clouds.
    """
    return tuple(_poller(name, able) for name in sorted(set(kinds)) if reads(name))


def _poller(name: str, able: bool) -> ReaderInfo:
    kind = registry.kind(name)
    if not able or not isinstance(kind, CloudHost):
        return ReaderInfo(kind=name)
    try:
        return ReaderInfo(kind=name, capabilities=tuple(sorted(capabilities(kind.client_class()))))
    except SdkNotInstalled as error:
        return ReaderInfo(kind=name, problem=error.message)


def make_polls_due(who: Caller, account: Credential, kinds: Iterable[str]) -> int:
    """Make all polls of an account due now, and notify a worker. Return the number of polls.

    Raises Conflict if there is nothing to poll, and NotAllowed.
    """
    operator_only(who, "poll an account")
    reading = [kind for kind in sorted(set(kinds)) if reads(kind)]
    if not reading:
        raise Conflict(
            (
                f"There is nothing to poll with {account.name!r}: it is not used by any blueprint whose kind reads offers."
            ),
            hint="`drydock credentials` shows which blueprints name it.",
        )
    with transaction.atomic():
        for kind in reading:
            Reading.objects.get_or_create(credential=account, kind=kind, what=Reading.What.PLACES, place="")
        found = Reading.objects.filter(credential=account, kind__in=reading)
        # Lock by id: the poll of the locations, which may delete other polls, has the lowest id.
        locked = list(found.select_for_update(no_key=True).order_by("id").values_list("id", flat=True))
        Reading.objects.filter(pk__in=locked).update(due_at=Now())
        ids = list(found.order_by("what", "id").values_list("id", flat=True))
        record_event("credential.read", f"Credential {account.name}: {len(ids)} polls are due.", actor=who.actor)
        for pk in ids:
            hints.after_commit("read", pk)
    return len(ids)
