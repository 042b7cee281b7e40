"""Plug-ins by entry point: group, then name, then object. A broken plug-in never affects the others."""

from __future__ import annotations

import dataclasses
import importlib.metadata
import logging
from collections import Counter
from collections.abc import Mapping
from typing import Any

from drydock.core.errors import NotFound

logger = logging.getLogger(__name__)


@dataclasses.dataclass(frozen=True, kw_only=True)
class PluginProblem:
    """A plug-in that was not loaded, and the reason."""

    group: str
    name: str
    source: str
    message: str


@dataclasses.dataclass(frozen=True, kw_only=True)
class Plugins:
    """The plug-ins of one group."""

    group: str
    objects: dict[str, Any]
    sources: dict[str, str]
    problems: tuple[PluginProblem, ...] = ()

    def find(self, name: str, what: str, own: Mapping[str, Any] | None = None) -> Any:
        """Return the object with this name, from `own` or the plug-ins.

        Raises NotFound, with the reason if the plug-in could not be loaded. `what` says in the message what was looked
        for.
        """
        known = {**self.objects, **(own or {})}
        if name not in known:
            problem = next((one.message for one in self.problems if one.name == name), "")
            raise NotFound(
                f"There is no {what} {name!r}" + (f": {problem}" if problem else "."),
                hint=f"Installed are: {', '.join(sorted(known)) or 'none'}.",
            )
        return known[name]


def load_plugins(group: str) -> Plugins:
    """Load every entry point of a group.

    Failures are logged and reported. If a name occurs twice, neither entry point with that name is loaded.
    """
    entries = importlib.metadata.entry_points(group=group)
    distinct = {(entry.name, entry.value): entry for entry in entries}
    count = Counter(name for name, _ in distinct)
    objects: dict[str, Any] = {}
    sources: dict[str, str] = {}
    problems = []
    for entry in distinct.values():
        try:
            if count[entry.name] > 1:
                raise LookupError(f"{count[entry.name]} packages provide a plug-in of this name")
            objects[entry.name] = entry.load()
            sources[entry.name] = _source(entry)
        except Exception as error:  # a stranger's module may raise anything while it is imported
            logger.warning("plug-in %s of %s was not loaded: %s", entry.name, group, error)
            problems.append(_problem(group, entry, error))
    return Plugins(group=group, objects=objects, sources=sources, problems=tuple(problems))


def _problem(group: str, entry: importlib.metadata.EntryPoint, error: Exception) -> PluginProblem:
    message = f"{type(error).__name__}: {error}"
    return PluginProblem(group=group, name=entry.name, source=_source(entry), message=message)


def _source(entry: importlib.metadata.EntryPoint) -> str:
    found = getattr(entry, "dist", None)
    return f"{found.name} {found.version}" if found else entry.value
