"""The part of `drydock lease` between request and release: run a command or follow a workload, and send heartbeats."""

from __future__ import annotations

import sys
import threading
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from drydock.cli.toolkit import output, together, waiting
from drydock.cli.toolkit.exits import REFUSED, undisturbed
from drydock.core import clock
from drydock.core.errors import DrydockError, InvalidRequest
from drydock.core.units import in_words

if TYPE_CHECKING:
    from drydock_client.protocol import Attendance, Client
    from drydock_client.values import Ended, LeaseInfo, WorkloadInfo


_PART_OF_LIMIT = 0.3

"""Interval between two heartbeats, as a fraction of the shortest heartbeat limit."""


class Heartbeat:
    """Send heartbeats from a thread until the `with` block ends."""

    def __init__(self, client: Client, infos: Sequence[LeaseInfo]) -> None:
        limits = {info.id: info.heartbeat_limit.total_seconds() for info in infos if info.heartbeat_limit}
        self._client, self._ids = client, list(limits)
        self.limit = min(limits.values(), default=0.0)
        """Seconds without a heartbeat after which the first lease ends; 0 if no lease does."""
        self._every = self.limit * _PART_OF_LIMIT
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._beat, daemon=True)

    def __enter__(self) -> Heartbeat:
        if self._ids:
            self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._stop.set()
        if self._ids:
            self._thread.join(5)

    def _beat(self) -> None:
        while not self._stop.wait(self._every):
            for pk in self._ids:
                try:
                    self._client.heartbeat(pk)
                except Exception:  # noqa: S112 - the lease's own state tells, and the next may arrive
                    continue
        self._client.close()


CLEANING = 60.0

"""Seconds that a private worker is given to clean up after a lease."""


def seconds(span: str | None) -> float | None:
    """Parse a duration into seconds. Raises InvalidRequest."""
    from drydock.core.units import duration

    return None if span is None else duration(span, field="wait").total_seconds()


class LeaseRun:
    """The life of leases between request and release."""

    def __init__(
        self, *, command: Sequence[str], keep: bool, limit: float | None, quiet: bool, cwd: str, env: dict[str, str],
        stdin: bytes, together: bool = False,
    ) -> None:  # fmt: skip
        """Take the options of the command. `together`: the command runs on the first lease only."""
        self.command, self.keep, self.limit, self.quiet = list(command), keep, limit, quiet
        self.cwd, self.env, self.stdin, self.together = cwd, env, stdin, together

    def run(self, client: Client, attended: Attendance, ask: Callable[[], list[int]]) -> int:
        """Request, wait, work and release. Return the exit code."""
        ids: list[int] = []
        try:
            ids = ask()
            with Heartbeat(client, [client.lease(pk) for pk in ids]) as heart:
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
        env = together.variables(infos) | self.env if self.together else self.env
        return [
            run_command(client, info.id, self.command, env=env, cwd=self.cwd, stdin=self.stdin, quiet=self.quiet)
            for info in (infos[:1] if self.together else infos)
        ]

    def _tell_heartbeat(self, heart: Heartbeat) -> None:
        if heart.limit and not self.quiet and not self.keep:
            output.say(f"released when this program ends, or {in_words(heart.limit)} after it was killed")

    def _hold(self, client: Client, attended: Attendance, infos: Sequence[LeaseInfo]) -> list[Ended]:
        """Hold the leases until a signal arrives or the leases end."""
        self._tell_how(infos, held=True)
        waiting.until_ended(client, [info.id for info in infos], attended)
        return []

    def _release_after_all(self, client: Client, attended: Attendance, ids: Sequence[int]) -> None:
        """Release the leases after an error, a timeout or a signal, and print what became of the request."""
        numbers = " ".join(map(str, ids))
        try:
            self._release(client, attended, ids)
        except Exception as error:
            output.say(f"lease {numbers} could not be released ({error}); release it later: drydock release {numbers}")
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
                    output.say(
                        "cleaning has not finished; it continues with the next command that waits, or with `make up`"
                    )

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
            if "dpu_services" in info.interfaces:
                output.say(f"  drydock dpu services list {info.id}")
            output.say("  Ctrl-C releases it" if held else f"  drydock release {info.id}")


def run_command(
    client: Client, lease_id: int, command: Sequence[str], *, env: dict[str, str], cwd: str, stdin: bytes, quiet: bool,
    timeout: float | None = None,
) -> Ended:  # fmt: skip
    """Run a command and write its output as it comes, or keep the output if `quiet` is true."""

    def put(stream: str, content: bytes) -> None:
        target = sys.stdout.buffer if stream == "stdout" else sys.stderr.buffer
        target.write(content)
        target.flush()

    return client.run(
        lease_id, command, env=env, cwd=cwd, stdin=stdin, timeout=timeout or 86_400.0 * 365,
        on_output=None if quiet else put,
    )  # fmt: skip


_POLL_SECONDS = 0.5


def requested_workload(
    line: str | None, container: dict[str, Any], command: Sequence[str], cwd: str, env: dict[str, str], *, stdin: bool
) -> dict[str, Any] | None:
    """Return the workload requested by options of `drydock lease`, or None if there is none. Raises InvalidRequest.

    `container` has the fields of a workload that are for containers only.
    """
    if line is None and not any(container.values()):
        return None
    if line is not None and command:
        raise InvalidRequest("Give either --run or a command after --, not both.", field="run")
    if stdin:
        raise InvalidRequest(
            "A workload cannot read standard input. Copy the file to the lease, or give a command after --.",
            field="stdin",
        )
    found = {"command": line if line is not None else list(command) or None, "cwd": cwd, "env": env} | container
    return {name: value for name, value in found.items() if value}


class WorkloadRun(LeaseRun):
    """A lease with a workload: wait for it, show its output, and end when it ends."""

    def run(self, client: Client, attended: Attendance, ask: Callable[[], list[int]]) -> int:
        """Request the leases and follow them to the end. Return the exit code of the first workload that failed."""
        ids: list[int] = []
        try:
            ids = ask()
            infos = waiting.until_begun(client, ids, attended, limit=self.limit, quiet=self.quiet)
            found = [] if self.keep else [follow_workload(client, pk, attended, quiet=self.quiet) for pk in ids]
        except BaseException:
            self._release_after_all(client, attended, ids)
            raise
        if self.keep:
            self._tell_where(infos)
        else:
            self._release(client, attended, ids)
        if self.quiet:
            output.emit({"leases": [client.lease(pk) for pk in ids], "workloads": found})
        else:
            for one in (one for one in found if one.message and workload_exit_code(one)):
                output.say(one.message)
        return next((code for one in found if (code := workload_exit_code(one))), 0)

    def _tell_where(self, infos: Sequence[LeaseInfo]) -> None:
        for info in () if self.quiet else infos:
            output.say(f"lease {info.id} runs its workload on {info.resource_name}")
            output.say(f"  drydock watch {info.id}")
            output.say(f"  drydock release {info.id}")


def follow_workload(client: Client, lease: int, attended: Attendance, *, quiet: bool) -> WorkloadInfo:
    """Write the output of a lease's workload, from its beginning to its end.

    Raises NotFound, and InvalidRequest if the lease has no workload.
    """
    offset, done, shown = 0, False, output.Stream()
    while True:
        info = client.lease(lease)
        found = info.workload
        if found is None:
            raise InvalidRequest(f"Lease {lease} has no workload.", field="lease", hint="drydock lease --help")
        over = found.state == "over"
        came = 0
        if found.job is not None and not quiet and not done:
            offset, came, done = _some(client, found.job, offset, shown, over=over)
        if over and (done or quiet or found.job is None):
            shown.end()
            return found
        attended.look()
        if not came:
            clock.sleep(_POLL_SECONDS)


def _some(client: Client, job: int, offset: int, shown: output.Stream, *, over: bool) -> tuple[int, int, bool]:
    """Write the output from `offset`.

    Return the next offset, the number of bytes written, and whether all output has been written.

    If the output cannot be read, return no bytes: while the workload runs, its host may be unreachable for a moment.
    """
    try:
        part = client.job_output(job, offset=offset)
    except DrydockError:
        return offset, 0, over
    shown.write(part.content)
    return part.next_offset, len(part.content), part.over


def workload_exit_code(found: WorkloadInfo) -> int:
    """Return the exit code for a workload that has ended: its own exit code, if it has one."""
    if found.outcome in ("exited", "signal"):
        return found.exit_code or 0
    return REFUSED


def workload_facts(info: LeaseInfo) -> list[tuple[str, object]]:
    """Return the facts that `drydock show` prints about the workload and measured use."""
    return [*_workload(info), *_metrics(info)]


def _workload(info: LeaseInfo) -> list[tuple[str, object]]:
    found = info.workload
    if found is None:
        return []
    words = found.command if isinstance(found.command, str) else " ".join(found.command or ())
    archive = f"archive {found.archive[:12]}" if found.archive else ""
    does = " ".join(one for one in (found.image, archive, words) if one)
    kept = None if not found.output_size else f"{found.output_kept} of {found.output_size} bytes"
    return [
        ("workload", does if len(does) <= 100 else f"{does[:97]}..."), ("workload is", found.message or found.state),
        ("workload's job", found.job), ("exit code", found.exit_code), ("output kept", kept),
        ("open ports", ", ".join(found.ports) or None), ("runs as", "a systemd unit" if found.unit else None),
    ]  # fmt: skip


def _metrics(info: LeaseInfo) -> list[tuple[str, object]]:
    used = info.metrics
    if used is None or used.sampled_at is None:
        return []
    moved = None if used.network_in_bytes is None else f"{used.network_in_bytes} in, {used.network_out_bytes} out"
    return [
        ("core-seconds", _rounded(used.cpu_core_seconds)), ("MiB-seconds", _rounded(used.memory_mib_seconds)),
        ("MiB at most", used.memory_peak_mib),
        ("network bytes", moved), ("measured for", f"{used.wall_seconds:.1f} s ({used.scope})"),
        ("measured until", None if used.complete else used.sampled_at),
    ]  # fmt: skip


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 2)
