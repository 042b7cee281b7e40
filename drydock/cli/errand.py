"""What is done with leases between asking and releasing."""

from __future__ import annotations

import sys
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

from drydock.cli import output, waiting
from drydock.cli.beating import Heart
from drydock.cli.signals import undisturbed
from drydock.core.units import in_words

if TYPE_CHECKING:
    from leases.client import Client, Ended, LeaseInfo
    from leases.client.protocol import Attendance

CLEANING = 60.0
"""Seconds a private worker is given to clean what a lease has used."""


def seconds(span: str | None) -> float | None:
    """A span as people write it, in seconds. Raises InvalidRequest."""
    from drydock.core.units import duration

    return None if span is None else duration(span, field="wait").total_seconds()


class Errand:
    """What is done with leases between asking and releasing."""

    def __init__(
        self, *, command: Sequence[str], keep: bool, limit: float | None, quiet: bool, cwd: str, env: dict[str, str],
        stdin: bytes,
    ) -> None:  # fmt: skip
        self.command, self.keep, self.limit, self.quiet = list(command), keep, limit, quiet
        self.cwd, self.env, self.stdin = cwd, env, stdin

    def run(self, client: Client, attended: Attendance, ask: Callable[[], list[int]]) -> int:
        """Ask, wait, work, release; the exit code."""
        ids: list[int] = []
        try:
            ids = ask()
            with Heart(client, [client.lease(pk) for pk in ids]) as heart:
                self._tell_heartbeat(heart)
                infos = waiting.until_active(client, ids, attended, limit=self.limit, quiet=self.quiet)
                ended = self._work(client, attended, infos)
        except BaseException:
            self._release_after_all(client, attended, ids)
            raise
        if self.keep:
            self._tell_how(infos)
        else:
            self._release(client, attended, ids)
        if self.quiet:
            output.emit({"leases": [client.lease(pk) for pk in ids], "ended": ended})
        return next((end.exit_code for end in ended if end.exit_code), 0)

    def _work(self, client: Client, attended: Attendance, infos: Sequence[LeaseInfo]) -> list[Ended]:
        if not self.command:
            return [] if self.keep else self._hold(client, attended, infos)
        return [
            run(client, info.id, self.command, env=self.env, cwd=self.cwd, stdin=self.stdin, quiet=self.quiet)
            for info in infos
        ]

    def _tell_heartbeat(self, heart: Heart) -> None:
        if heart.limit and not self.quiet and not self.keep:
            output.say(f"released when this program ends, or {in_words(heart.limit)} after it was killed")

    def _hold(self, client: Client, attended: Attendance, infos: Sequence[LeaseInfo]) -> list[Ended]:
        """Hold them until somebody ends us, or they end."""
        self._tell_how(infos, held=True)
        waiting.until_ended(client, [info.id for info in infos], attended)
        return []

    def _release_after_all(self, client: Client, attended: Attendance, ids: Sequence[int]) -> None:
        """Release after an error, a timeout or a signal, and say what became of the request."""
        numbers = " ".join(map(str, ids))
        try:
            self._release(client, attended, ids)
        except Exception as error:
            output.say(f"lease {numbers} could not be released ({error}); do it later: drydock release {numbers}")
            return
        if ids and not self.quiet:
            what = "The request was" if len(ids) == 1 else f"All {len(ids)} requests were"
            output.say(f"{what} released.")

    def _release(self, client: Client, attended: Attendance, ids: Sequence[int]) -> None:
        with undisturbed():
            client.close()
            going = [pk for pk in ids if not client.release(pk).over]
            if going and attended.look() and attended.private:
                cleaned = waiting.until_over(client, going, attended, limit=CLEANING, quiet=self.quiet)
                if not cleaned and not self.quiet:
                    output.say("cleaning takes longer; it goes on with the next command that waits, or `make up`")

    def _tell_how(self, infos: Sequence[LeaseInfo], *, held: bool = False) -> None:
        if self.quiet:
            return
        for info in infos:
            until = f" until {output.text(info.until)}" if info.until else ""
            output.say(f"lease {info.id} is active on {info.resource_name}{until}")
            if "command" in info.interfaces:
                output.say(f"  drydock run {info.id} -- COMMAND")
            if "filesystem" in info.interfaces:
                output.say(f"  drydock cp FILE {info.id}:PATH")
            if "httpd" in info.interfaces:
                output.say(f"  drydock httpd publish {info.id} FILE")
            output.say("  Ctrl-C releases it" if held else f"  drydock release {info.id}")


def run(
    client: Client, lease_id: int, command: Sequence[str], *, env: dict[str, str], cwd: str, stdin: bytes, quiet: bool,
    timeout: float | None = None,
) -> Ended:  # fmt: skip
    """Run a command with its output on ours as it comes; kept instead when `quiet`."""

    def put(stream: str, content: bytes) -> None:
        target = sys.stdout.buffer if stream == "stdout" else sys.stderr.buffer
        target.write(content)
        target.flush()

    return client.run(
        lease_id, command, env=env, cwd=cwd, stdin=stdin, timeout=timeout or 86_400.0 * 365,
        on_output=None if quiet else put,
    )  # fmt: skip
