"""Reports about the resources that exist in one place, and the drafts that kinds make from them.

This module depends on no database, queue or provider.
"""

from __future__ import annotations

import json
from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import asdict, dataclass, field, replace
from hashlib import sha256
from typing import Any

from blueprints.answers import Json
from blueprints.identities import Identity, is_placeholder, real
from blueprints.specs import Draft


@dataclass(frozen=True, kw_only=True)
class Report:
    """One page of what a provider, a host or an agent says about one place.

    `content` is JSON in a form that only the kind knows. The same content always results in the same drafts.
    """

    place: str = ""
    content: Json = field(default_factory=dict)
    next_page: str = ""
    """The kind's name for the next page; empty on the last page."""
    incomplete: str = ""
    """Why something may be missing from the report, for a person. Nothing that it omits counts as missing then."""


@dataclass(frozen=True, kw_only=True)
class Rejected:
    """A draft that is not stored, and the reason."""

    identity: str
    message: str

    def __str__(self) -> str:
        return f"{self.identity:.100}: {self.message}"


def digest(generation: int, pages: Sequence[Report]) -> str:
    """Return a hash that changes if the blueprint or the content of a page changes. Raises ValueError."""
    text = json.dumps([generation, *(page.content for page in pages)], sort_keys=True, allow_nan=False)
    return sha256(text.encode("utf-8", "surrogatepass")).hexdigest()


def as_json(draft: Draft) -> Json:
    """Return the draft as PostgreSQL returns it from a column of type jsonb, without its empty fields.

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
    """Sort the drafts so that parts follow the resources that they are part of, and leave out those that are wrong.

    Wrong drafts have no identity, share it with another draft of the report, or are part of themselves. Further
    identities that are placeholders, or that several drafts have, are removed.
    """
    drafts, problems = _by_identity(unambiguous(found))
    depths = {identity: _depth(identity, drafts) for identity in drafts}
    problems += [Rejected(identity=one, message="It is part of itself.") for one in drafts if depths[one] is None]
    right = [draft for identity, draft in drafts.items() if depths[identity] is not None]
    return sorted(right, key=lambda draft: depths[draft.identity] or 0), problems


def unambiguous(drafts: Iterable[Draft]) -> list[Draft]:
    """Return the drafts of one report without placeholders, and without identities that several of them have."""
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
        if wrong := _wrong(draft.identity):
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


def _depth(identity: str, drafts: dict[str, Draft]) -> int | None:
    """Return the number of resources in this report that one is part of; None if it is part of itself."""
    above: list[str] = [identity]
    while (whole := drafts[above[-1]].part_of) in drafts:
        if whole in above:
            return None
        above.append(whole)
    return len(above) - 1
