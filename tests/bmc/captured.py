"""The captured Redfish trees of real BMCs, served read-only, to whoever has the credential.

with captured("nvidia_dpu.tar.gz") as bmc:
    session = Redfish().open(Redfish.Access(**bmc.access()), bmc.credential(), deadline=60)
"""

from __future__ import annotations

import contextlib
import json
import re
import tarfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

import pytest

from tests.agent.captured import CAPTURES, expected, needed
from tests.bmc.double import Server, certificate

__all__ = ["Captured", "captured", "expected", "names", "needed", "tree"]

USERNAME, PASSWORD, TOKEN = "root", "the-password-of-the-capture", "the-token-of-the-capture"


def names() -> list[str]:
    """Return the names of the captures."""
    return sorted(expected().get("redfish", {})) or ["none"]


@lru_cache
def tree(name: str) -> dict[str, bytes]:
    """Return the resources of a capture by path, as JSON. The archives also have directories named *.json."""
    with tarfile.open(CAPTURES / expected()["redfish"][name]["archive"]) as archive:
        found = {}
        for member in archive:
            match = re.fullmatch(r"(?:\./)?(redfish/.+)/index\.json", member.name)
            if match and member.isfile() and (content := archive.extractfile(member)):
                found[f"/{match[1]}"] = content.read()
    return found


@dataclass(kw_only=True)
class Captured:
    """A running server of a captured tree. It accepts no change but a log-in."""

    resources: dict[str, bytes]
    server: Any = None
    fingerprint: str = ""
    changes: list[str] = field(default_factory=list)
    """Methods and paths of all requests that would have changed something, sessions apart."""
    paths: list[str] = field(default_factory=list)

    def access(self, **changes: Any) -> dict[str, Any]:
        """Return the fields of the driver's Access."""
        return {
            "address": "127.0.0.1",
            "port": self.server.server_address[1],
            "fingerprint": self.fingerprint,
            **changes,
        }

    def credential(self) -> dict[str, str]:
        """Return the fields of the driver's Credential."""
        return {"username": USERNAME, "password": PASSWORD}

    def __call__(self, environ: dict[str, Any], start: Callable[..., Any]) -> Iterable[bytes]:
        method, path = environ["REQUEST_METHOD"], environ["PATH_INFO"].rstrip("/")
        given = environ["wsgi.input"].read(int(environ.get("CONTENT_LENGTH") or 0))
        status, body, headers = self._answer(method, path, environ.get("HTTP_X_AUTH_TOKEN"), given)
        content = body if isinstance(body, bytes) else json.dumps(body).encode() if body is not None else b""
        plain = [("Content-Type", "application/json"), ("Content-Length", str(len(content)))]
        start(status, [*plain, *headers])
        return [content]

    def _answer(self, method: str, path: str, token: str | None, given: bytes) -> tuple[str, Any, list[Any]]:
        sessions = "/redfish/v1/SessionService/Sessions"
        if method == "POST" and path == sessions:
            right = json.loads(given) == {"UserName": USERNAME, "Password": PASSWORD}
            headers = [("X-Auth-Token", TOKEN), ("Location", f"{sessions}/1")]
            return ("201 Created", {"@odata.id": f"{sessions}/1"}, headers) if right else _refusal("401 Unauthorized")
        if path != "/redfish/v1" and token != TOKEN:
            return _refusal("401 Unauthorized")
        if method == "DELETE" and path == f"{sessions}/1":
            return "204 No Content", None, []
        if method != "GET":
            self.changes.append(f"{method} {path}")
            return _refusal("405 Method Not Allowed")
        self.paths.append(path)
        found = self.resources.get(path)
        return ("200 OK", found, []) if found is not None else _refusal("404 Not Found")


def _refusal(status: str) -> tuple[str, Any, list[Any]]:
    return status, {"error": {"code": "Base.1.8.GeneralError", "message": status}}, []


@contextlib.contextmanager
def captured(name: str, replaced: dict[str, Any] | None = None) -> Iterator[Captured]:
    """Serve a captured tree over TLS, with some resources replaced."""
    if name == "none":
        pytest.skip("the captures are not beside the repository")
    context, fingerprint, _ = certificate()
    changed = {path: json.dumps(body).encode() for path, body in (replaced or {}).items()}
    bmc = Captured(resources={**tree(name), **changed}, fingerprint=fingerprint)
    bmc.server = Server(bmc, context)
    bmc.server.start()
    try:
        yield bmc
    finally:
        bmc.server.stop()
