"""Bounds on what a process of this machine and all that come from it may take.

They hold before the process reads its first line of input. The limits are set by its own shell, because for a process
of another account that takes a capability which root in a container often lacks.
"""

from __future__ import annotations

import resource
from pathlib import Path

from interfaces.endpoints import LocalEndpoint
from interfaces.errors import NotStarted


def limiting(endpoint: LocalEndpoint) -> str:
    """What the shell of a new process does first; it ends where a limit cannot be set."""
    lines = []
    if endpoint.open_files:
        _, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        most = endpoint.open_files if hard == resource.RLIM_INFINITY else min(hard, endpoint.open_files)
        lines.append(f"ulimit -n {most} || exit 125; ")
    if endpoint.processes:
        # For dash and ash it is -p; bash has another limit under that name, which cannot be changed.
        lines.append(f"ulimit -p {endpoint.processes} 2>/dev/null || ulimit -u {endpoint.processes} || exit 125; ")
    return "".join(lines)


def join(pid: int, endpoint: LocalEndpoint) -> None:
    """Put the process into the control group of its endpoint. Raises NotStarted when that is gone."""
    if not endpoint.cgroup:
        return
    try:
        (Path(endpoint.cgroup) / "cgroup.procs").write_text(str(pid))
    except OSError as error:
        raise NotStarted(f"The bounds of the lease cannot be set: {error}.") from error
