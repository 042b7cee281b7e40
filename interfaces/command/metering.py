"""Measure how much processor time, memory and network traffic a lease uses on its host.

One short call reads the host's counters, and the differences between two samples are added up. Totals survive restarts
of the host and the exit of processes.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field, replace
from typing import Any, Literal

from interfaces.command.contract import Command
from interfaces.command.shell import processor_time
from interfaces.errors import InterfaceError

Scope = Literal["machine", "cgroup", "processes"]
"""The scope of a measurement: the whole machine, the lease's own control group, or the lease's processes."""
_TIMEOUT = 20.0
_LONGEST = 1 << 20
MIB = 1 << 20

# $1 folder of the jobs, $2 name of the lease, $3 `machine` where the lease holds that alone, $4 `shared` where others
# use the account too, so that only processes with the lease's mark in their environment are its own. All is read from
# /proc and /sys with what a shell has; what a host does not show is not said.
METER = r"""
cd -- "$HOME" 2>/dev/null
b=-; [ -r /proc/sys/kernel/random/boot_id ] && read -r b </proc/sys/kernel/random/boot_id
echo "host $b $(getconf CLK_TCK 2>/dev/null || echo 100) $(getconf PAGESIZE 2>/dev/null || echo 4096)"
for f in "$1"/*/usage; do
  [ -f "$f" ] && k=$(readlink "${f%/usage}/claim") || continue
  echo "job $k $(tr '\n' ' ' <"$f")"
done
if [ "$3" = machine ] && [ -r /proc/stat ]; then
  read -r l </proc/stat; echo "stat $l"
  while read -r k v l; do case $k in MemTotal:|MemAvailable:) echo "$k $v";; esac; done </proc/meminfo
  while read -r l; do case $l in lo:*|*'|'*) ;; *) echo "net $l";; esac; done </proc/net/dev
  exit 0
fi
u=$(id -u) c=
while IFS=: read -r n k p; do [ "$n" = 0 ] && c=$p; done 2>/dev/null </proc/self/cgroup
if [ "$4" != shared ]; then
  case $c in
    */"user-$u.slice"|*/"user-$u.slice"/*) c=${c%%"/user-$u.slice"*}/user-$u.slice;;
    */"$2"|*/"$2"/*) c=${c%%"/$2"*}/$2;;
    *) c=;;
  esac
  if [ -n "$c" ] && [ -r "/sys/fs/cgroup$c/cpu.stat" ] && [ -r "/sys/fs/cgroup$c/memory.current" ]; then
    read -r k v <"/sys/fs/cgroup$c/cpu.stat"; read -r m <"/sys/fs/cgroup$c/memory.current"; i=0
    while read -r n l; do [ "$n" = inactive_file ] && i=$l; done <"/sys/fs/cgroup$c/memory.stat"
    echo "cgroup $v $m $i"
  fi
fi
own=$(readlink /proc/self/ns/net) seen=
read -r l </proc/self/stat && set -- "$1" "$2" "$4" ${l##*) } && mine=$7
for d in /proc/[0-9]*; do
  [ -O "$d" ] && { read -r l <"$d/stat"; } 2>/dev/null || continue
  if [ "$3" = shared ]; then grep -qF -- "DRYDOCK_LEASE=$2" "$d/environ" 2>/dev/null || continue; fi
  p=${d##*/}
  set -- "$1" "$2" "$3" ${l##*) }
  case $4 in [ZX]) [ "${21}" -gt 1 ] || continue;; esac
  [ "$7" = "$mine" ] && continue
  echo "process $p.${23} $5 $((${15} + ${16} + ${17} + ${18})) ${25}"
  n=$(readlink "$d/ns/net" 2>/dev/null) || continue
  [ "$n" = "$own" ] && continue
  case "$seen" in *" $n "*) continue;; esac
  seen="$seen $n "
  while read -r l; do case $l in lo:*|*'|'*) ;; *) echo "net $l";; esac; done 2>/dev/null <"$d/net/dev"
done
exit 0
"""


@dataclass(frozen=True, kw_only=True)
class Process:
    """Usage of a process.

    `parent` is the id of the parent process; `seconds` is the processor time, including that of children that it has
    waited for.
    """

    parent: int
    seconds: float


@dataclass(frozen=True, kw_only=True)
class Sample:
    """The counters as they were read at one moment.

    `memory` is in bytes; `network` is (in, out) in bytes, or None if not counted.
    """

    scope: Scope
    boot: str = ""
    seconds: float | None = None
    """Processor seconds since the counter began; None for the scope `processes`, which has `processes` and `jobs`."""
    memory: int | None = None
    peak: int | None = None
    """The most memory in bytes that the control group has had at a time; None if the host does not count it."""
    network: tuple[int, int] | None = None
    processes: Mapping[str, Process] = field(default_factory=dict)
    """Running processes, by process id and start time."""
    jobs: Mapping[str, float] = field(default_factory=dict)
    """Processor seconds of jobs that have ended, by process id and start time of their first process."""

    def to_json(self) -> dict[str, Any]:
        """Return the sample as JSON types, for storage."""
        return asdict(self)

    @classmethod
    def from_json(cls, kept: Mapping[str, Any]) -> Sample:
        """Return the sample that `to_json` stored."""
        network = kept.get("network")
        processes = {name: Process(**one) for name, one in kept.get("processes", {}).items()}
        given = {**kept, "processes": processes, "network": None if network is None else (network[0], network[1])}
        return cls(**given)


def read(command: Command, *, lease: str, machine: bool, shared: bool, jobs: str = ".drydock/jobs") -> Sample:
    """Read the counters in one call. Raises what `Command.run` raises, and InterfaceError for an invalid answer."""
    words = ["/bin/sh", "-c", METER, "sh", jobs, lease, "machine" if machine else "", "shared" if shared else ""]
    said = command.check(words, timeout=_TIMEOUT, max_output=_LONGEST)
    if said.truncated:
        raise InterfaceError("The host's report on its processes is too long.")
    return parse(said.text)


def parse(said: str) -> Sample:
    """Parse the output of the script.

    Skips lines that the script did not write. Raises InterfaceError if the first line of the script is missing.
    """
    lines = [line.split() for line in said.splitlines() if line.strip()]
    host = next((line for line in lines if line[0] == "host" and len(line) == 4), None)
    if host is None:
        raise InterfaceError("The host did not report the lease's usage.")
    ticks, page = _number(host[2]) or 100, _number(host[3]) or 4096
    ended = [line for line in lines if line[0] == "job" and len(line) > 2]
    jobs = {".".join(line[1].split(".")[:2]): processor_time(" ".join(line[2:])) or 0.0 for line in ended}
    common: dict[str, Any] = {"boot": host[1], "jobs": jobs, "network": _network(lines)}
    named = {line[0]: line for line in lines}
    if "stat" in named:
        return Sample(scope="machine", seconds=_busy(named["stat"], ticks), memory=_in_use(named), **common)
    if len(found := named.get("cgroup", [])) == 4:
        spent, memory, inactive = (_number(word) or 0 for word in found[1:])
        return Sample(scope="cgroup", seconds=spent / 1e6, memory=max(0, memory - inactive), **common)
    alive = [line for line in lines if line[0] == "process" and len(line) == 5]
    processes = {
        line[1]: Process(parent=_number(line[2]) or 0, seconds=(_number(line[3]) or 0) / ticks) for line in alive
    }
    return Sample(
        scope="processes", processes=processes, memory=sum((_number(line[4]) or 0) * page for line in alive), **common
    )


def _number(word: str) -> int | None:
    return int(word) if re.fullmatch(r"[0-9]{1,18}", word) else None


def _busy(stat: list[str], ticks: int) -> float:
    """Return the processor seconds of user, nice, system and interrupts, without idle, iowait and steal time."""
    found = [_number(word) or 0 for word in stat[2:]]
    return sum(found[place] for place in (0, 1, 2, 5, 6) if place < len(found)) / ticks


def _in_use(named: Mapping[str, list[str]]) -> int | None:
    total, free = (_number((named.get(name) or ["", ""])[1]) for name in ("MemTotal:", "MemAvailable:"))
    return None if total is None or free is None else max(0, total - free) << 10


def _network(lines: list[list[str]]) -> tuple[int, int] | None:
    """Return the bytes in and out over all interfaces. A colon may directly precede the first number."""
    found = [" ".join(line[1:]).replace(":", " ").split() for line in lines if line[0] == "net"]
    counted = [(_number(one[1]) or 0, _number(one[9]) or 0) for one in found if len(one) >= 10]
    return (sum(a for a, _ in counted), sum(b for _, b in counted)) if counted else None


@dataclass(frozen=True, kw_only=True)
class Used:
    """The usage of a lease so far. A value is None if the host does not count it."""

    cpu_seconds: float | None = None
    """Core-seconds: one processor busy for one second is 1."""
    memory_mib_seconds: float | None = None
    """MiB-seconds: 1 MiB held for one second is 1. For the time between two samples, the mean of both counts."""
    network_in: int | None = None
    """Bytes received."""
    network_out: int | None = None
    """Bytes sent."""
    wall_seconds: float = 0.0
    """Seconds from the first sample to the last."""


def advanced(used: Used, before: Sample | None, now: Sample, seconds: float) -> Used:
    """Return `used` plus the usage between the samples `before` and `now`, which are `seconds` apart.

    If `before` is None, `now` is the first sample. The counters of a machine are counted from that sample on, because
    others used the machine before. The counters of an account or control group are counted in full, because it was
    created for the lease.
    """
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
    return _moved(counted, _network_of(same, now))


def _sum(so_far: float | None, more: float | None) -> float | None:
    return so_far if more is None else (so_far or 0.0) + more


def _moved(used: Used, more: tuple[int, int] | None) -> Used:
    if more is None:
        return used
    return replace(used, network_in=(used.network_in or 0) + more[0], network_out=(used.network_out or 0) + more[1])


def _since(before: float | None, now: float, *, again: bool) -> float:
    """Return by how much a counter grew. If it fell or the host was restarted (`again`), return its whole value."""
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
    """Return how much of the processes' earlier usage is included in the present counters.

    The counters include processes that still exist, processes whose existing ancestors have waited for them, and
    processes of jobs that reported their usage when they ended. All other usage is no longer counted anywhere.
    """
    return sum(
        one.seconds for name, one in before.processes.items()
        if name in now.processes or (root := _root(before.processes, name)) in now.processes or root in now.jobs
    )  # fmt: skip


def _root(processes: Mapping[str, Process], name: str) -> str:
    """Return the topmost ancestor of a process among the given processes."""
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


def _network_of(before: Sample | None, now: Sample) -> tuple[int, int] | None:
    if now.network is None:
        return None
    again = before is not None and before.boot != now.boot
    old = (None, None) if before is None or before.network is None else before.network
    into, out = (_since(a, b, again=again) for a, b in zip(old, now.network, strict=True))
    return int(into), int(out)
