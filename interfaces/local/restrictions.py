"""Restrictions on processes on this machine: resource limits, and a bar on gaining privileges.

The limits are in force before the process reads its first line of input. Its own shell sets them, because setting them
for a process of another account takes a capability that root in a container often lacks. Setuid, setgid and file
capabilities of programs have no effect on such a process or its descendants.
"""

from __future__ import annotations

import ctypes
import functools
import os
import resource
import shutil
import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

from interfaces import launch as launching
from interfaces.endpoints import LocalEndpoint
from interfaces.errors import NotStarted


def limiting(endpoint: LocalEndpoint) -> str:
    """Return shell lines with which a new process sets its own limits. The shell exits if a limit cannot be set."""
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
    """Move a process into the control groups of its endpoint and account, before it has read any input.

    Raises NotStarted if the endpoint's group no longer exists.
    """
    if endpoint.cgroup:
        try:
            (Path(endpoint.cgroup) / "cgroup.procs").write_text(str(pid))
        except OSError as error:
            raise NotStarted(f"The limits of the lease cannot be set: {error}.") from error
    if devices := device_group(endpoint.uid):
        try:
            with (devices / "cgroup.procs").open("r+") as opened:
                opened.write(str(pid))
        except FileNotFoundError:
            return  # the account has no devices
        except OSError as error:
            raise NotStarted(f"The lease cannot be limited to its devices: {error}.") from error


def device_group(uid: int) -> Path | None:
    """Return the folder that limits an account to its devices while it exists, or None without such a tree.

    `blueprints.devices` makes it.
    """
    tree = _device_tree()
    return tree / "drydock" / str(uid) if tree and os.geteuid() == 0 else None


@functools.cache
def _device_tree() -> Path | None:
    """Return where the v1 controller of devices is mounted."""
    try:
        lines = Path("/proc/self/mountinfo").read_text().splitlines()
    except OSError:
        return None
    for line in lines:
        place, _, mounted = line.partition(" - ")
        kind, _, options = mounted.split()[:3]
        if kind == "cgroup" and "devices" in options.split(","):
            return Path(place.split()[4])
    return None


def started(endpoint: LocalEndpoint, **given: Any) -> subprocess.Popen[bytes]:
    """Start the shell that reads its script from its input, in a session of its own, with the account of its endpoint.

    The account is set by setpriv if possible. If Python sets it, the fork copies all our page tables, which takes a
    tenth of a second in a process of 200 MiB on some virtual machines.
    """
    command = ["/bin/sh", "-c", f"{limiting(endpoint)}{launching.BOOTSTRAP}"]
    account: dict[str, Any] = {}
    if os.geteuid() == 0 and not _is_ours(endpoint):
        if setpriv := _setpriv():
            command = [setpriv, f"--reuid={endpoint.uid}", f"--regid={endpoint.gid}", "--clear-groups", "--", *command]
        else:
            account = {"user": endpoint.uid, "group": endpoint.gid, "extra_groups": []}
        if (namespace := network_namespace(endpoint.uid)).exists():
            command = _entering(namespace, command, dropped=not account)

    def start() -> subprocess.Popen[bytes]:
        return subprocess.Popen(
            command,
            stdin=subprocess.PIPE,
            bufsize=0,
            cwd="/",
            env={"HOME": endpoint.home, "PATH": launching.CLEAN_PATH, "LANG": "C.UTF-8"},
            start_new_session=True,
            umask=0o022,
            **account,
            **given,
        )

    return start() if endpoint.uid == os.geteuid() else unprivileged(start)


def network_namespace(uid: int) -> Path:
    """Return the file of the network namespace that the processes of an account enter while it exists.

    `blueprints.devices` makes it.
    """
    return Path(f"/run/netns/drydock-{uid}")


def _entering(namespace: Path, command: list[str], *, dropped: bool) -> list[str]:
    """Return a command that enters a network namespace first, while it is still root.

    `dropped` says whether the command itself gives up root. Raises NotStarted if the namespace cannot be entered.
    """
    nsenter = shutil.which("nsenter", path=launching.CLEAN_PATH)
    if nsenter is None or not dropped:
        missing = "setpriv" if nsenter else "nsenter"
        raise NotStarted(
            f"The lease has a network namespace, and this machine has no {missing}, which is needed to enter it."
        )
    return [nsenter, f"--net={namespace}", "--", *command]


def _is_ours(endpoint: LocalEndpoint) -> bool:
    """Return whether the endpoint's account is that of this process, without supplementary groups."""
    return (os.geteuid(), os.getegid()) == (endpoint.uid, endpoint.gid) and {*os.getgroups()} <= {endpoint.gid}


@functools.cache
def _setpriv() -> str:
    """Return the path of a setpriv that can set accounts, such as that of util-linux, or an empty string."""
    found = shutil.which("setpriv", path=launching.CLEAN_PATH)
    if found is None:
        return ""
    tried = [found, "--reuid=0", "--regid=0", "--clear-groups", "--", "/bin/sh", "-c", ":"]
    silent = subprocess.DEVNULL
    return "" if subprocess.call(tried, stdin=silent, stdout=silent, stderr=silent, cwd="/", env={}) else found


_PR_SET_NO_NEW_PRIVS = 38
_Started = TypeVar("_Started")


def unprivileged(start: Callable[[], _Started]) -> _Started:
    """Call `start` in a thread that cannot gain privileges, and return its result.

    Processes that the thread starts cannot gain privileges either.
    """
    outcome: list[_Started | BaseException] = []

    def work() -> None:
        try:
            _no_new_privileges()
            outcome.append(start())
        except BaseException as error:
            outcome.append(error)

    thread = threading.Thread(target=work, name="starting")
    thread.start()
    thread.join()
    (found,) = outcome
    if isinstance(found, BaseException):
        raise found
    return found


def _no_new_privileges() -> None:
    prctl = ctypes.CDLL(None, use_errno=True).prctl
    if prctl(_PR_SET_NO_NEW_PRIVS, *map(ctypes.c_ulong, (1, 0, 0, 0))):
        code = ctypes.get_errno()
        raise NotStarted(f"The process could not be prevented from gaining privileges: {os.strerror(code)}.")
