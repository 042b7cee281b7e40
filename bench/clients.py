"""Client processes that do the same work at the same time, and what they and their database connections used.

Each is `python -m bench.clients OWNER`: it does what a line of its standard input says (the name of a work, how many
times or seconds), and answers with a line.
"""

from __future__ import annotations

import json
import os
import resource
import subprocess
import sys
import time
from collections.abc import Callable
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Self


@dataclass(frozen=True, kw_only=True)
class Round:
    """What clients did together."""

    done: int
    seconds: float
    cpu: float
    """Seconds of CPU of the clients and, where the database is on this machine, of their connections."""
    stamps: tuple[float, ...]
    """When each was done, in seconds from the beginning."""

    @property
    def rate(self) -> float:
        return self.done / self.seconds

    @property
    def cpu_ms(self) -> float:
        """Milliseconds of CPU for one."""
        return self.cpu / self.done * 1000

    def between(self, begin: float, end: float) -> float:
        """How many a second in a part of the time, given as parts of 1."""
        there = sum(1 for stamp in self.stamps if begin <= stamp / self.seconds < end)
        return there / (self.seconds * (end - begin))


class Clients:
    """So many processes; leave the block to end them."""

    def __init__(self, owner: int, number: int) -> None:
        command = [sys.executable, "-m", "bench.clients", str(owner)]
        pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True, "bufsize": 1}
        self._processes = [subprocess.Popen(command, **pipes) for _ in range(number)]
        for process in self._processes:
            _line(process)

    def __enter__(self) -> Self:
        return self

    def __exit__(self, kind: type[BaseException] | None, *_: BaseException | TracebackType | None) -> None:
        for process in self._processes:
            if kind is not None:
                process.kill()
            process.communicate(timeout=60)

    def together(self, work: str, *, times: int = 0, seconds: float = 0.0) -> Round:
        """Do a work so often in each process, or for so long; ten times before, which are not counted."""
        for process in self._processes:
            _tell(process, {"work": work, "times": times, "seconds": seconds})
            _line(process)
        for process in self._processes:
            _tell(process, "go")
        told = [json.loads(_line(process)) for process in self._processes]
        began, ended = min(one["began"] for one in told), max(one["ended"] for one in told)
        stamps = tuple(stamp - began for one in told for stamp in one["stamps"])
        return Round(done=len(stamps), seconds=ended - began, cpu=sum(one["cpu"] for one in told), stamps=stamps)


def _tell(process: subprocess.Popen[str], what: Any) -> None:
    assert process.stdin is not None
    process.stdin.write(json.dumps(what) + "\n")
    process.stdin.flush()


def _line(process: subprocess.Popen[str]) -> str:
    assert process.stdout is not None
    if not (line := process.stdout.readline()):
        raise RuntimeError(f"A client of the bench has ended with status {process.wait(30)}.")
    return line


def _works(owner: int) -> dict[str, Callable[[], tuple[Callable[[], object], list[int]]]]:
    """Each makes a work and says which database processes do it with us."""
    from bench import floor
    from bench.installation import cycle

    def ours() -> tuple[Callable[[], object], list[int]]:
        from leases.engine.core.database import rows

        return cycle(owner), [int(rows("SELECT pg_backend_pid()")[0][0])]

    return {"ours": ours, "floor": lambda: floor.work(floor.Each), "tight": lambda: floor.work(floor.Tight)}


def _do(work: Callable[[], object], backends: list[int], times: int, seconds: float) -> dict[str, Any]:
    for _ in range(10):
        work()
    print("ready", flush=True)
    sys.stdin.readline()
    stamps: list[float] = []
    began, cpu = time.time(), cpu_of(backends)
    end = began + seconds
    while len(stamps) < times or time.time() < end:
        work()
        stamps.append(time.time())
    return {"began": began, "ended": time.time(), "cpu": cpu_of(backends) - cpu, "stamps": stamps}


def cpu_of(backends: list[int]) -> float:
    """CPU seconds of this process and of those processes of the database."""
    import psutil

    used = resource.getrusage(resource.RUSAGE_SELF)
    there = [psutil.Process(pid) for pid in backends if psutil.pid_exists(pid)]
    times = [process.cpu_times() for process in there if process.name().startswith("postgres")]
    return used.ru_utime + used.ru_stime + sum(float(one.user) + float(one.system) for one in times)


def main() -> None:
    import django

    os.environ.setdefault("DJANGO_SETTINGS_MODULE", "drydock.settings")
    django.setup()
    works = _works(int(sys.argv[1]))
    made: dict[str, Any] = {}
    print("started", flush=True)
    for line in sys.stdin:
        asked = json.loads(line)
        name = asked["work"]
        made[name] = made.get(name) or works[name]()
        print(json.dumps(_do(*made[name], asked["times"], asked["seconds"])), flush=True)


if __name__ == "__main__":
    main()
