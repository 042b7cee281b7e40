"""Reports about the resources that exist in one place, and checks of the drafts that kinds make from reports.

This module depends on no database, queue or provider.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import asdict, dataclass, field, replace
from hashlib import sha256
from typing import Any

from blueprints.answers import Json
from blueprints.identities import Identity, is_placeholder, real
from blueprints.localities import problem
from blueprints.specs import Draft


@dataclass(frozen=True, kw_only=True)
class Report:
    """A page of a report on one place, from a provider, a host or an agent.

    `content` is JSON in a format of the kind. The same content always results in the same drafts.
    """

    place: str = ""
    content: Json = field(default_factory=dict)
    next_page: str = ""
    """The name of the next page, chosen by the kind; empty on the last page."""
    incomplete: str = ""
    """Why the report may be incomplete, for people. If set, resources that it omits do not count as missing."""


@dataclass(frozen=True, kw_only=True)
class Rejected:
    """A draft that is not stored, and the reason for that."""

    identity: str
    message: str

    def __str__(self) -> str:
        return f"{self.identity:.100}: {self.message}"


def digest(generation: int, pages: Sequence[Report]) -> str:
    """Return the blueprint's generation, a colon, and a hash of the content of a report's pages.

    Raises ValueError if the content is not valid JSON.
    """
    return f"{generation}:{content_digest([page.content for page in pages])}"


def content_digest(contents: Sequence[object]) -> str:
    """Return a hash of JSON values, in 40 characters. Raises ValueError if one is not valid JSON."""
    text = json.dumps(contents, sort_keys=True, allow_nan=False)
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:40]


def as_json(draft: Draft) -> Json:
    """Return the draft as JSON without empty fields, equal to what a jsonb column returns after storing it.

    Raises ValueError or TypeError if a value cannot be stored.
    """
    fields = {name: value for name, value in asdict(draft).items() if value not in _EMPTY}
    if "traits" in fields:
        fields["traits"] = sorted(fields["traits"])
    stored: Json = json.loads(json.dumps(fields, allow_nan=False))
    return stored


LONGEST_IDENTITY = 255

_EMPTY: tuple[Any, ...] = ("", None, {}, (), frozenset())


def in_order(found: Iterable[Draft]) -> tuple[list[Draft], list[Rejected]]:
    """Sort a report's drafts so that parts follow the resources that contain them.

    Return the sorted drafts and the rejected ones. A draft is rejected if it has no identity, if another draft of the
    report has the same identity, or if it is part of itself. Additional identities are removed from a draft if they are
    placeholders, or if several drafts have them.
    """
    drafts, problems = _by_identity(unambiguous(found))
    depths = _depths(drafts)
    problems += [Rejected(identity=one, message="It is part of itself.") for one in drafts if depths[one] is None]
    right = [draft for identity, draft in drafts.items() if depths[identity] is not None]
    return sorted(right, key=lambda draft: depths[draft.identity] or 0), problems


def unambiguous(drafts: Iterable[Draft]) -> list[Draft]:
    """Return the drafts without ambiguous additional identities: placeholders, and those that several drafts have."""
    clean = [replace(one, identities=_respelled(one)) if one.identities else one for one in drafts]
    count = Counter(identity for one in clean for identity in one.identities)
    return [
        replace(one, identities=tuple(identity for identity in one.identities if count[identity] == 1))
        if any(count[identity] > 1 for identity in one.identities) else one
        for one in clean
    ]  # fmt: skip


def _respelled(draft: Draft) -> tuple[Identity, ...]:
    found = dict.fromkeys(two for one in draft.identities for two in real({one.namespace: one.value}))
    return tuple(sorted(found, key=str))


def _by_identity(found: Iterable[Draft]) -> tuple[dict[str, Draft], list[Rejected]]:
    drafts: dict[str, Draft] = {}
    problems: dict[str, Rejected] = {}
    for draft in found:
        if wrong := _wrong(draft.identity) or problem(draft.locality):
            problems[draft.identity] = Rejected(identity=draft.identity or draft.name, message=wrong)
        elif draft.identity in drafts or draft.identity in problems:
            drafts.pop(draft.identity, None)
            message = "Several resources of one report have this identity."
            problems[draft.identity] = Rejected(identity=draft.identity, message=message)
        else:
            drafts[draft.identity] = draft
    return drafts, list(problems.values())


def _wrong(identity: str) -> str:
    if not identity:
        return "It has no identity."
    if is_placeholder(identity):
        return "Its identity is a placeholder."
    if len(identity) > LONGEST_IDENTITY or "\0" in identity:
        return f"Its identity is longer than {LONGEST_IDENTITY} characters or contains a NUL character."
    return ""


def _depths(drafts: Mapping[str, Draft]) -> dict[str, int | None]:
    """Return for each resource how many others of the report it is part of; None if it is part of itself.

    Visits each resource once, because whoever sends a report chooses how deep it is.
    """
    depths: dict[str, int | None] = {}
    for identity in drafts:
        chain: dict[str, None] = {}
        at = identity
        while at in drafts and at not in depths and at not in chain:
            chain[at] = None
            at = drafts[at].part_of
        depth = None if at in chain else depths.get(at, -1)
        for one in reversed(chain):
            depth = None if depth is None else depth + 1
            depths[one] = depth
    return depths
