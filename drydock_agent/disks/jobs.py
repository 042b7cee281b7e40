"""Detached jobs: hours of work that outlive the SSH session that started them, and are found again by their id.

A job is a process in a session of its own. It holds a lock on a file of its folder for as long as it lives, so its
death is noticed whatever its process id is used for afterwards. The folder ends with the boot.
"""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import re
import shutil
import signal
import threading
import time
import traceback
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from pathlib import Path
from typing import Any

from drydock_agent.disks.errors import DiskError
from drydock_agent.disks.machine import Machine
from drydock_agent.messages import timestamp

_ID = re.compile(r"\A[A-Za-z0-9][A-Za-z0-9._-]{0,99}\Z")
_STATE, _LOCK, _DIGEST, _LOG, _STOPPED = "state.json", "lock", "request.sha256", "log", "stopped"
_PAUSE = 0.5
"""Seconds between two reports that are stored."""
_KEPT = 100
"""Ended jobs whose outcome is kept."""
_STOP_SECONDS = 10.0

Work = Callable[["Journal"], dict[str, Any]]


class Jobs:
    """The jobs of a machine since it booted."""

    def __init__(self, machine: Machine) -> None:
        self._machine, self._folder = machine, machine.state / "jobs"

    def start(self, id: str, digest: str, prepare: Callable[[], Work]) -> dict[str, Any]:
        """Start a job, unless it was started before. Return its state.

        `prepare` checks the request and returns the work; it is called only if the job is new. Raises DiskError if
        another request was started under this id, or if another job is at work on the disks.
        """
        self._check(id)
        self._folder.mkdir(mode=0o700, parents=True, exist_ok=True)
        with _locked(self._folder / ".starting"):
            if (self._folder / id).exists():
                if _text(self._folder / id / _DIGEST) != digest:
                    raise DiskError("conflict", f"Job {id} was started with another request. Choose another id.")
                return self.show(id)
            work = prepare()
            self._prune()
            with self._exclusive(id) as claim:
                self._launch(id, digest, work, claim)
        return self.show(id)

    def show(self, id: str) -> dict[str, Any]:
        """Return the state of a job: running, done, failed, or unknown if this boot did not start it."""
        self._check(id)
        folder = self._folder / id
        # The lock is asked first: a job that ends in between has stored its outcome by then.
        alive = _is_locked(folder / _LOCK)
        stored = _document(folder / _STATE)
        if stored is None:
            if folder.exists():
                return _died({"id": id, "percent": 0, "started_at": ""}, folder)
            return {
                "id": id, "state": "unknown", "percent": 0, "started_at": "", "ended_at": "",
                "sentence": "This machine has not started such a job since it booted.",
            }  # fmt: skip
        if stored["state"] == "running" and not alive:
            return _died(stored, folder)
        return _shown(stored)

    def stop(self, id: str) -> bool:
        """End the processes of a job. Return whether none is left."""
        self._check(id)
        folder = self._folder / id
        until = time.monotonic() + _STOP_SECONDS
        stored = _document(folder / _STATE) or {}
        if _is_locked(folder / _LOCK):
            (folder / _STOPPED).touch()
        while (members := _members(stored.get("pid", 0), stored.get("ticks", ""))) or _is_locked(folder / _LOCK):
            for one in members:
                with contextlib.suppress(ProcessLookupError):
                    os.kill(one, signal.SIGKILL)
            if time.monotonic() > until:
                return False
            time.sleep(0.05)
        return True

    def _check(self, id: str) -> None:
        if not _ID.match(id):
            raise DiskError(
                "bad_request", f"{id[:100]!r} is not a job id: 1 to 100 letters, digits, dots, '_' and '-'."
            )

    @contextlib.contextmanager
    def _exclusive(self, id: str) -> Iterator[int]:
        """Claim the disks for a job. Yield the file descriptor of the claim, which the job keeps."""
        path = self._folder / ".working"
        handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
        try:
            try:
                fcntl.flock(handle, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                other = os.pread(handle, 200, 0).decode("utf-8", "replace")
                raise DiskError("busy", f"Job {other} is at work on the disks. Wait for it, or stop it.") from None
            os.ftruncate(handle, 0)
            os.pwrite(handle, id.encode(), 0)
            yield handle
        finally:
            os.close(handle)

    def _launch(self, id: str, digest: str, work: Work, claim: int) -> None:
        folder, new = self._folder / id, self._folder / f".new-{id}"
        shutil.rmtree(new, ignore_errors=True)
        new.mkdir(mode=0o700)
        (new / _DIGEST).write_text(digest)
        journal = Journal(id, folder)
        lock = os.open(new / _LOCK, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(lock, fcntl.LOCK_EX)
            new.rename(folder)
            ready, told = os.pipe()
            if os.fork() == 0:
                # Tools keep the claim as well, so that none of them is at work beside the next job.
                self._machine.inherited = (claim,)
                _become_job(journal, work, keep=(lock, claim), told=told)
            os.close(told)
            os.read(ready, 1)  # until the job has stored its process id, or died
            os.close(ready)
        finally:
            os.close(lock)

    def _prune(self) -> None:
        """Forget the oldest ended jobs."""
        folders = [one for one in self._folder.iterdir() if _ID.match(one.name)]
        ended = [one for one in folders if not _is_locked(one / _LOCK)]
        for one in sorted(ended, key=lambda one: one.stat().st_mtime)[:-_KEPT]:
            shutil.rmtree(one, ignore_errors=True)


class Journal:
    """The stored state of a job."""

    def __init__(self, id: str, folder: Path) -> None:
        self._folder = folder
        self._state: dict[str, Any] = {
            "id": id, "state": "running", "percent": 0, "sentence": "The job has started.",
            "started_at": timestamp(datetime.now(UTC)), "ended_at": "", "pid": 0, "ticks": "",
        }  # fmt: skip
        self._lock, self._ended = threading.Lock(), threading.Event()
        self._is_stored = True

    def begin(self) -> None:
        """Store that this process carries out the job, and from now on what it reports."""
        self._store(pid=os.getpid(), ticks=_ticks(os.getpid()))
        threading.Thread(target=self._follow, daemon=True).start()

    def report(self, percent: float, sentence: str) -> None:
        """Say how far the job is. The percent never falls. It is stored a moment later."""
        with self._lock:
            percent = max(int(percent), self._state["percent"])
            self._state |= {"percent": min(99, percent), "sentence": sentence}
            self._is_stored = False

    def done(self, result: dict[str, Any]) -> None:
        """Store the result of the job."""
        self._end(state="done", percent=100, sentence="The job is done.", result=result)

    def failed(self, error: DiskError) -> None:
        """Store why the job failed."""
        self._end(state="failed", sentence=error.message, error=error.to_json())

    def _follow(self) -> None:
        while not self._ended.wait(_PAUSE):
            if not self._is_stored:
                self._store()

    def _end(self, **fields: Any) -> None:
        self._ended.set()
        self._store(**fields, ended_at=timestamp(datetime.now(UTC)))

    def _store(self, **fields: Any) -> None:
        with self._lock:
            if "ended_at" not in fields and self._state["ended_at"]:
                return
            self._state |= fields
            self._is_stored = True
            new = self._folder / f"{_STATE}.new"
            new.write_text(json.dumps(self._state))
            new.replace(self._folder / _STATE)


def _become_job(journal: Journal, work: Work, *, keep: tuple[int, ...], told: int) -> None:
    """Carry out a job in this process, which has just been forked, and end it."""
    code = 1
    try:
        os.setsid()
        os.chdir("/")
        os.umask(0o077)
        _redirect(journal._folder / _LOG, (*keep, told))
        for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGPIPE):
            signal.signal(number, signal.SIG_DFL if number == signal.SIGTERM else signal.SIG_IGN)
        journal.begin()
        os.close(told)
        try:
            journal.done(work(journal))
            code = 0
        except DiskError as error:
            journal.failed(error)
        except Exception as error:
            traceback.print_exc()
            journal.failed(DiskError("internal", f"The job ended with {type(error).__name__}: {str(error)[:300]}."))
    except BaseException:
        traceback.print_exc()
    finally:
        os._exit(code)


def _redirect(log: Path, keep: tuple[int, ...]) -> None:
    """Detach standard input and output, and close every other file of the program that started the job."""
    null = os.open(os.devnull, os.O_RDONLY)
    output = os.open(log, os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_NOFOLLOW, 0o600)
    for handle, number in ((null, 0), (output, 1), (output, 2)):
        os.dup2(handle, number)
    for number in sorted(int(one) for one in os.listdir("/proc/self/fd")):
        if number > 2 and number not in keep:
            with contextlib.suppress(OSError):
                os.close(number)


def _shown(stored: dict[str, Any]) -> dict[str, Any]:
    return {name: one for name, one in stored.items() if name not in ("pid", "ticks")}


def _died(stored: dict[str, Any], folder: Path) -> dict[str, Any]:
    if (folder / _STOPPED).exists():
        error = DiskError("stopped", "The job was stopped.")
    else:
        error = DiskError("died", "The process of the job ended before the job was done.")
    return _shown(stored) | {"state": "failed", "ended_at": "", "sentence": error.message, "error": error.to_json()}


@contextlib.contextmanager
def _locked(path: Path) -> Iterator[None]:
    handle = os.open(path, os.O_RDWR | os.O_CREAT | os.O_NOFOLLOW | os.O_CLOEXEC, 0o600)
    try:
        fcntl.flock(handle, fcntl.LOCK_EX)
        yield
    finally:
        os.close(handle)


def _is_locked(path: Path) -> bool:
    """Return whether a job holds a lock. Those who look at the same time do not disturb each other."""
    try:
        handle = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_CLOEXEC)
    except OSError:
        return False
    try:
        fcntl.flock(handle, fcntl.LOCK_SH | fcntl.LOCK_NB)
    except BlockingIOError:
        return True
    finally:
        os.close(handle)
    return False


def _document(path: Path) -> dict[str, Any] | None:
    try:
        document = json.loads(_text(path))
    except ValueError:
        return None
    return document if isinstance(document, dict) else None


def _text(path: Path) -> str:
    try:
        return path.read_text()
    except OSError:
        return ""


def _members(session: int, ticks: str) -> list[int]:
    """Return the processes of a session that have not ended.

    The leader started at `ticks`. The kernel gives the number of a session to no process while the session has members,
    so if a process with another start has it, the session is over.
    """
    if session <= 1 or _ticks(session) not in ("", ticks):
        return []
    numbers = [int(name) for name in os.listdir("/proc") if name.isdecimal()]
    found = [(one, _stat(one)) for one in numbers]
    return [one for one, words in found if len(words) > 19 and words[3] == str(session) and words[0] not in "ZX"]


def _ticks(pid: int) -> str:
    """Return when a process started, in ticks since the boot, or an empty string if there is none."""
    words = _stat(pid)
    return words[19] if len(words) > 19 else ""


def _stat(pid: int) -> list[str]:
    """Return the fields of /proc/PID/stat from the third on. The second one, the name, may have blanks and brackets."""
    return _text(Path(f"/proc/{pid}/stat")).rpartition(")")[2].split()
