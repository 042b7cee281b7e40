"""Serial over LAN: the console of a machine as packets of an IPMI session (IPMI 2.0, chapters 15 and 24)."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING

from blueprints.bmc.errors import BmcAnswerInvalid, BmcError, BmcLacks, BmcRefused
from drydock.core import clock
from interfaces.console.contract import LARGEST_READ, Line
from interfaces.deadline import Deadline
from interfaces.errors import ConsoleBusy, ConsoleClosed

if TYPE_CHECKING:
    from blueprints.bmc.ipmi_client import Client

_APP, _ACTIVATE, _DEACTIVATE, _INSTANCE, _DEVICE_ID = 6, 0x48, 0x49, 0x4B, 1
_FIRST = (1, 1)
"""Serial over LAN, first instance."""
_ENCRYPTED = 0xC0
"""The packets are encrypted and authenticated."""
_ACTIVE = 0x80
_REFUSED = {
    0x81: "serial over LAN is disabled",
    0x82: "it has as many consoles open as it can",
    0x83: "it cannot encrypt the console",
    0x84: "it cannot open the console without encryption",
}
_NACK, _UNAVAILABLE, _DEACTIVATING = 0x40, 0x20, 0x10
_ALIVE_EVERY = 20.0
"""Seconds between two requests that keep the session alive; BMCs end it after 60 seconds of silence."""
_PATIENCE = 10.0
"""Seconds within which the BMC must answer such a request."""
_AGAIN, _MOST_TRIES = 1.0, 8
"""Seconds after which a packet is repeated, and how often it is sent."""
_MOST_HELD = 64 << 10
"""Bytes that are received but not read, from which on packets are not acknowledged, so that the BMC waits."""
_PORT = 623


class SolLine(Line):
    """The serial console of a machine over the session of its BMC."""

    def __init__(self, client: Client, deadline: Deadline, *, take: bool) -> None:
        self._client = client
        self._received = bytearray()
        self._lost = ""
        self._their_number = self._their_length = 0
        self._our_number, self._tries = 0, 0
        self._sent, self._sent_at = b"", 0.0
        self._alive_at = clock.monotonic()
        client.renew(deadline.remaining)
        self._largest = self._activate(take)
        client.receive_serial(self._packet)

    def read(self, wait: float) -> bytes:
        """Return what the machine prints within `wait` seconds.

        Repeats what the BMC has not acknowledged, and keeps the session alive. Raises ConsoleClosed, BmcError.
        """
        self._client.renew(_PATIENCE)
        self._repeat()
        if clock.monotonic() - self._alive_at >= _ALIVE_EVERY:
            self._keep_alive()
        until = clock.monotonic() + wait
        while not self._received and not self._lost and (left := until - clock.monotonic()) > 0:
            self._client.wait(min(left, _AGAIN))
            self._repeat()
        found = bytes(self._received[:LARGEST_READ])
        del self._received[:LARGEST_READ]
        if not found and self._lost:
            raise ConsoleClosed(self._lost)
        return found

    def write(self, content: bytes) -> int:
        """Send one packet. Returns 0 while the BMC has not acknowledged the last one."""
        if self._lost:
            raise ConsoleClosed(self._lost)
        if self._sent or not content:
            return 0
        part = content[: self._largest]
        self._send(part)
        return len(part)

    def close(self) -> None:
        """Release the console at the BMC. Never raises."""
        with contextlib.suppress(Exception):
            self._client.receive_serial(None)
            self._client.renew(2.0)
            if not self._lost:
                self._client.ask(_APP, _DEACTIVATE, [*_FIRST, 0, 0, 0, 0])

    def _activate(self, take: bool) -> int:
        """Open the console, and return the largest number of bytes that the BMC takes in a packet."""
        request = [*_FIRST, _ENCRYPTED, 0, 0, 0]
        try:
            answer = self._client.ask(_APP, _ACTIVATE, request)
        except BmcRefused as error:
            if getattr(error, "completion", 0) != _ACTIVE or not take:
                raise _refusal(error) from None
            self._client.ask(_APP, _DEACTIVATE, [*_FIRST, 0, 0, 0, 0])
            try:
                answer = self._client.ask(_APP, _ACTIVATE, request)
            except BmcRefused as again:
                raise _refusal(again) from None
        if len(answer) < 10:
            raise BmcAnswerInvalid("The BMC's answer to the request for a console is cut off.")
        # Some BMCs exchange the bytes of the port, and one behind a forwarded port names its own.
        ports = {int.from_bytes(answer[8:10], "little"), int.from_bytes(answer[8:10], "big")}
        if not ports & {_PORT, self._client.port}:
            raise BmcLacks(f"The BMC offers the console at another port ({min(ports)}) than IPMI's.")
        return max(1, min(int.from_bytes(answer[4:6], "little") - 4, 200))

    # What the BMC sends

    def _packet(self, packet: bytes) -> None:
        """Take a packet: bytes of the console, an acknowledgement, or both."""
        if len(packet) < 4:
            return
        number, acknowledged, count, status = packet[0] & 0xF, packet[1] & 0xF, packet[2], packet[3]
        if status & _DEACTIVATING:
            self._lost = self._lost or "The BMC ended the session of the console."
        if number:
            self._take(number, packet[4:])
        if self._sent and acknowledged == self._our_number:
            self._acknowledged(count, status)

    def _take(self, number: int, content: bytes) -> None:
        if len(self._received) > _MOST_HELD:
            return
        # A repeated packet may have more bytes than before.
        known = self._their_length if number == self._their_number else 0
        self._received += content[known:]
        self._their_number, self._their_length = number, len(content)
        self._client.send_serial(bytes([0, number, len(content), 0]))

    def _acknowledged(self, count: int, status: int) -> None:
        if status & _UNAVAILABLE:  # the machine is off; a serial line would lose the bytes too
            rest = b""
        elif status & _NACK or count < len(self._sent):
            rest = self._sent[count:]
        else:
            rest = b""
        self._sent = b""
        if rest:
            self._send(rest)

    # What is sent to the BMC

    def _send(self, part: bytes) -> None:
        self._our_number = self._our_number % 15 + 1
        self._sent, self._tries = part, 0
        self._put()

    def _put(self) -> None:
        self._tries += 1
        self._sent_at = clock.monotonic()
        self._client.send_serial(bytes([self._our_number, 0, 0, 0]) + self._sent)

    def _repeat(self) -> None:
        """Send the last packet again if it was not acknowledged for a while."""
        if not self._sent or clock.monotonic() - self._sent_at < _AGAIN:
            return
        if self._tries >= _MOST_TRIES:
            self._lost = self._lost or "The BMC no longer takes what is typed."
            return
        self._put()

    def _keep_alive(self) -> None:
        """Ask the BMC whether the console is still ours."""
        self._alive_at = clock.monotonic()
        try:
            answer = self._client.ask(_APP, _INSTANCE, _FIRST)
        except (BmcLacks, BmcRefused):
            self._client.ask(_APP, _DEVICE_ID)
            return
        owner = int.from_bytes(answer[:4], "little")
        if len(answer) >= 4 and owner != self._client.session_id:
            self._lost = self._lost or "Another session took the console over at the BMC."


def _refusal(error: BmcRefused) -> ConsoleBusy | BmcError:
    code = getattr(error, "completion", 0)
    if code == _ACTIVE:
        return ConsoleBusy("Somebody else uses the console at the BMC.", hint="Attach with --take to end that session.")
    return BmcLacks(f"The BMC does not open the console: {_REFUSED[code]}.") if code in _REFUSED else error
