"""A host as it was read from a file, and checks that files of every format undergo."""

from __future__ import annotations

import json
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, NoReturn

from drydock.core.errors import InvalidRequest
from drydock_agent.identity import identity

LARGEST = 64 << 20
"""Maximum size of a file, in bytes."""
MOST = 5000
"""Maximum number of hosts in a file."""
_TRAIT = re.compile(r"[A-Za-z0-9][A-Za-z0-9._-]{0,62}")


@dataclass
class Row:
    """A host of a file: its registration, or the problem that keeps it from being registered."""

    where: str
    """The line or the object of the file, such as `line 3` or `machine 7`."""
    name: str = ""
    registration: dict[str, Any] = field(default_factory=dict)
    notes: list[str] = field(default_factory=list)
    """The rows that were left out, each with the reason."""
    macs: tuple[str, ...] = ()
    problem: str = ""
    resource: int | None = None
    """The id of the resource once it is registered."""

    def refuse(self, problem: str) -> None:
        """Keep the host from being registered. The first problem counts."""
        self.problem = self.problem or problem

    def name_by(self, what: str, value: Any) -> None:
        """Set a field by which the machine is recognized; leave out one that is a placeholder."""
        text = str(value or "").strip()
        if identity(text):
            self.registration[what] = text
        elif text and text.lower() != "unknown":
            self.notes.append(f"{what} {text!r} is a placeholder and was left out")

    def add_traits(self, names: Iterable[Any]) -> None:
        """Add the names that can be traits."""
        found = [str(one) for one in names if _TRAIT.fullmatch(str(one))]
        if found:
            self.registration["traits"] = sorted(set(found))


class Unusable(ValueError):
    """A row that cannot be registered. The message says why."""


def read_text(path: str) -> str:
    """Return the text of a file. Raises InvalidRequest."""
    try:
        with Path(path).expanduser().open("rb") as opened:
            content = opened.read(LARGEST + 1)
    except OSError as error:
        raise InvalidRequest(f"{path} cannot be read: {error.strerror}.", field="file") from None
    if len(content) > LARGEST:
        raise InvalidRequest(f"{path} is larger than {LARGEST >> 20} MiB.", field="file")
    try:
        return content.decode("utf-8-sig")
    except UnicodeDecodeError as error:
        raise InvalidRequest(f"{path} is not UTF-8 text: byte {error.start + 1} is not valid.", field="file") from None


def read_json(text: str, path: str) -> Any:
    """Return the content of a JSON file. Raises InvalidRequest."""
    try:
        return json.loads(text)
    except RecursionError:
        raise InvalidRequest(f"{path} is nested too deeply.", field="file") from None
    except ValueError as error:
        raise InvalidRequest(f"{path} is not valid JSON: {error}.", field="file") from None


def objects_of(content: Any, path: str, command: str) -> list[Mapping[str, Any]]:
    """Return the objects of a JSON list, of which there may be a limited number. Raises InvalidRequest."""
    if not isinstance(content, list) or not all(isinstance(one, Mapping) for one in content):
        wrong(path, f"it is not a list of objects, as `{command}` prints")
    bounded(content, path)
    return list(content)


def bounded(found: list[Any], path: str) -> None:
    """Raise InvalidRequest if there are too many hosts, or none."""
    if not found:
        wrong(path, "it contains no hosts")
    if len(found) > MOST:
        wrong(path, f"it contains {len(found)} hosts; at most {MOST} can be imported at once")


def wrong(path: str, said: str) -> NoReturn:
    """Raise InvalidRequest about a file as a whole."""
    raise InvalidRequest(f"{path} cannot be imported: {said}.", field="file")


def mapping(value: Any) -> Mapping[str, Any]:
    """Return a JSON object, or an empty one in place of anything else."""
    return value if isinstance(value, Mapping) else {}


def credential(user: Any, password: Any) -> dict[str, str]:
    """Return a login with the fields that are known. A password that was masked is not known."""
    known = {"username": str(user or ""), "password": "" if is_masked(password) else str(password or "")}
    return {name: text for name, text in known.items() if text} if known["password"] else {}


def is_masked(password: Any) -> bool:
    """Return whether a password was replaced by asterisks."""
    return isinstance(password, str) and bool(password) and not password.strip("*")
