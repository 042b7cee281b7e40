"""Answers that only REST gives; all others are values of `leases.client`."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass

from drydock_client.values import TokenInfo


@dataclass(frozen=True, kw_only=True)
class PrivateKey:
    """The private half of a generated key pair, in OpenSSH's form."""

    private_key: str


@dataclass(frozen=True, kw_only=True)
class Me:
    """Whom a token speaks for. `operator`: whether it may act as one."""

    name: str
    operator: bool
    scope: str
    expires_at: dt.datetime


@dataclass(frozen=True, kw_only=True)
class NewToken:
    """A token that was made; `token` is its secret, which is shown only now."""

    token: str
    about: TokenInfo


@dataclass(frozen=True, kw_only=True)
class Workers:
    """Whether anybody works on what is due. `names` (host:process) are for operators."""

    alive: bool
    names: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Transferred:
    """What the copying of a tree did. `skipped`: links that lead out of it, pipes, sockets, devices; the first
    1,000 of them."""

    files: int
    bytes: int
    skipped: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Address:
    """Where a page is to be found."""

    uri: str


@dataclass(frozen=True, kw_only=True)
class Reclaimed:
    """The idle resources that are being removed."""

    reclaimed: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class Counted:
    """How many there were."""

    count: int
