"""The environment of the checks: client, machine to create, journal, and access to machines from outside."""

from __future__ import annotations

import contextlib
import datetime as dt
import socket
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from blueprints.cloud.client import Client, Expires, UserData
from blueprints.cloud.faults import CloudError, Meaning
from blueprints.cloud.validation.journal import Journal, Made, end
from blueprints.cloud.validation.tags import RunTags
from blueprints.cloud.validation.values import Limits, Wish
from blueprints.cloud.validation.waiting import Unmet, Waiting, expect
from blueprints.cloud.values import Instance, Lifecycle, Order, Underway
from blueprints.hostshell import HostShell
from blueprints.userdata import user_data
from drydock.core import clock
from interfaces.endpoints import SshEndpoint
from interfaces.keys import new_key_pair
from interfaces.transports import transport_to

_CALL = 60.0


class Outside:
    """Connects to machines from this computer. For test doubles, a subclass gives each machine a separate address."""

    def connects(self, address: str, port: int) -> bool:
        """Return whether the endpoint accepts a connection within three seconds."""
        try:
            with socket.create_connection((address, port), timeout=3.0):
                return True
        except OSError:
            return False

    def run(self, endpoint: SshEndpoint, private_key: str, script: str, *arguments: str) -> str:
        """Return the output of a script that runs on the endpoint. Raises InterfaceError."""
        return HostShell(transport_to(endpoint, private_key=private_key), _CALL).run(script, *arguments)


T = TypeVar("T")
_OVER = (Lifecycle.TERMINATED, Lifecycle.FAILED, Lifecycle.TERMINATING)


@dataclass(frozen=True, kw_only=True)
class Machine:
    """A machine that a check created: its order, the prepared objects, and the answer of the create."""

    order: Order
    prepared: Mapping[str, str]
    instance: Instance
    began_at: dt.datetime
    ended_at: dt.datetime


class Environment:
    """A run of the checks on one account. `main` is the machine that most checks use."""

    def __init__(
        self, client: Client, wish: Wish, run_tags: RunTags, journal: Journal, *, limits: Limits | None = None,
        outside: Outside | None = None,
    ) -> None:  # fmt: skip
        self.client, self.wish, self.run_tags, self.journal = client, wish, run_tags, journal
        self.limits, self.outside = limits or Limits(), outside or Outside()
        self.waiting = Waiting(self.limits.pace)
        self.control, self.host = new_key_pair("drydock-validate"), new_key_pair("drydock-host")
        self.made: dict[str, Made] = {}
        self.orders: dict[str, Order] = {}
        self.main: Machine | None = None

    # Asking.

    def ask(self, call: Callable[..., T], *arguments: Any) -> T:
        """Make a call, and retry while the provider is busy or throttles."""
        return self.waiting.asked(lambda: call(*arguments), self.limits.call)

    def until(self, what: str, look: Callable[[], T | None], seconds: float) -> T:
        """See `Waiting.until`."""
        return self.waiting.until(what, look, seconds)

    @property
    def machine(self) -> Machine:
        """Return the main machine. Raises Unmet if it has not been created."""
        if self.main is None:
            raise Unmet("The main machine does not exist.")
        return self.main

    # Making.

    def order(self, part: str, **other: Any) -> Order:
        """Return the order for one part of the checks; the same part always gives the same order.

        `other` overrides fields.
        """
        if part not in self.orders:
            self.orders[part] = self._order(part)
        return replace(self.orders[part], **other)

    def _order(self, part: str) -> Order:
        wish, key = self.wish, self.run_tags.key(part)
        return Order(
            key=key, token=f"{self.run_tags.run}-{part}", location=wish.location, zone=wish.zone, type=wish.type,
            image=wish.image.id, arch=wish.arch, disk_gib=wish.disk_gib or None, network=wish.network,
            public_address=wish.public_address, ssh_port=wish.ssh_port, ssh_from=wish.ssh_from, user=wish.user,
            public_key=self.control.public, user_data=self._user_data(), ends_after=self._ends_after(),
            tags=self.run_tags.tags(key),
        )  # fmt: skip

    def _user_data(self) -> str:
        if not isinstance(self.client, UserData):
            return ""
        return user_data(
            user=self.wish.user, public_key=self.control.public, host_key=self.host, ends_at=self.run_tags.expires_at
        )

    def _ends_after(self) -> float | None:
        left = (self.run_tags.expires_at - clock.now()).total_seconds()
        return max(60.0, left) if isinstance(self.client, Expires) else None

    def make(self, order: Order) -> Machine:
        """Prepare and create a machine, under a name that is written to the journal first.

        If the answer is lost, the machine is looked up. A machine that fails before the create is answered counts as
        refused.
        """
        prepared = self.prepare(order)
        began_at = clock.now()
        self.made[order.key] = self.journal.will_ask(self.made[order.key])
        try:
            answer = self.ask_once(order, prepared)
        except CloudError as error:
            if error.meaning is not Meaning.AMBIGUOUS:
                raise
            answer = self.until(
                "Finding the machine whose create was not answered", lambda: self.client.find(order), self.limits.create
            )
        return self.standing(order, prepared, answer, began_at)

    def prepare(self, order: Order) -> Mapping[str, str]:
        """Prepare the objects that the machine needs, and wait for them."""
        made = Made(key=order.key, location=order.location, zone=order.zone, tags=dict(order.tags))
        if order.key not in self.made:
            self.made[order.key] = self.journal.will_make(made)

        def prepared() -> tuple[Mapping[str, str]] | None:
            answer = self.client.prepare(order)
            return None if isinstance(answer, Underway) else (answer,)

        return self.until("Preparing the machine", prepared, self.limits.create)[0]

    def ask_once(self, order: Order, prepared: Mapping[str, str]) -> Instance | Underway:
        """Request one create. Retry only if the provider has certainly not started it."""
        certain = (Meaning.THROTTLED, Meaning.UNAVAILABLE, Meaning.CONFLICT)
        end = clock.monotonic() + self.limits.call
        while True:
            try:
                return self.client.create(order, prepared)
            except CloudError as error:
                if error.meaning not in certain or clock.monotonic() > end:
                    raise
            clock.sleep(self.limits.pace)

    def standing(
        self, order: Order, prepared: Mapping[str, str], answer: Instance | Underway, began_at: dt.datetime
    ) -> Machine:
        """Return the machine once its create call has been answered."""
        end = clock.monotonic() + self.limits.create
        while isinstance(answer, Underway):
            expect(clock.monotonic() < end, f"The machine was not created within {self.limits.create:.0f} s.")
            clock.sleep(min(answer.after, self.limits.pace))
            answer = self.ask(self.client.created, order, answer.handle)
        self.made[order.key] = self.journal.known_as(self.made[order.key], answer.id)
        return Machine(order=order, prepared=prepared, instance=answer, began_at=began_at, ended_at=clock.now())

    # Looking.

    def read(self, instance: Instance) -> Instance | None:
        """Read the instance again."""
        return self.client.instance(instance.location, instance.zone, instance.key, instance.id)

    def until_state(self, instance: Instance, state: Lifecycle, seconds: float) -> Instance:
        """Wait until the machine is in a state. A running machine must also have an address."""

        def there() -> Instance | None:
            found = self.read(instance)
            if state not in _OVER:
                expect(found is None or found.state not in _OVER, f"The machine has ended: {found and found.state}.")
            if found is None or found.state is not state:
                return None
            return found if state is not Lifecycle.RUNNING or self.address(found) else None

        return self.until(f"The machine is {state}", there, seconds)

    def address(self, instance: Instance) -> str:
        """Return the address to connect to."""
        return instance.public_address if self.wish.public_address else instance.private_address

    def endpoint(self, *, host_key: str = "") -> SshEndpoint:
        """Return the endpoint of the main machine, with its pinned key or another one."""
        address = self.address(self.machine.instance)
        expect(address, "The machine has no address.")
        return SshEndpoint(
            host=address, user=self.wish.user, port=self.wish.ssh_port, host_keys=(host_key or self.host.public,)
        )

    def run(self, script: str, *arguments: str) -> str:
        """Return the output of a script on the main machine. Raises InterfaceError."""
        return self.outside.run(self.endpoint(), self.control.private, script, *arguments)

    # Ending.

    def end(self, key: str) -> None:
        """Delete everything that was created under a name that is in the journal."""
        end(self.client, self.made[key], self.waiting, self.limits)
        self.journal.gone(key)
        del self.made[key]

    @contextlib.contextmanager
    def another(self, part: str, **other: Any) -> Iterator[Order]:
        """Yield the order for an additional machine.

        The objects of the order are deleted when the check ends, whether it passes or fails. Objects that
        cannot be deleted at that time are left to the end of the suite, which reports them.
        """
        order = self.order(part, **other)
        try:
            yield order
        finally:
            if order.key in self.made:
                with contextlib.suppress(Unmet, CloudError):
                    self.end(order.key)

    def clear(self) -> list[str]:
        """Delete everything that is left. Return a sentence for each object that could not be deleted."""
        self.waiting.limit(float("inf"))
        left = []
        for key in list(self.made):
            try:
                self.end(key)
            except Exception as error:
                left.append(f"{key}: {getattr(error, 'message', '') or error!r}")
        return left
