"""What a lease uses of its host, as counters that one short call reads there."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import asdict, dataclass, field
from typing import Any, Literal

from interfaces.command.contract import Command
from interfaces.command.shelljobs import processor_time
from interfaces.errors import InterfaceError

Scope = Literal["machine", "cgroup", "processes"]
"""What is counted: the whole machine, a control group of the lease's own, or the lease's processes."""

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
    """One process: `parent` is its parent's number, `seconds` its processor time with that of reaped children."""

    parent: int
    seconds: float


@dataclass(frozen=True, kw_only=True)
class Sample:
    """Counters of one moment. `memory` in bytes; `network` in bytes (in, out), None where nobody counts them."""

    scope: Scope
    boot: str = ""
    seconds: float | None = None
    """Processor seconds since the counter began; of processes their `processes` and `jobs` tell."""
    memory: int | None = None
    network: tuple[int, int] | None = None
    processes: Mapping[str, Process] = field(default_factory=dict)
    """By number and start time."""
    jobs: Mapping[str, float] = field(default_factory=dict)
    """Processor seconds of jobs that are over, by number and start time of their first process."""

    def to_json(self) -> dict[str, Any]:
        """As it is kept."""
        return asdict(self)

    @classmethod
    def from_json(cls, kept: Mapping[str, Any]) -> Sample:
        """What `to_json` wrote."""
        network = kept.get("network")
        processes = {name: Process(**one) for name, one in kept.get("processes", {}).items()}
        given = {**kept, "processes": processes, "network": None if network is None else (network[0], network[1])}
        return cls(**given)


def read(command: Command, *, lease: str, machine: bool, shared: bool, jobs: str = ".drydock/jobs") -> Sample:
    """The counters of now, in one call. Raises what `Command.run` raises, InterfaceError for an answer that is none.

    `machine`: the lease holds the whole machine alone. `shared`: its account is others' account too.
    """
    words = ["/bin/sh", "-c", METER, "sh", jobs, lease, "machine" if machine else "", "shared" if shared else ""]
    said = command.check(words, timeout=_TIMEOUT, max_output=_LONGEST)
    if said.truncated:
        raise InterfaceError("The host said more about its processes than fits.")
    return parse(said.text)


def parse(said: str) -> Sample:
    """What the script said. Lines that are none of its own are passed over. Raises InterfaceError without its first."""
    lines = [line.split() for line in said.splitlines() if line.strip()]
    host = next((line for line in lines if line[0] == "host" and len(line) == 4), None)
    if host is None:
        raise InterfaceError("The host did not say what the lease uses.")
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
    """Processor seconds that the machine worked: user, nice, system, interrupts; neither idle, waiting nor stolen."""
    found = [_number(word) or 0 for word in stat[2:]]
    return sum(found[place] for place in (0, 1, 2, 5, 6) if place < len(found)) / ticks


def _in_use(named: Mapping[str, list[str]]) -> int | None:
    total, free = (_number((named.get(name) or ["", ""])[1]) for name in ("MemTotal:", "MemAvailable:"))
    return None if total is None or free is None else max(0, total - free) << 10


def _network(lines: list[list[str]]) -> tuple[int, int] | None:
    """Bytes in and out of all interfaces; a colon may stand right before the first number."""
    found = [" ".join(line[1:]).replace(":", " ").split() for line in lines if line[0] == "net"]
    counted = [(_number(one[1]) or 0, _number(one[9]) or 0) for one in found if len(one) >= 10]
    return (sum(a for a, _ in counted), sum(b for _, b in counted)) if counted else None
