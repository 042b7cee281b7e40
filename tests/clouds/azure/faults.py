"""What the double is told to do wrong, and what it says then."""

from __future__ import annotations

import dataclasses
from typing import Any


class Refusal(Exception):
    """An answer with ARM's error body."""

    def __init__(
        self, status: int, code: str, message: str, headers: dict[str, str] | None = None, *, detail: str = ""
    ) -> None:  # fmt: skip
        super().__init__(f"{code}: {message}")
        self.status, self.code, self.message = status, code, message
        self.headers, self.detail = headers or {}, detail

    def body(self) -> dict[str, Any]:
        """As ARM writes it."""
        details = {"details": [{"code": self.detail, "message": self.message}]} if self.detail else {}
        return {"error": {"code": self.code, "message": self.message, **details}}


@dataclasses.dataclass
class Fault:
    """Strikes calls of a method whose path has a word in it, `times` times (None: always)."""

    sort: str
    method: str = ""
    path: str = ""
    times: int | None = 1
    refusal: Refusal | None = None

    def strikes(self, sort: str, method: str, path: str) -> bool:
        """Whether it does now; it is then used up by one."""
        fits = self.sort == sort and self.method in ("", method) and self.path.lower() in path.lower()
        return fits and _use(self)


@dataclasses.dataclass
class Want:
    """Azure has none of it: machines of a size, in a location, in a zone ("" fits any)."""

    code: str
    later: bool
    size: str = ""
    location: str = ""
    zone: str = ""
    times: int | None = None
    status: int = 409
    message: str = ""

    def strikes(self, size: str, location: str, zone: str) -> bool:
        """Whether it concerns this machine; it is then used up by one."""
        fits = self.size in ("", size) and self.location in ("", location) and self.zone in ("", zone)
        return fits and _use(self)


def _use(one: Fault | Want) -> bool:
    if one.times == 0:
        return False
    if one.times is not None:
        one.times -= 1
    return True
