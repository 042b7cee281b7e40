"""A terminal that is attached to a console: keys go to the machine, and what it prints to the screen, unchanged."""

from __future__ import annotations

import base64
import contextlib
import os
import select
import sys
import termios
import threading
import tty
from typing import TYPE_CHECKING, Any, Self

from drydock.cli.toolkit import output
from drydock.core import clock
from drydock.core.errors import Busy, Conflict, DrydockError

if TYPE_CHECKING:
    from drydock_client.protocol import Client
    from drydock_client.values import ConsolePart

_WAIT = 20.0
"""Seconds for which the server waits for output before it answers."""
_PAUSE = 0.1
"""Seconds between two requests if the server cannot wait."""
_APART = 0.05
"""Seconds between two requests of a machine that prints without end, because requests are limited for each user."""
_KEYS = 4096
_HELP = "Attached to the console of lease {lease}. Enter ~ . ends, Enter ~ ~ types ~."


class Escape:
    """Finds the sequence `~.` after a line break in what is typed, as in ssh. `~~` is a `~`."""

    def __init__(self) -> None:
        self._at_start, self._tilde = True, False
        self.ended = False

    def feed(self, typed: bytes) -> bytes:
        """Return the bytes to send. Sets `ended` once the sequence was typed; the rest is left out."""
        sent = bytearray()
        for byte in typed:
            if self._tilde:
                self._tilde = False
                if byte == ord("."):
                    self.ended = True
                    break
                sent += b"~" if byte == ord("~") else bytes([ord("~"), byte])
            elif self._at_start and byte == ord("~"):
                self._tilde = True
                continue
            else:
                sent.append(byte)
            self._at_start = byte in b"\r\n"
        return bytes(sent)


class AttachedTerminal:
    """This terminal, attached to the console of a lease until the user, the server or the machine ends it."""

    def __init__(self, client: Client, lease: int, *, take: bool, read_only: bool) -> None:
        self._client, self._lease, self._read_only = client, lease, read_only
        self._last = client.attach_console(lease, read_only=read_only, take=take)
        self._typed = self._last.typed
        self._over, self._failed = threading.Event(), ""
        self._reader = threading.Thread(target=self._read, name="drydock-console-reader", daemon=True)

    def __enter__(self) -> Self:
        """Return the terminal itself."""
        return self

    def __exit__(self, *_: object) -> None:
        """Detach. A server that cannot be reached ends the session by itself."""
        self._over.set()
        with contextlib.suppress(DrydockError):
            self._client.detach_console(self._lease, session=self._last.session)

    def run(self) -> None:
        """Connect keyboard and screen to the console. Raises DrydockError if the console was closed."""
        with self._raw():  # before the help, so that the terminal does not hold back keys typed after it
            output.aside(_HELP.format(lease=self._lease))
            if not self._read_only and not self._last.writing:
                output.aside(f"{self._last.writer} types at this console; you only read. To type: --take.")
            self._reader.start()
            self._type()
        if self._failed:
            raise Conflict(self._failed)
        output.say("Detached.")

    @contextlib.contextmanager
    def _raw(self) -> Any:
        """Let the terminal pass every key on, and show every byte as it comes."""
        if not sys.stdin.isatty():
            yield
            return
        before = termios.tcgetattr(sys.stdin)
        tty.setraw(sys.stdin)
        try:
            yield
        finally:
            termios.tcsetattr(sys.stdin, termios.TCSADRAIN, before)

    def _type(self) -> None:
        """Send what is typed until an end."""
        escape, keyboard = Escape(), sys.stdin.fileno()
        waits = [keyboard]
        while not self._over.is_set() and not escape.ended:
            if not select.select(waits, [], [], 0.1)[0]:
                continue
            try:
                keys = os.read(keyboard, _KEYS)
            except OSError:  # the terminal was closed
                break
            if not keys and sys.stdin.isatty():
                break
            if not keys:  # a pipe that only waits for the end of the console
                waits = []
            if (sent := escape.feed(keys)) and not self._read_only:
                self._send(sent)
        self._over.set()

    def _send(self, keys: bytes) -> None:
        """Send keys under the next number. Keys that the server refuses are lost, and the user is told why."""
        try:
            self._client.write_console(self._lease, session=self._last.session, sequence=self._typed + 1, content=keys)
            self._typed += 1
        except (Busy, Conflict) as error:
            self._tell(error.message)
        except DrydockError as error:
            self._end(str(error))

    def _read(self) -> None:
        """Show what the machine prints until an end, and tell who types."""
        last = self._last
        try:
            while not self._over.is_set():
                begun = clock.monotonic()
                found = self._client.read_console(
                    self._lease, offset=last.next_offset, session=last.session, revision=last.revision, wait=_WAIT
                )
                self._show(last, found)
                if found.state == "closed":
                    return self._end(found.message)
                if found.writing and not last.writing:
                    self._typed = found.typed
                same = found.next_offset == last.next_offset and found.revision == last.revision
                pause = _PAUSE if same else _APART
                if clock.monotonic() - begun < pause:  # the server cannot wait, or the machine prints without end
                    clock.sleep(pause)
                last = found
        except DrydockError as error:
            self._end(str(error))
        finally:
            self._client.close()  # in process, this thread has a connection to the database of its own

    def _show(self, last: ConsolePart, found: ConsolePart) -> None:
        if found.offset > last.next_offset:
            self._tell(f"{found.offset - last.next_offset} bytes were left out")
        output.raw(base64.b64decode(found.output))
        if last.writing and not found.writing and found.state != "closed":
            self._tell(f"{found.writer or 'somebody'} took the console over; you only read now")
        elif found.writer != last.writer and not found.writing:
            self._tell(f"{found.writer} types now" if found.writer else "nobody types now")

    def _tell(self, said: str) -> None:
        """Write a line between the bytes of the machine."""
        output.aside(f"[drydock: {said}]")

    def _end(self, why: str) -> None:
        if not self._over.is_set():
            self._failed = why or "The console was closed."
            self._over.set()
