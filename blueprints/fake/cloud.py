"""The fake provider as a test sees it: what exists, what was called, and the hands of fate."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from blueprints.amounts import Amounts
from blueprints.fake.provider import Instance, Provider, read
from blueprints.fake.store import TABLES
from blueprints.specs import Part


@dataclass(frozen=True, kw_only=True)
class Call:
    """One call that the provider served, and the process it came from."""

    name: str
    key: str
    pid: int


@dataclass(frozen=True, kw_only=True)
class Leaving:
    """What a lease has on an instance: an account, a key, a file."""

    key: str
    lease: str
    what: str


class Cloud(Provider):
    """The provider from outside. Looking leaves no trace in its log."""

    def instances(self, state: str | None = None) -> list[Instance]:
        """Everything that exists (in `state`), by key."""
        with self._store.transaction() as db:
            rows = db.execute("SELECT * FROM instances WHERE state = coalesce(?, state) ORDER BY key", (state,))
            return [read(row) for row in rows]

    def instance(self, key: str) -> Instance | None:
        """The one called `key`."""
        return next((one for one in self.instances() if one.key == key), None)

    def calls(self, name: str | None = None, key: str | None = None) -> list[Call]:
        """The calls served so far, oldest first, with this name and for this key."""
        with self._store.transaction() as db:
            rows = db.execute(
                "SELECT name, key, pid FROM calls WHERE name = coalesce(?, name) AND key = coalesce(?, key) "
                "ORDER BY id",
                (name, key),
            )
            return [Call(**dict(row)) for row in rows]

    def count(self, name: str | None = None, key: str | None = None) -> int:
        """How many calls were served with this name and for this key."""
        return len(self.calls(name, key))

    def left(self, lease: str | None = None) -> list[Leaving]:
        """What leases (this lease) have on instances now."""
        with self._store.transaction() as db:
            rows = db.execute(
                "SELECT key, lease, what FROM left_by WHERE lease = coalesce(?, lease) ORDER BY 1, 2, 3",
                (lease,),
            )
            return [Leaving(**dict(row)) for row in rows]

    def is_empty(self) -> bool:
        """True when no instance and nothing of any lease is left."""
        return not self.instances() and not self.left()

    def kill(self, key: str) -> None:
        """The instance dies by itself: it stays listed, and its next check says that it is dead."""
        with self._store.transaction() as db:
            db.execute("UPDATE instances SET state = 'dead' WHERE key = ?", (key,))

    def cut_off(self, key: str) -> None:
        """The instance no longer answers whoever wants to work on it."""
        with self._store.transaction() as db:
            db.execute("INSERT OR REPLACE INTO settings VALUES (?, 'cut_off', '1')", (key,))

    def connect(self, key: str) -> None:
        """The instance answers again."""
        with self._store.transaction() as db:
            db.execute("DELETE FROM settings WHERE key = ? AND name = 'cut_off'", (key,))

    def lose(self, key: str) -> None:
        """The instance vanishes, as if somebody had deleted it by hand."""
        with self._store.transaction() as db:
            db.execute("DELETE FROM instances WHERE key = ?", (key,))

    def plant(
        self,
        identity: str,
        *,
        attributes: Mapping[str, Any] | None = None,
        capacity: Amounts | None = None,
        part_of: str = "",
        parts: Sequence[Part] = (),
        traits: Sequence[str] = (),
        name: str = "",
        zone: str = "",
        facts: Mapping[str, Any] | None = None,
    ) -> None:
        """Put something where `discover` finds it; the same identity again replaces it."""
        draft = {
            "identity": identity,
            "name": name or identity,
            "zone": zone,
            "facts": dict(facts or {}),
            "attributes": dict(attributes or {}),
            "capacity": asdict(capacity or Amounts()),
            "part_of": part_of,
            "parts": [asdict(part) for part in parts],
            "traits": sorted(traits),
        }
        with self._store.transaction() as db:
            db.execute("INSERT OR REPLACE INTO planted VALUES (?, ?)", (identity, json.dumps(draft)))

    def uproot(self, identity: str) -> None:
        """Take away what was planted; the next `discover` misses it."""
        with self._store.transaction() as db:
            db.execute("DELETE FROM planted WHERE identity = ?", (identity,))

    def sell(self, place: str, offer: str, **said: Any) -> None:
        """Offer something in a place (`blueprints.offers.Offer`'s fields but location and type); again replaces it."""
        with self._store.transaction() as db:
            text = json.dumps({"location": place, "type": offer, **said})
            db.execute("INSERT OR REPLACE INTO sold VALUES (?, ?, ?)", (place, offer, text))

    def allow(self, place: str, name: str, **said: Any) -> None:
        """Bound what an account may have (`blueprints.offers.Allowance`'s fields but location and name); again
        replaces it."""
        with self._store.transaction() as db:
            text = json.dumps({"location": place, "name": name, **said})
            db.execute("INSERT OR REPLACE INTO allowed VALUES (?, ?, ?)", (place, name, text))

    def sell_out(self, type_name: str) -> None:
        """Nothing is switched on as this type from now."""
        with self._store.transaction() as db:
            db.execute("INSERT OR IGNORE INTO sold_out VALUES (?)", (type_name,))

    def write(self, key: str, text: str) -> None:
        """The instance writes on its console."""
        said = self.settings(key).get("console", "")
        with self._store.transaction() as db:
            db.execute("INSERT OR REPLACE INTO settings VALUES (?, 'console', ?)", (key, said + text))

    def withdraw(self, place: str, offer: str) -> None:
        """It is sold no more."""
        with self._store.transaction() as db:
            db.execute("DELETE FROM sold WHERE place = ? AND offer = ?", (place, offer))

    def holds(self) -> list[tuple[str, str]]:
        """The holds that nobody has resolved: (fault, key)."""
        with self._store.transaction() as db:
            return [tuple(row) for row in db.execute("SELECT fault, key FROM holds WHERE NOT resolved")]

    def resolve(self, key: str | None = None) -> None:
        """Do what the holds (of this key) ask a person for."""
        with self._store.transaction() as db:
            db.execute("UPDATE holds SET resolved = 1 WHERE key = coalesce(?, key)", (key,))

    def forget(self) -> None:
        """Begin anew: nothing exists, nothing was called, no fault has struck."""
        with self._store.transaction() as db:
            for table in TABLES:
                db.execute(f"DELETE FROM {table}")  # noqa: S608
