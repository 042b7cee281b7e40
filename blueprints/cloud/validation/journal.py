"""What a validation has made, on this machine's disk before it is made: so that a later run can end it."""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from drydock.core import clock
from drydock.core.errors import Conflict


@dataclass(frozen=True, kw_only=True)
class Made:
    """One name under which something may stand at the provider."""

    key: str
    location: str
    zone: str = ""
    tags: Mapping[str, str] = field(default_factory=dict)
    at: float = 0.0
    """Seconds since 1970."""
    instance_id: str = ""
    asked: bool = False
    """Its create was sent; before that there can be no instance."""


class Journal:
    """A file of lines, each on the disk before the call that it tells of. One run at a time writes it."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def will_make(self, made: Made) -> Made:
        """Something may stand under this name from now on."""
        made = replace(made, at=clock.now().timestamp())
        self._write({"made": asdict(made)})
        return made

    def will_ask(self, made: Made) -> Made:
        """Its create is sent next."""
        asked = replace(made, asked=True, at=clock.now().timestamp())
        self._write({"made": asdict(asked)})
        return asked

    def known_as(self, made: Made, instance_id: str) -> Made:
        """The create was answered."""
        known = replace(made, instance_id=instance_id)
        self._write({"made": asdict(known)})
        return known

    def gone(self, key: str) -> None:
        """A read has shown that nothing is left under this name."""
        self._write({"gone": key})
        if not self.unfinished():
            self.path.unlink(missing_ok=True)

    def unfinished(self) -> tuple[Made, ...]:
        """What may be left, oldest first. A line that was cut off by a crash was of a call that was not made."""
        found: dict[str, Made] = {}
        for said in self._lines():
            if "made" in said:
                found[said["made"]["key"]] = Made(**said["made"])
            else:
                found.pop(said["gone"], None)
        return tuple(found.values())

    @contextmanager
    def held(self) -> Iterator[None]:
        """By this process alone. Raises Conflict while another validation runs."""
        self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with self.path.with_suffix(".lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise Conflict(
                    "Another validation of this account runs on this machine.", hint="Wait until it is over."
                ) from None
            yield

    def _lines(self) -> Iterator[dict[str, Any]]:
        try:
            text = self.path.read_text()
        except FileNotFoundError:
            return
        for line in text.splitlines():
            try:
                yield json.loads(line)
            except ValueError:
                continue

    def _write(self, line: dict[str, Any]) -> None:
        self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        new = not self.path.exists()
        descriptor = os.open(self.path, os.O_WRONLY | os.O_APPEND | os.O_CREAT, 0o600)
        try:
            os.write(descriptor, b"\n" + json.dumps(line).encode() + b"\n")
            os.fsync(descriptor)
        finally:
            os.close(descriptor)
        if new:
            _settle(self.path.parent)


def _settle(folder: Path) -> None:
    """The name of a new file is on the disk too."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
