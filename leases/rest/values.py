"""Responses that only the REST API returns; all others are values of `drydock_client.values`."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass

from drydock_client.values import TokenInfo


@dataclass(frozen=True, kw_only=True)
class PrivateKey:
    """The private key of a generated key pair, in OpenSSH format."""

    private_key: str


@dataclass(frozen=True, kw_only=True)
class DpuKubeconfig:
    """The kubeconfig of a credential of a DPU, which is shown only in this response."""

    kubeconfig: str


@dataclass(frozen=True, kw_only=True)
class Me:
    """The user that a token speaks for. `operator` says whether the token may act as an operator."""

    name: str
    operator: bool
    scope: str
    expires_at: dt.datetime


@dataclass(frozen=True, kw_only=True)
class NewToken:
    """A new token. `token` is its secret, which is shown only in this response."""

    token: str
    about: TokenInfo


@dataclass(frozen=True, kw_only=True)
class Transferred:
    """The result of copying a tree.

    `skipped` lists at most 1,000 entries that were left out: pipes, sockets, devices, and links that lead out of the
    tree.
    """

    files: int
    bytes: int
    skipped: tuple[str, ...] = ()


@dataclass(frozen=True, kw_only=True)
class Address:
    """The URL of a page."""

    uri: str


@dataclass(frozen=True, kw_only=True)
class Reclaimed:
    """The idle resources that are being removed."""

    reclaimed: tuple[int, ...]


@dataclass(frozen=True, kw_only=True)
class Counted:
    """The number of affected objects."""

    count: int
