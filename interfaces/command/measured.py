"""What was used between two samples: differences that survive restarts of the host and the end of processes."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace

from interfaces.command.metering import MIB, Process, Sample


@dataclass(frozen=True, kw_only=True)
class Used:
    """What a lease has used so far. None: nobody on its host counts it."""

    cpu_seconds: float | None = None
    """Core-seconds: one processor busy for one second is 1."""
    memory_mib_seconds: float | None = None
    """1 MiB held for one second is 1; between two looks the mean of both counts."""
    network_in: int | None = None
    """Bytes."""
    network_out: int | None = None
    """Bytes."""
    wall_seconds: float = 0.0
    """From the first look to the last."""


def advanced(used: Used, before: Sample | None, now: Sample, seconds: float) -> Used:
    """`used` with what came since `before`, `seconds` ago. Without it `now` is the first look: a machine was used by
    others until then, an account or a group was made for the lease and counts from nothing."""
    span = max(0.0, seconds)
    same = before if before is not None and before.scope == now.scope else None
    if same is None and now.scope == "machine":
        counted = replace(
            used, cpu_seconds=used.cpu_seconds or 0.0, memory_mib_seconds=used.memory_mib_seconds or 0.0
        )  # fmt: skip
        return _moved(counted, (0, 0) if now.network else None)
    counted = replace(
        used, cpu_seconds=_sum(used.cpu_seconds, _processor(same, now)),
        memory_mib_seconds=_sum(used.memory_mib_seconds, _held(same, now, span)),
        wall_seconds=used.wall_seconds + (span if before is not None else 0.0),
    )  # fmt: skip
    return _moved(counted, _network(same, now))


def _sum(so_far: float | None, more: float | None) -> float | None:
    return so_far if more is None else (so_far or 0.0) + more


def _moved(used: Used, more: tuple[int, int] | None) -> Used:
    if more is None:
        return used
    return replace(used, network_in=(used.network_in or 0) + more[0], network_out=(used.network_out or 0) + more[1])


def _since(before: float | None, now: float, *, again: bool) -> float:
    """A counter that fell, or whose host was started anew, counts from nothing."""
    return now if before is None or again or now < before else now - before


def _processor(before: Sample | None, now: Sample) -> float | None:
    again = before is not None and before.boot != now.boot
    if now.seconds is not None:
        return _since(None if before is None else before.seconds, now.seconds, again=again)
    there = sum(one.seconds for one in now.processes.values()) + sum(now.jobs.values())
    if before is None:
        return there
    known = sum(seconds for root, seconds in before.jobs.items() if root in now.jobs)
    return max(0.0, there - known - (0.0 if again else _accounted(before, now)))


def _accounted(before: Sample, now: Sample) -> float:
    """Of what the processes had used before, the part that is in what is there now: of those still there, of those
    whose ancestors are (who have waited for them), and of those of a job whose end tells it. What else has gone took
    its time along."""
    return sum(
        one.seconds for name, one in before.processes.items()
        if name in now.processes or (root := _root(before.processes, name)) in now.processes or root in now.jobs
    )  # fmt: skip


def _root(processes: Mapping[str, Process], name: str) -> str:
    """The first of its ancestors among the processes."""
    by_number = {one.partition(".")[0]: one for one in processes}
    for _ in processes:
        above = by_number.get(str(processes[name].parent))
        if above is None:
            break
        name = above
    return name


def _held(before: Sample | None, now: Sample, span: float) -> float | None:
    if now.memory is None:
        return None
    mean = now.memory if before is None or before.memory is None else (before.memory + now.memory) / 2
    return mean / MIB * (span if before is not None else 0.0)


def _network(before: Sample | None, now: Sample) -> tuple[int, int] | None:
    if now.network is None:
        return None
    again = before is not None and before.boot != now.boot
    old = (None, None) if before is None or before.network is None else before.network
    into, out = (_since(a, b, again=again) for a, b in zip(old, now.network, strict=True))
    return int(into), int(out)
