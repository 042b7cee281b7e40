"""Users: who may sign in, who is an operator, and to which groups users belong.

Only an administrator (a superuser) may call these operations, and not with a token that somebody else created.
Otherwise an operator could become an administrator.
"""

from __future__ import annotations

import secrets
from collections.abc import Collection
from typing import Any

from django.contrib.auth import get_user_model
from django.contrib.auth.models import Group
from django.contrib.auth.password_validation import validate_password
from django.core.exceptions import ValidationError
from django.db import IntegrityError, transaction

from drydock.core.errors import Conflict, InvalidRequest, NotAllowed, NotFound
from drydock_client.values import PasswordInfo, UserInfo
from leases.engine.core.transitions import record_event
from leases.messaging import hints
from leases.models import Authorization
from leases.operations.callers import Caller
from leases.validation.input_checks import checked

_LONGEST_GROUP = 150


def list_(who: Caller) -> list[UserInfo]:
    """Return all users by name. Raises NotAllowed."""
    _administrator(who)
    model = get_user_model()
    return [info(row) for row in model._default_manager.prefetch_related("groups").order_by(model.USERNAME_FIELD)]


@checked
def get(who: Caller, user: str) -> UserInfo:
    """Return a user by name. Raises NotAllowed, NotFound."""
    _administrator(who)
    return info(_named(user))


@checked
def add(
    who: Caller, user: str, *, operator: bool = False, groups: Collection[str] = (), password: str | None = None
) -> PasswordInfo:
    """Add a user with the given password, or with a generated password that is returned only once.

    A user added as an operator sees and changes everything; an administrator also administers users. Raises
    InvalidRequest, Conflict if the name is taken, NotAllowed.
    """
    _administrator(who)
    model = get_user_model()
    row = model(**{model.USERNAME_FIELD: user, "is_staff": operator, "is_superuser": operator})
    try:
        row.clean_fields(exclude=[field.name for field in model._meta.fields if field.name != model.USERNAME_FIELD])
    except ValidationError as error:
        raise InvalidRequest(" ".join(error.messages), field="user") from None
    shown = _give_password(row, password)
    wanted = _groups(groups)
    try:
        with transaction.atomic():
            row.save()
            row.groups.set(_existing(wanted))
            _record("added", who, row, f"{'An operator' if operator else 'A user'}{_in(wanted)}.")
    except IntegrityError:
        raise Conflict(f"A user named {user!r} already exists.", field="user") from None
    return PasswordInfo(user=info(row), password=shown)


@checked
def set_password(who: Caller, user: str, *, password: str | None = None) -> PasswordInfo:
    """Set a user's password to the given one, or to a generated password that is returned only once.

    Ends all browser sessions of the user. Raises InvalidRequest, NotAllowed, NotFound.
    """
    _administrator(who)
    with transaction.atomic():
        row = _named(user, lock=True)
        shown = _give_password(row, password)
        row.save(update_fields=["password"])
        _record("password_set", who, row, "")
    return PasswordInfo(user=info(row), password=shown)


@checked
def disable(who: Caller, user: str) -> UserInfo:
    """Disable a user, so that the user's password and tokens are rejected. The user's leases continue until they end.

    Raises Conflict for the last administrator and for the caller's own user, NotAllowed, NotFound.
    """
    _administrator(who)
    with transaction.atomic():
        row = _named(user, lock=True)
        if row.pk == who.id:
            raise Conflict("You cannot disable yourself.", field="user", hint="Another administrator can disable you.")
        if row.is_active:
            row.is_active = False
            row.save(update_fields=["is_active"])
            _record("disabled", who, row, "")
    return info(row)


@checked
def enable(who: Caller, user: str) -> UserInfo:
    """Enable a disabled user, so that the password and tokens are accepted again. Raises NotAllowed, NotFound."""
    _administrator(who)
    with transaction.atomic():
        row = _named(user, lock=True)
        if not row.is_active:
            row.is_active = True
            row.save(update_fields=["is_active"])
            _record("enabled", who, row, "")
    return info(row)


@checked
def change_groups(who: Caller, user: str, *, add: Collection[str] = (), remove: Collection[str] = ()) -> UserInfo:
    """Add a user to some groups and remove the user from others. Groups that do not exist are created.

    Pending leases that may now use more blueprints are decided again. Raises InvalidRequest, NotAllowed, NotFound.
    """
    _administrator(who)
    joined, left = _groups(add), _groups(remove)
    if both := sorted(set(joined) & set(left)):
        raise InvalidRequest(f"Group {both[0]!r} cannot be both added and removed.", field="add")
    with transaction.atomic():
        row = _named(user, lock=True)
        if missing := sorted(set(left) - {group.name for group in row.groups.all()}):
            raise NotFound(f"{user} is not in group {missing[0]!r}.", field="remove")
        groups = _existing(joined)
        row.groups.add(*groups)
        row.groups.remove(*_existing(left))
        if joined or left:
            _record("groups_changed", who, row, _changes(joined, left))
        allowed = Authorization.objects.filter(group__in=groups, state=Authorization.State.AUTHORIZED)
        for resource_type in sorted(set(allowed.values_list("blueprint__resource_type", flat=True))):
            hints.after_commit("serve", resource_type)
    return info(_named(user))


def info(row: Any) -> UserInfo:
    """Return a user as a frozen value."""
    return UserInfo(
        name=row.get_username(), active=row.is_active, operator=row.is_staff or row.is_superuser,
        administrator=row.is_superuser, password=row.has_usable_password(),
        groups=tuple(sorted(group.name for group in row.groups.all())), last_login=row.last_login,
    )  # fmt: skip


def _administrator(who: Caller) -> None:
    if who.maker:
        raise NotAllowed(
            f"{who.maker} created this token for {who.name}; such tokens cannot manage users.",
            hint=f"Use a token that {who.name} created.",
        )
    found = get_user_model()._default_manager.filter(pk=who.id, is_active=True, is_superuser=True)
    if not (who.operator and found.exists()):
        raise NotAllowed("Only an administrator may manage users.", hint="Ask an administrator.")


def _named(user: str, *, lock: bool = False) -> Any:
    model = get_user_model()
    found = model._default_manager.select_for_update(no_key=True) if lock else model._default_manager.all()
    row = found.filter(**{model.USERNAME_FIELD: user}).first()
    if row is None:
        raise NotFound(f"User {user!r} does not exist.", field="user", hint="`drydock users list` lists them.")
    return row


def _give_password(row: Any, given: str | None) -> str:
    """Set a password of a user without saving it. Return it if it was generated, or else an empty string.

    Raises InvalidRequest.
    """
    made = secrets.token_urlsafe(12) if given is None else ""
    if given is not None:
        try:
            validate_password(given, row)
        except ValidationError as error:
            raise InvalidRequest(" ".join(error.messages), field="password") from None
    row.set_password(given if given is not None else made)
    return made


def _groups(names: Collection[str]) -> list[str]:
    for name in names:
        if not name.strip() or len(name) > _LONGEST_GROUP:
            raise InvalidRequest(f"The name of a group must have 1 to {_LONGEST_GROUP} characters.", field="groups")
    return sorted(set(names))


def _existing(names: Collection[str]) -> list[Group]:
    """Return the groups with these names. Groups that do not exist are created."""
    return [Group.objects.get_or_create(name=name)[0] for name in names]


def _in(groups: Collection[str]) -> str:
    return f" in {', '.join(groups)}" if groups else ""


def _changes(joined: Collection[str], left: Collection[str]) -> str:
    pieces = [f"{what} {', '.join(names)}" for what, names in (("joined", joined), ("left", left)) if names]
    return f"{'; '.join(pieces)}.".capitalize() if pieces else ""


def _record(what: str, who: Caller, row: Any, message: str) -> None:
    name = row.get_username()
    record_event(f"user.{what}", f"{name}: {message}" if message else name, actor=who.actor, details={"user": name})
