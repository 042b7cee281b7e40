"""Workloads in the shell: asked for with a lease, followed to their end, told of."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any

from drydock.cli import output, waiting
from drydock.cli.errand import Errand
from drydock.cli.exits import REFUSED
from drydock.core import clock
from drydock.core.errors import DrydockError, InvalidRequest

if TYPE_CHECKING:
    from leases.client import Client, LeaseInfo, WorkloadInfo
    from leases.client.protocol import Attendance

_EVERY = 0.5


def workload(
    line: str | None, image: str, command: Sequence[str], cwd: str, env: dict[str, str], *, stdin: bool
) -> dict[str, Any] | None:
    """The workload that options of `drydock lease` ask for; None without one. Raises InvalidRequest."""
    if line is None and not image:
        return None
    if line is not None and command:
        raise InvalidRequest("Give --run, or a command after --; the lease does one of them.", field="run")
    if stdin:
        raise InvalidRequest("A workload reads nothing; copy it there, or give a command after --.", field="stdin")
    found = {"command": line if line is not None else list(command) or None, "image": image, "cwd": cwd, "env": env}
    return {name: value for name, value in found.items() if value}


class WorkloadErrand(Errand):
    """A lease that does its work by itself: it is waited for, its output shown, and it has ended then."""

    def run(self, client: Client, attended: Attendance, ask: Callable[[], list[int]]) -> int:
        """Ask, follow to the end; the exit code of the first workload that failed. Anything else releases them."""
        ids: list[int] = []
        try:
            ids = ask()
            infos = waiting.until_begun(client, ids, attended, limit=self.limit, quiet=self.quiet)
            found = [] if self.keep else [follow(client, pk, attended, quiet=self.quiet) for pk in ids]
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
            for one in (one for one in found if one.message and code_of(one)):
                output.say(one.message)
        return next((code for one in found if (code := code_of(one))), 0)

    def _tell_where(self, infos: Sequence[LeaseInfo]) -> None:
        for info in () if self.quiet else infos:
            output.say(f"lease {info.id} works by itself on {info.resource_name}")
            output.say(f"  drydock watch {info.id}")
            output.say(f"  drydock release {info.id}")


def follow(client: Client, lease: int, attended: Attendance, *, quiet: bool) -> WorkloadInfo:
    """Write what a lease's workload says, from its beginning, until it is over. Raises NotFound, and InvalidRequest
    for a lease without one."""
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
            clock.sleep(_EVERY)


def _some(client: Client, job: int, offset: int, shown: output.Stream, *, over: bool) -> tuple[int, int, bool]:
    """Write on from there: the next offset, how many bytes came, and whether that was all. While the workload runs its
    host may be out of reach for a moment; afterwards there is what is kept, or nothing."""
    try:
        part = client.job_output(job, offset=offset)
    except DrydockError:
        return offset, 0, over
    shown.write(part.content)
    return part.next_offset, len(part.content), part.over


def code_of(found: WorkloadInfo) -> int:
    """The exit code that stands for a workload's end: its own where it has one."""
    if found.outcome in ("exited", "signal"):
        return found.exit_code or 0
    return REFUSED


def facts(info: LeaseInfo) -> list[tuple[str, object]]:
    """What `drydock show` tells of workload and use."""
    return [*_workload(info), *_metrics(info)]


def _workload(info: LeaseInfo) -> list[tuple[str, object]]:
    found = info.workload
    if found is None:
        return []
    words = found.command if isinstance(found.command, str) else " ".join(found.command or ())
    does = " ".join(one for one in (found.image, words) if one)
    kept = None if not found.output_size else f"{found.output_kept} of {found.output_size} bytes"
    return [
        ("workload", does if len(does) <= 100 else f"{does[:97]}..."), ("workload is", found.message or found.state),
        ("workload's job", found.job), ("exit code", found.exit_code), ("output kept", kept),
    ]  # fmt: skip


def _metrics(info: LeaseInfo) -> list[tuple[str, object]]:
    used = info.metrics
    if used is None or used.sampled_at is None:
        return []
    moved = None if used.network_in_bytes is None else f"{used.network_in_bytes} in, {used.network_out_bytes} out"
    return [
        ("core-seconds", _rounded(used.cpu_core_seconds)), ("MiB-seconds", _rounded(used.memory_mib_seconds)),
        ("network bytes", moved), ("measured for", f"{used.wall_seconds:.1f} s ({used.scope})"),
        ("measured until", None if used.complete else used.sampled_at),
    ]  # fmt: skip


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 2)
