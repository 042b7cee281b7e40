"""The agent at work: it says hello, reports the hardware, and obeys the orders that it fetches in between."""

from __future__ import annotations

import contextlib
import dataclasses
import random
import time
from collections.abc import Callable
from datetime import UTC, datetime

from drydock_agent.facts import Hardware
from drydock_agent.messages import (
    LONGEST_WAIT,
    Action,
    HardwareReport,
    Order,
    OrderResult,
    OrderStatus,
    Welcome,
    moment,
)
from drydock_agent.program.connection import Connection
from drydock_agent.program.errors import AgentError, NotAccepted, Refused, Unavailable
from drydock_agent.program.host import ThisHost, boot_id, now
from drydock_agent.program.signals import Stop
from drydock_agent.program.state import State, StateFolder
from drydock_agent.program.upgrade import Upgrades
from drydock_agent.wire import Malformed

CLOCK_WARNING = 60.0
"""The difference in seconds from which the agent warns about the clock. The server refuses reports from 300 on."""
_FIRST_PAUSE, _LONGEST_PAUSE, _REFUSED_PAUSE = 1.0, 60.0, 60.0
_EARLY = 1.0
"""A response without orders that came within this many seconds means that the server cannot wait."""

Say = Callable[[str], None]


def join(
    connection: Connection, host: ThisHost, folder: StateFolder, *, code: str, name: str, ca: str, say: Say
) -> State:
    """Join with a code, and keep the token. Raises AgentError."""
    welcome = connection.join(code, host.hello(name, host.hardware()))
    state = _state(State(
        server=connection.server, ca=ca, name=name, agent="", blueprint="", place="", token="",
        expires_at="", interval=0.0,
    ), welcome)  # fmt: skip
    folder.save(state)
    _warn_of_clock(welcome, say)
    return state


class Agent:
    """An agent that joined. `say` receives lines for people."""

    def __init__(
        self, connection: Connection, host: ThisHost, folder: StateFolder, state: State, say: Say, *,
        upgrades: Upgrades | None = None,
    ) -> None:  # fmt: skip
        self.state = state
        self.hardware: Hardware | None = None
        """The hardware that was found last."""
        self.discovering = False
        """Whether a discovery is running, or has been asked for."""
        self._connection, self._host, self._folder, self._say = connection, host, folder, say
        self._upgrades = upgrades or Upgrades(folder, connection)
        self._hello_at = self._report_at = 0.0
        self._unsent: dict[str, OrderResult] = {}
        self._resumed = ""
        self._failures = 0

    def once(self) -> None:
        """Say hello, report the hardware, and carry out the orders that are there.

        Raises AgentError, and Restart after an upgrade.
        """
        self._resume()
        hardware = self._scan()
        self._hello(hardware)
        self._report(hardware)
        self._obey(wait=0)

    def hello(self) -> None:
        """Say hello, and keep the new token. Raises AgentError."""
        self._hello(self._scan())

    def run(self, stop: Stop) -> None:
        """Work until `stop` is set.

        Raises NotAccepted if the server does not accept the token any more, and Restart after an upgrade.
        """
        self._resume()
        while not stop.is_set:
            try:
                self._round(stop)
            except NotAccepted:
                raise
            except Unavailable as error:
                stop.sleep(self._failed(error, max(error.retry_after, _pause(self._failures))))
            except (Refused, Malformed) as error:
                stop.sleep(self._failed(error, _REFUSED_PAUSE * random.uniform(0.5, 1.0)))  # noqa: S311
            else:
                self._recovered()

    def _round(self, stop: Stop) -> None:
        """Do what is due, then wait for orders until something else is."""
        woken = stop.take_wake()
        hello, report = (_clock() >= at for at in (self._hello_at, self._report_at))
        if woken:
            # The conductor that dialled in has usually left an order, which is carried out by a report.
            before = self._report_at
            self._obey(wait=0)
            report = report or self._report_at == before
        if hello or report:
            with stop.allowed():
                hardware = self._scan()
            if hello:
                self._hello(hardware)
            if report:
                self._report(hardware)
        left = min(self._hello_at, self._report_at) - _clock()
        if left <= 0 or stop.is_set:
            return
        before = _clock()
        if not self._obey(wait=min(LONGEST_WAIT, max(1, int(left))), stop=stop) and _clock() - before < _EARLY:
            stop.sleep(min(left, random.uniform(5.0, 10.0)))  # noqa: S311

    def _hello(self, hardware: Hardware) -> None:
        """Renew the token. Half of its life is left for a server that is away. Raises AgentError."""
        hello = dataclasses.replace(self._host.hello(self.state.name, hardware), resumed=self._resumed)
        welcome = self._connection.renew(self.state.token, hello)
        self.state = _state(self.state, welcome)
        self._folder.save(self.state)
        if self._resumed:
            self._upgrades.confirm()
            self._resumed = ""
        _warn_of_clock(welcome, self._say)
        life = (moment(welcome.expires_at) - moment(welcome.server_time)).total_seconds()
        self._hello_at = _clock() + max(1.0, life * random.uniform(0.4, 0.5))  # noqa: S311

    def _report(self, hardware: Hardware) -> str:
        """Report the hardware. Return what became of the report, as a sentence. Raises AgentError."""
        # The clock keeps numbers increasing even if the state is older than the last report.
        sequence = max(self.state.sequence + 1, time.time_ns() // 1_000_000)
        self.state = dataclasses.replace(self.state, sequence=sequence)
        self._folder.save(self.state)
        self._report_at = _clock() + self.state.interval * random.uniform(0.9, 1.0)  # noqa: S311
        report = HardwareReport(sequence=sequence, boot_id=boot_id(), time=now(), hardware=hardware.steady())
        receipt = self._connection.report(self.state.token, report)
        for problem in receipt.problems:
            self._say(f"The server could not use everything in the report: {problem}")
        many = len(hardware.devices)
        return f"Reported {many} devices; {'the server stored them' if receipt.stored else 'nothing has changed'}."

    def _obey(self, *, wait: int, stop: Stop | None = None) -> int:
        """Carry out the orders that the server has, and return their number. Raises AgentError."""
        self._send_results()
        if stop is None:
            found = self._connection.orders(self.state.token, wait=wait)
        else:
            waited = stop.waiting(lambda: self._connection.orders(self.state.token, wait=wait))
            if waited is None:
                return 0
            found = waited
        for order in found.orders:
            self._say(f"Order {order.id}: {order.action}.")
            self._connection.answer(self.state.token, order.id, OrderResult(status=OrderStatus.IN_PROGRESS))
            self._unsent[order.id] = self._carry_out(order)
            self._send_results()
        return len(found.orders)

    def _carry_out(self, order: Order) -> OrderResult:
        try:
            if order.action is Action.DISCOVERY:
                return OrderResult(status=OrderStatus.DONE, message=self._report(self._scan()))
            if order.action is Action.UPGRADE:
                self._upgrade(order)
            return OrderResult(status=OrderStatus.FAILED, message=f"This agent cannot carry out {order.action}.")
        except NotAccepted:
            raise
        except (AgentError, Malformed) as error:
            return OrderResult(status=OrderStatus.FAILED, message=str(error)[:1000])

    def _upgrade(self, order: Order) -> None:
        """Carry out an upgrade. Raises Restart when it is done, and AgentError if it failed."""
        try:
            self._upgrades.carry_out(order, self.state.token)
        except AgentError:
            # The version that was tried may have renewed the token; otherwise the one before is still valid.
            with contextlib.suppress(AgentError):
                self.state = self._folder.load() or self.state
            self._hello_at = 0.0
            raise

    def _resume(self) -> None:
        """Finish an upgrade that started this program. Raises Restart if it has failed."""
        found = self._upgrades.begin()
        if found is not None:
            self._resumed, result = found
            self._unsent[self._resumed] = result
            self._say(f"Order {self._resumed}: {result.message}")

    def _scan(self) -> Hardware:
        """Scan the hardware, and remember it for conductors that dial in."""
        self.discovering = True
        try:
            self.hardware = self._host.hardware()
        finally:
            self.discovering = False
        return self.hardware

    def _send_results(self) -> None:
        """Send the results that could not be sent before. One that the server refuses is dropped."""
        for id, result in list(self._unsent.items()):
            try:
                self._connection.answer(self.state.token, id, result)
            except NotAccepted:
                raise
            except Refused as error:
                self._say(f"The result of order {id} was refused: {error}")
            del self._unsent[id]

    def _failed(self, error: Exception, pause: float) -> float:
        if not self._failures:
            self._say(f"{str(error).rstrip('.')}. Trying again.")
        self._failures += 1
        return pause

    def _recovered(self) -> None:
        if self._failures:
            self._say(f"{self._connection.server} answers again, after {self._failures} failed attempts.")
        self._failures = 0


def _state(state: State, welcome: Welcome) -> State:
    return dataclasses.replace(
        state, agent=welcome.agent, token=welcome.token, expires_at=welcome.expires_at, interval=welcome.interval,
        blueprint=welcome.blueprint, place=welcome.place, secret=welcome.secret,
    )  # fmt: skip


def _warn_of_clock(welcome: Welcome, say: Say) -> None:
    ahead = (datetime.now(UTC) - moment(welcome.server_time)).total_seconds()
    if abs(ahead) > CLOCK_WARNING:
        said = "ahead of" if ahead > 0 else "behind"
        say(f"The clock of this host is {abs(ahead):.0f} seconds {said} the server's. Synchronize the clocks.")


def _pause(failures: int) -> float:
    """Return the seconds to wait after failures in a row: twice as long each time, and different for each agent."""
    return min(_LONGEST_PAUSE, _FIRST_PAUSE * 2.0 ** min(failures, 10)) * random.uniform(0.5, 1.0)  # noqa: S311


def _clock() -> float:
    """Return seconds that only increase, also while the machine is suspended."""
    return time.clock_gettime(time.CLOCK_BOOTTIME)
