"""The fake provider from a test's point of view: instances, served calls, and events to trigger."""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from typing import Any

from blueprints.amounts import Amounts
from blueprints.answers import Health
from blueprints.fake.provider import Instance, Provider, read
from blueprints.fake.store import TABLES
from blueprints.specs import Part


@dataclass(frozen=True, kw_only=True)
class Call:
    """One call served by the provider, and the process that made it."""

    name: str
    key: str
    pid: int


@dataclass(frozen=True, kw_only=True)
class Leaving:
    """An account, a key, a file, a service, a credential, a chain or a network that a lease has on an instance."""

    key: str
    lease: str
    what: str


class Cloud(Provider):
    """The provider seen from outside. Reading its state is not logged as a call."""

    def instances(self, state: str | None = None) -> list[Instance]:
        """Return all instances, or those in `state`, by key."""
        with self._store.transaction() as db:
            rows = db.execute("SELECT * FROM instances WHERE state = coalesce(?, state) ORDER BY key", (state,))
            return [read(row) for row in rows]

    def instance(self, key: str) -> Instance | None:
        """Return the instance called `key`."""
        return next((one for one in self.instances() if one.key == key), None)

    def calls(self, name: str | None = None, key: str | None = None) -> list[Call]:
        """Return the calls served so far, oldest first, optionally filtered by name and key."""
        with self._store.transaction() as db:
            rows = db.execute(
                "SELECT name, key, pid FROM calls WHERE name = coalesce(?, name) AND key = coalesce(?, key) "
                "ORDER BY id",
                (name, key),
            )
            return [Call(**dict(row)) for row in rows]

    def count(self, name: str | None = None, key: str | None = None) -> int:
        """Return the number of calls served, optionally filtered by name and key."""
        return len(self.calls(name, key))

    def left(self, lease: str | None = None) -> list[Leaving]:
        """Return what all leases, or only this one, have on instances: accounts, keys, files, services and the like."""
        with self._store.transaction() as db:
            rows = db.execute(
                "SELECT key, lease, what FROM left_by WHERE lease = coalesce(?1, lease) UNION ALL "
                "SELECT key, lease, 'service ' || name FROM services WHERE lease = coalesce(?1, lease) UNION ALL "
                "SELECT key, lease, 'credential ' || name FROM dpu_credentials WHERE lease = coalesce(?1, lease) "
                "UNION ALL SELECT key, lease, noun || ' ' || name FROM dpu_objects WHERE lease = coalesce(?1, lease) "
                "ORDER BY 1, 2, 3",
                (lease,),
            )
            return [Leaving(**dict(row)) for row in rows]

    def is_empty(self) -> bool:
        """Return whether there are no instances, and leases have left nothing behind."""
        return not self.instances() and not self.left()

    def show_service(self, lease: str, name: str, **seen: Any) -> None:
        """Set what is seen of a service: `current`, `removing`, and `conditions` and `pods` as objects.

        What is left out is as for a new service without pods.
        """
        with self._store.transaction() as db:
            values = (json.dumps(seen), lease, name)
            db.execute("UPDATE services SET seen = ? WHERE lease = ? AND name = ?", values)

    def show_object(self, lease: str, noun: str, name: str, **seen: Any) -> None:
        """Set what is seen of a chain or network: `complete`, `ready`, `removing`, and `conditions` as objects."""
        with self._store.transaction() as db:
            values = (json.dumps(seen), lease, noun, name)
            db.execute("UPDATE dpu_objects SET seen = ? WHERE lease = ? AND noun = ? AND name = ?", values)

    def complete(self, key: str) -> None:
        """Let the next poll of the change under way on the instance be the last one, and report it to watches."""
        with self._store.transaction() as db:
            db.execute("UPDATE instances SET polls = 1000000 WHERE key = ?", (key,))
        self.report(key)

    def report(self, key: str) -> None:
        """Report to watches that the instance has changed."""
        with self._store.transaction() as db:
            db.execute("INSERT INTO changes (key, tags) SELECT key, tags FROM instances WHERE key = ?", (key,))

    def break_watch(self, message: str) -> None:
        """Let watches of this provider fail with a message, or work again if it is empty."""
        with self._store.transaction() as db:
            db.execute("DELETE FROM settings WHERE key = 'watch:'")
            if message:
                db.execute("INSERT INTO settings VALUES ('watch:', 'broken', ?)", (message,))

    def restore(self) -> None:
        """Forget all changes, as a provider does that is restored to an earlier state."""
        with self._store.transaction() as db:
            db.execute("DELETE FROM changes")
            db.execute("DELETE FROM sqlite_sequence WHERE name = 'changes'")

    def kill(self, key: str) -> None:
        """Make the instance fail. It stays listed, and its next check reports it dead."""
        with self._store.transaction() as db:
            db.execute("UPDATE instances SET state = 'dead' WHERE key = ?", (key,))

    def ail(self, key: str, health: Health) -> None:
        """Let the provider report this health for the instance, also while it is switched off."""
        with self._store.transaction() as db:
            text = json.dumps(asdict(health))
            db.execute("INSERT OR REPLACE INTO settings VALUES (?, 'health', ?)", (key, text))

    def lock(self, key: str, password: str) -> None:
        """Let the instance answer only to a credential with this password."""
        with self._store.transaction() as db:
            db.execute("INSERT OR REPLACE INTO settings VALUES (?, 'password', ?)", (key, password))

    def cut_off(self, key: str) -> None:
        """Stop the instance from answering its users."""
        with self._store.transaction() as db:
            db.execute("INSERT OR REPLACE INTO settings VALUES (?, 'cut_off', '1')", (key,))

    def connect(self, key: str) -> None:
        """Let the instance answer again."""
        with self._store.transaction() as db:
            db.execute("DELETE FROM settings WHERE key = ? AND name = 'cut_off'", (key,))

    def lose(self, key: str) -> None:
        """Remove the instance, as if it had been deleted by hand."""
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
        place: str = "",
        identities: Mapping[str, str] | None = None,
        locality: Sequence[str] = (),
        health: Health | None = None,
    ) -> None:
        """Add an object for `discover` to find, in a place. An object with the same identity is replaced."""
        draft = {
            "place": place,
            "identities": dict(identities or {}),
            "identity": identity,
            "name": name or identity,
            "zone": zone,
            "facts": dict(facts or {}),
            "attributes": dict(attributes or {}),
            "capacity": asdict(capacity or Amounts()),
            "part_of": part_of,
            "parts": [asdict(part) for part in parts],
            "traits": sorted(traits),
            "locality": list(locality),
            "health": None if health is None else asdict(health),
        }
        with self._store.transaction() as db:
            db.execute("INSERT OR REPLACE INTO planted VALUES (?, ?)", (identity, json.dumps(draft)))

    def uproot(self, identity: str) -> None:
        """Remove a planted object, so that the next `discover` misses it."""
        with self._store.transaction() as db:
            db.execute("DELETE FROM planted WHERE identity = ?", (identity,))

    def silence(self, place: str, message: str) -> None:
        """Make every attempt to read the report of a place fail, or succeed again if `message` is empty."""
        self._trouble(place, "silent", message)

    def truncate(self, place: str, message: str) -> None:
        """Mark the reports of a place as incomplete, or as complete again if `message` is empty."""
        self._trouble(place, "incomplete", message)

    def _trouble(self, place: str, name: str, message: str) -> None:
        with self._store.transaction() as db:
            db.execute("DELETE FROM settings WHERE key = ? AND name = ?", (f"place:{place}", name))
            if message:
                db.execute("INSERT INTO settings VALUES (?, ?, ?)", (f"place:{place}", name, message))

    def sell(self, place: str, offer: str, **said: Any) -> None:
        """Sell an offer in a place, replacing an earlier offer with that name.

        Takes the fields of `blueprints.offers.Offer` other than location and type.
        """
        with self._store.transaction() as db:
            text = json.dumps({"location": place, "type": offer, **said})
            db.execute("INSERT OR REPLACE INTO sold VALUES (?, ?, ?)", (place, offer, text))

    def allow(self, place: str, name: str, **said: Any) -> None:
        """Set a limit on an account, replacing an earlier one.

        Takes the fields of `blueprints.offers.Allowance` other than location and name.
        """
        with self._store.transaction() as db:
            text = json.dumps({"location": place, "name": name, **said})
            db.execute("INSERT OR REPLACE INTO allowed VALUES (?, ?, ?)", (place, name, text))

    def sell_out(self, type_name: str) -> None:
        """Prevent machines from being switched on as this type."""
        with self._store.transaction() as db:
            db.execute("INSERT OR IGNORE INTO sold_out VALUES (?)", (type_name,))

    def write(self, key: str, text: str) -> None:
        """Append text to the instance's console."""
        said = self.settings(key).get("console", "")
        with self._store.transaction() as db:
            db.execute("INSERT OR REPLACE INTO settings VALUES (?, 'console', ?)", (key, said + text))

    def withdraw(self, place: str, offer: str) -> None:
        """Stop selling the offer."""
        with self._store.transaction() as db:
            db.execute("DELETE FROM sold WHERE place = ? AND offer = ?", (place, offer))

    def holds(self) -> list[tuple[str, str]]:
        """Return the holds that wait for a person, as (fault, key)."""
        with self._store.transaction() as db:
            return [tuple(row) for row in db.execute("SELECT fault, key FROM holds WHERE NOT resolved")]

    def resolve(self, key: str | None = None) -> None:
        """Resolve all holds, or those of a key, as a person would."""
        with self._store.transaction() as db:
            db.execute("UPDATE holds SET resolved = 1 WHERE key = coalesce(?, key)", (key,))

    def forget(self) -> None:
        """Reset the provider: remove all instances, calls and faults."""
        with self._store.transaction() as db:
            for table in TABLES:
                db.execute(f"DELETE FROM {table}")  # noqa: S608
