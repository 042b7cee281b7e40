"""The journal of the objects that a validation creates, and the deletion of these objects.

The journal is written to this machine's disk before anything is created, so that a later run can delete it.
"""

from __future__ import annotations

import fcntl
import json
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from blueprints.cloud.client import Api, Client
from blueprints.cloud.faults import CloudError
from blueprints.cloud.validation.tags import INSTALLATION, PREFIX, PROOF, RESOURCE, RunTags
from blueprints.cloud.validation.values import Limits
from blueprints.cloud.validation.waiting import Unmet, Waiting
from blueprints.cloud.values import Instance, Lifecycle
from drydock.core import clock
from drydock.core.errors import Conflict


@dataclass(frozen=True, kw_only=True)
class Made:
    """A name under which something may exist at the provider."""

    key: str
    location: str
    zone: str = ""
    tags: Mapping[str, str] = field(default_factory=dict)
    at: float = 0.0
    """Seconds since 1970."""
    instance_id: str = ""
    asked: bool = False
    """Whether the create was sent. Until then, no instance can exist."""


class Journal:
    """A file of lines, each written to disk before the call that it describes. Only one run at a time writes to it."""

    def __init__(self, path: Path) -> None:
        self.path = path

    def will_make(self, made: Made) -> Made:
        """Record that an object may exist under this name from now on."""
        made = replace(made, at=clock.now().timestamp())
        self._write({"made": asdict(made)})
        return made

    def will_ask(self, made: Made) -> Made:
        """Record that the create for this name is sent next."""
        asked = replace(made, asked=True, at=clock.now().timestamp())
        self._write({"made": asdict(asked)})
        return asked

    def known_as(self, made: Made, instance_id: str) -> Made:
        """Record that the create was answered."""
        known = replace(made, instance_id=instance_id)
        self._write({"made": asdict(known)})
        return known

    def gone(self, key: str) -> None:
        """Record that all objects under this name are deleted, as a read has confirmed."""
        self._write({"gone": key})
        if not self.unfinished():
            self.path.unlink(missing_ok=True)

    def unfinished(self) -> tuple[Made, ...]:
        """Return the names under which something may be left, oldest first.

        A last line truncated by a crash is ignored: lines are written before their calls, so that call was never made.
        """
        found: dict[str, Made] = {}
        for said in self._lines():
            if "made" in said:
                found[said["made"]["key"]] = Made(**said["made"])
            else:
                found.pop(said["gone"], None)
        return tuple(found.values())

    @contextmanager
    def held(self) -> Iterator[None]:
        """Hold the journal for this process alone. Raises Conflict while another validation runs."""
        self.path.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with self.path.with_suffix(".lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise Conflict(
                    "Another validation of this account is running on this machine.", hint="Wait until it has finished."
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
    """Write the name of a new file to disk as well."""
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


OVER = (Lifecycle.TERMINATING, Lifecycle.TERMINATED)


def end(client: Client, made: Made, waiting: Waiting, limits: Limits) -> None:
    """Delete the instance, then everything else under its name.

    An instance whose create was never answered may still appear, so its absence counts only after a while. Raises Unmet
    if something is left, CloudError if the provider refuses.
    """
    began = clock.monotonic()

    def over() -> bool:
        found = client.instance(made.location, made.zone, made.key, made.instance_id)
        if found is None or found.state is Lifecycle.TERMINATED:
            surely = bool(made.instance_id) or not made.asked
            return surely or clock.now().timestamp() - made.at >= client.find_after
        if found.state is not Lifecycle.TERMINATING:
            client.terminate(found)
        return False

    def swept() -> bool:
        left.clear()
        left.extend(client.sweep(made.location, made.zone, made.key, made.tags))
        return not left

    left: list[str] = []
    waiting.until(f"{made.key} is gone", over, limits.ended)
    try:
        waiting.until(f"Nothing is left of {made.key}", swept, max(0.0, limits.ended - clock.monotonic() + began))
    except Unmet as unmet:
        raise Unmet(f"{unmet.message} These objects are not deleted yet: {', '.join(left) or 'not known'}.") from None


def leftovers(client: Client, run_tags: RunTags) -> Iterator[Made]:
    """Yield the machines of all runs of this owner whose names are proven, for example after a journal was lost."""
    for place in _places(client):
        for one in client.instances(place, {INSTALLATION: run_tags.owner}):
            if one.state not in OVER and _proven(one, run_tags):
                yield Made(
                    key=one.key, location=one.location, zone=one.zone, instance_id=one.id, asked=True,
                    tags={name: value for name, value in one.tags.items() if name in (INSTALLATION, RESOURCE)},
                )  # fmt: skip


def _proven(one: Instance, run_tags: RunTags) -> bool:
    return one.key.startswith(PREFIX) and one.tags.get(PROOF, "") == run_tags.proof(one.key)


def _places(client: Client) -> Sequence[str]:
    if client.api is Api.GLOBAL:
        return [""]
    return [one.name for one in client.locations() if one.available]


def clean(
    client: Client, run_tags: RunTags, journal: Journal, limits: Limits | None = None
) -> tuple[list[str], list[str]]:
    """Delete what earlier runs left behind: objects in the journal, and machines with our tag and a valid proof.

    Return the names of the deleted objects, and an error message for each object that could not be deleted.
    """
    limits = limits or Limits()
    waiting, gone, left = Waiting(limits.pace), [], []
    known = {one.key: one for one in journal.unfinished()}
    found = {one.key: one for one in leftovers(client, run_tags)}
    for made in [*known.values(), *(one for key, one in found.items() if key not in known)]:
        try:
            end(client, made, waiting, limits)
        except (Unmet, CloudError) as error:
            left.append(error.message)
        else:
            journal.gone(made.key)
            gone.append(made.key)
    return gone, left
