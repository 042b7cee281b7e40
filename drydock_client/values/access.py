"""Who may do what, and with which secrets."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass

from drydock_client.values.offers import ReaderInfo, ReadingInfo


@dataclass(frozen=True, kw_only=True)
class AuthorizationInfo:
    """Who may, or asks to, use a blueprint."""

    id: int
    blueprint: str
    user: str
    group: str
    state: str
    note: str
    decided_by: str
    created_at: dt.datetime


QuotaLimit = int | float | str | dt.timedelta | None
"""A limit of a quota: a number, or a span such as `8h`; None: no limit."""


@dataclass(frozen=True, kw_only=True)
class QuotaInfo:
    """What a user or a group may hold at the same time, and how long each lease; None: no limit."""

    user: str
    group: str
    max_leases: int | None
    max_slots: int | None
    max_cpu_millicores: int | None
    max_ram_mib: int | None
    max_disk_mib: int | None
    default_ttl: dt.timedelta | None = None
    """How long a lease lasts that names no end."""
    max_ttl: dt.timedelta | None = None
    """The longest that a lease may last."""


@dataclass(frozen=True, kw_only=True)
class UserInfo:
    """A user of the installation. `operator`: sees and changes everything; `administrator`: also administers users.
    `password`: whether there is one to sign in with."""

    name: str
    active: bool
    operator: bool
    administrator: bool
    password: bool
    groups: tuple[str, ...]
    last_login: dt.datetime | None


@dataclass(frozen=True, kw_only=True)
class PasswordInfo:
    """A user whose password was set. `password`: the one that was made up, shown only now; empty when it was given."""

    user: UserInfo
    password: str


@dataclass(frozen=True, kw_only=True)
class TokenInfo:
    """A token as its owner sees it. `tail` is the end of the secret, `made_by` the token that it was made with."""

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
    """A credential: its secrets are named and never shown. `used_by`: the blueprints whose config names it; `readers`
    and `readings`: the kinds that read offers and status with it, and how that goes."""

    id: int
    name: str
    fields: tuple[str, ...]
    note: str
    created_at: dt.datetime
    used_by: tuple[str, ...] = ()
    readers: tuple[ReaderInfo, ...] = ()
    readings: tuple[ReadingInfo, ...] = ()
