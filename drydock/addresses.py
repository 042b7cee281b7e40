"""Addresses of the user's own servers, read from URLs."""

from __future__ import annotations

import dataclasses
from urllib.parse import parse_qsl, unquote, urlsplit

from drydock.core.errors import InvalidRequest

BROKER_SCHEMES = ("redis", "rediss", "redis+socket", "valkey", "unix")


@dataclasses.dataclass(frozen=True, kw_only=True)
class Database:
    """A PostgreSQL database: where, which, as whom, and libpq's further options."""

    host: str = ""
    port: str = ""
    name: str
    user: str = ""
    password: str = ""
    options: dict[str, str] = dataclasses.field(default_factory=dict)


def parse_database_url(url: str) -> Database:
    """Read a PostgreSQL URL; a socket's folder may stand in `?host=` or percent-encoded as the host."""
    parts = urlsplit(url)
    if parts.scheme not in ("postgresql", "postgres"):
        raise InvalidRequest(
            f"Only PostgreSQL is supported: a URL begins with postgresql://, not {parts.scheme or 'that'}://."
        )
    options = dict(parse_qsl(parts.query, keep_blank_values=True))
    name = unquote(parts.path.lstrip("/")) or options.pop("dbname", "")
    if not name:
        raise InvalidRequest("The URL names no database: postgresql://user@host:5432/NAME.")
    try:
        port = str(parts.port or "")
    except ValueError as error:
        raise InvalidRequest("The port is not a number between 0 and 65535.") from error
    return Database(
        host=options.pop("host", "") or unquote(parts.hostname or ""),
        port=options.pop("port", "") or port,
        name=name,
        user=options.pop("user", "") or unquote(parts.username or ""),
        password=options.pop("password", "") or unquote(parts.password or ""),
        options=options,
    )


def check_broker_url(url: str) -> str:
    """The URL as Celery takes it; raises InvalidRequest for another protocol."""
    parts = urlsplit(url)
    if parts.scheme not in BROKER_SCHEMES:
        raise InvalidRequest(
            "Only Redis and Valkey are supported: redis://host:6379/0, rediss://... or redis+socket:///path."
        )
    if parts.scheme == "valkey":
        return "redis" + url[len("valkey") :]
    if parts.scheme == "unix":
        return "redis+socket" + url[len("unix") :]
    return url
