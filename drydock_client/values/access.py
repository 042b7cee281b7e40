"""Authorizations, quotas, users, tokens and credentials."""

from __future__ import annotations

import datetime as dt
from collections.abc import Mapping
from dataclasses import dataclass, field

from drydock_client.values.offers import ReaderInfo, ReadingInfo, WatchInfo


@dataclass(frozen=True, kw_only=True)
class AuthorizationInfo:
    """The authorization of a user or group to use a blueprint: requested, approved or declined."""

    id: int
    blueprint: str
    user: str
    group: str
    state: str
    note: str
    decided_by: str
    created_at: dt.datetime


QuotaLimit = int | float | str | dt.timedelta | Mapping[str, int | None] | None
"""A limit of a quota: a number, or a duration such as `8h`. None means no limit."""


@dataclass(frozen=True, kw_only=True)
class QuotaInfo:
    """Limits on what a user or group may hold at the same time, and on the duration of each lease.

    A limit of None means no limit.
    """

    user: str
    group: str
    max_leases: int | None
    max_slots: int | None
    max_cpu_millicores: int | None
    max_ram_mib: int | None
    max_disk_mib: int | None
    max_extra: Mapping[str, int] = field(default_factory=dict)
    """Maximum amount of each additional class of capacity, such as `gpu`."""
    default_ttl: dt.timedelta | None = None
    """Duration of a lease whose request does not specify one."""
    max_ttl: dt.timedelta | None = None
    """Maximum duration of a lease."""


@dataclass(frozen=True, kw_only=True)
class UserInfo:
    """A user of the installation.

    `operator` means that the user may see and change everything, `administrator` that the user may also manage users,
    and `password` that the user has a password to sign in with.
    """

    name: str
    active: bool
    operator: bool
    administrator: bool
    password: bool
    groups: tuple[str, ...]
    last_login: dt.datetime | None


@dataclass(frozen=True, kw_only=True)
class PasswordInfo:
    """A user whose password was set. `password` is a generated one, shown only once, or empty."""

    user: UserInfo
    password: str


@dataclass(frozen=True, kw_only=True)
class TokenInfo:
    """A token without its secret. `tail` is the end of the secret.

    `made_by` is the id of the token with which this one was created.
    """

    id: int
    user: str
    name: str
    scope: str
    tail: str
    created_at: dt.datetime
    expires_at: dt.datetime
    expired: bool
    revoked_at: dt.datetime | None
    last_used_at: dt.datetime | None
    made_by: int | None = None


@dataclass(frozen=True, kw_only=True)
class CredentialInfo:
    """A credential. `fields` contains the names of its secrets, whose values are never shown.

    `used_by` contains the blueprints whose config names the credential, `readers` the kinds that poll offers and status
    with it, `readings` the state of these polls, and `watches` what is watched with it.
    """

    id: int
    name: str
    fields: tuple[str, ...]
    note: str
    created_at: dt.datetime
    used_by: tuple[str, ...] = ()
    readers: tuple[ReaderInfo, ...] = ()
    readings: tuple[ReadingInfo, ...] = ()
    watches: tuple[WatchInfo, ...] = ()
