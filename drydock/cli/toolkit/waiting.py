"""Wait for leases, with a live display on a terminal or one line for each change in a pipe."""

from __future__ import annotations

import contextlib
import sys
from collections.abc import Callable, Iterator, Sequence
from typing import TYPE_CHECKING, Any

from drydock.cli.toolkit import output
from drydock.core import clock
from drydock.core.errors import TimedOut
from drydock.core.units import in_words
from drydock_client.errors import LeaseFailed, NoWorker
from drydock_client.leases import reached

if TYPE_CHECKING:
    from drydock_client.protocol import Attendance, Client
    from drydock_client.values import LeaseInfo, Progress


Show = Callable[[Sequence["LeaseInfo"], bool], None]

QUICKEST, SLOWEST = 0.05, 0.5


def until_active(
    client: Client, ids: Sequence[int], attended: Attendance, *, limit: float | None, quiet: bool = False
) -> list[LeaseInfo]:
    """Wait until all leases are active, and return them.

    Raises LeaseFailed, TimedOut, NoWorker (on timeout without a worker).
    """
    with display(quiet) as show:
        return _wait(client, ids, attended, show, limit, _all_active)


def until_begun(
    client: Client, ids: Sequence[int], attended: Attendance, *, limit: float | None, quiet: bool = False
) -> list[LeaseInfo]:  # fmt: skip
    """Wait until no lease is pending any more, and return the leases. Leases with a workload may have ended already.

    Raises what `until_active` raises, and LeaseFailed if a lease broke before it was active.
    """

    def begun(infos: Sequence[LeaseInfo]) -> bool:
        _all_active([info for info in infos if info.active_at is None])
        return all(info.active_at is not None for info in infos)

    with display(quiet) as show:
        return _wait(client, ids, attended, show, limit, begun)


def until_reached(
    client: Client, ids: Sequence[int], attended: Attendance, wanted: str, *, limit: float | None, quiet: bool
) -> list[LeaseInfo]:  # fmt: skip
    """Wait until each lease is `active`, has `ended` or is in the given state, and return them.

    Raises what `until_active` raises.
    """
    with display(quiet) as show:
        return _wait(client, ids, attended, show, limit, lambda infos: all([reached(one, wanted) for one in infos]))


def until_over(client: Client, ids: Sequence[int], attended: Attendance, *, limit: float, quiet: bool) -> bool:
    """Wait until the leases are cleaned up. Return False on timeout."""
    with display(quiet) as show:
        try:
            _wait(client, ids, attended, show, limit, lambda infos: all(info.over or _kept(info) for info in infos))
        except (TimedOut, NoWorker):
            return False
    return True


def until_ended(client: Client, ids: Sequence[int], attended: Attendance) -> None:
    """Wait until one of the leases is no longer active. Raises LeaseFailed with the reason."""
    while _all_active([client.lease(pk) for pk in ids]):
        attended.look()
        clock.sleep(SLOWEST)


def _kept(info: LeaseInfo) -> bool:
    return info.state == "released" and info.reason == "held"


def _all_active(infos: Sequence[LeaseInfo]) -> bool:
    for info in infos:
        if info.state not in ("pending", "acquired", "active"):
            raise LeaseFailed(
                info.message or f"Lease {info.id} is {info.state}.", state=info.state, reason=info.reason,
                verdicts=info.verdicts,
            )  # fmt: skip
    return all(info.state == "active" for info in infos)


def _wait(
    client: Client, ids: Sequence[int], attended: Attendance, show: Show, limit: float | None,
    done: Callable[[Sequence[LeaseInfo]], bool],
) -> list[LeaseInfo]:  # fmt: skip
    until = None if limit is None else clock.monotonic() + limit
    pause = QUICKEST
    while True:
        infos = [client.lease(pk) for pk in ids]
        if done(infos):
            show(infos, True)
            return infos
        works = attended.look()
        show(infos, works)
        if until is not None and clock.monotonic() >= until:
            raise _too_late(infos, limit or 0, works)
        clock.sleep(pause)
        pause = min(pause * 1.4, SLOWEST)


def _too_late(infos: Sequence[LeaseInfo], limit: float, works: bool) -> Exception:
    slow = next((info for info in infos if info.state != "active"), infos[0])
    if not works:
        return NoWorker(
            f"Lease {slow.id} is {slow.state}, and no worker is running.", hint="Start a worker: drydock worker"
        )
    return TimedOut(f"Lease {slow.id} is still {slow.state} after {in_words(limit)}: {slow.message}")


@contextlib.contextmanager
def display(quiet: bool) -> Iterator[Show]:
    """Show leases while waiting, on standard error, so that standard output stays clean."""
    if quiet:
        yield lambda infos, works: None
    elif sys.stderr.isatty():
        with _live() as show:
            yield show
    else:
        yield _Lines()


class _Lines:
    """Print a line whenever something changes."""

    def __init__(self) -> None:
        self._said: dict[int, str] = {}
        self._worked = True

    def __call__(self, infos: Sequence[LeaseInfo], works: bool) -> None:
        if self._worked and not works:
            output.say(NO_WORKER)
        self._worked = works
        for info in infos:
            line = sentence(info)
            if self._said.get(info.id) != line:
                self._said[info.id] = line
                output.say(line)


NO_WORKER = "no worker is running, so nothing is built or cleaned; start one with `drydock worker`"


@contextlib.contextmanager
def _live() -> Iterator[Show]:
    from rich.console import Group
    from rich.live import Live
    from rich.spinner import Spinner
    from rich.text import Text

    spinner = Spinner("dots")
    with Live(console=output.console(stderr=True), refresh_per_second=8, transient=True) as live:

        def show(infos: Sequence[LeaseInfo], works: bool) -> None:
            spinner.update(text=Text("\n".join(sentence(info) for info in infos)))
            parts: list[Any] = [spinner]
            if not works:
                parts.append(Text(NO_WORKER, style="yellow"))
            if waiting := next((info for info in infos if info.state == "pending" and info.verdicts), None):
                rows = [(v.blueprint, v.answer, v.sentence) for v in waiting.verdicts]
                parts.append(output.rich_table(("blueprint", "answer", "why"), rows))
            live.update(Group(*parts))

        yield show


def sentence(info: LeaseInfo) -> str:
    """Return a one-line description of a lease: state, reason, place in the queue, current step, message."""
    head = f"lease {info.id} {info.state}"
    pieces = [info.reason.replace("_", " ")] if info.reason else []
    if info.place is not None:
        pieces.append(f"{_ordinal(info.place)} in the queue")
    if info.progress is not None:
        pieces += _step(info.progress)
    if info.state == "active" and info.resource_name:
        pieces = [f"on {info.resource_name}"]
    about = ", ".join(pieces)
    told = info.message if info.state != "active" else ""
    return f"{head} ({about}): {told}" if about and told else f"{head} ({about})" if about else f"{head} {told}".strip()


def _step(now: Progress) -> list[str]:
    """Return phrases that describe the current step.

    They are the percentage, the attempt, the person that the step waits for, and the last failure.
    """
    percent = "" if now.percent is None else f" {now.percent} %"
    pieces = [f"{now.phase}: {now.step}{percent}"] if now.step else []
    if now.attempt > 1:
        pieces.append(f"attempt {now.attempt}" + (f" of {now.attempts}" if now.attempts else ""))
    if now.waits_for == "operator":
        pieces.append(f"waits for {now.who}: {now.task}")
    elif now.failure:
        pieces.append(f"the last attempt failed: {now.failure}")
    return pieces


def _ordinal(n: int) -> str:
    ending = "th" if 10 <= n % 100 <= 20 else {1: "st", 2: "nd", 3: "rd"}.get(n % 10, "th")
    return f"{n}{ending}"
