"""Run scripts on a host through its control account under one deadline, and convert errors to step answers."""

from __future__ import annotations

import contextlib
import functools
from collections.abc import Callable
from typing import Any

from blueprints.answers import Answer, Failed, Json, Ready, Scope, Wait
from blueprints.contract import Act
from blueprints.hosts import architecture
from blueprints.hostscripts import END_MARKED, END_UID, LOOK, REMOVE_TREE, SWEEP_UID
from blueprints.specs import Spec
from drydock.core import clock
from drydock.core.errors import DrydockError, InvalidRequest
from interfaces.command.shell import ShellCommand
from interfaces.deadline import Deadline
from interfaces.errors import AuthenticationRefused, CommandFailed, DeadlineExceeded, HostKeyMismatch, InterfaceError
from interfaces.transport import Transport

PATIENCE = 300.0
"""Seconds after which files of a lease that could not be removed are moved aside."""
_PAUSE = 15.0
_OF_OPERATOR: tuple[type[DrydockError], ...] = (HostKeyMismatch, AuthenticationRefused, InvalidRequest)

_NOT_ROOT = 96
# Asked only after a failure, so that what works costs nothing more.
AS_ROOT = rf"""s=$1; shift
[ "$(id -u)" = 0 ] && exec /bin/sh -c "$s" sh "$@"
sudo -n -- /bin/sh -c "$s" sh "$@"
code=$?
[ $code != 0 ] || exit 0
said=$(LC_ALL=C sudo -n -- true 2>&1) && exit $code
echo "The account $(id -un) cannot become root: $said." >&2
exit {_NOT_ROOT}
"""


class NeedsOperator(DrydockError):
    """The call cannot succeed until a person has fixed something."""

    code = "needs_operator"


class CannotBecomeRoot(NeedsOperator):
    """The control account is not root, and sudo refuses it or asks for a password."""


class HostShell:
    """Runs scripts as the control account or as root, within the time allowed for one call of a step."""

    def __init__(self, transport: Transport, seconds: float) -> None:
        self._command = ShellCommand(transport, still_mine=lambda: None)
        self._deadline = Deadline(seconds * 0.9)

    @property
    def tired(self) -> bool:
        """Whether too little time is left to start a long operation."""
        return self._deadline.remaining < self._deadline.seconds * 0.6

    @property
    def _budget(self) -> str:
        """Whole seconds that a script may take, short enough that it can normally report by itself what is left."""
        return str(max(1, int(self._deadline.remaining * 0.8)))

    def run(self, script: str, *arguments: str, stdin: str = "") -> str:
        """Run a script and return its output. Raises InterfaceError (CommandFailed is a subclass)."""
        return self._run(["/bin/sh", "-c", script, "sh", *arguments], stdin)

    def as_root(self, script: str, *arguments: str, stdin: str = "") -> str:
        """Run a script as root, by sudo if necessary. Raises CannotBecomeRoot, and the errors of `run`."""
        try:
            return self._run(["/bin/sh", "-c", AS_ROOT, "sh", script, *arguments], stdin)
        except CommandFailed as error:
            if error.result.exit_code != _NOT_ROOT:
                raise
            said = error.result.error_text.strip().rpartition("\n")[2]
            raise CannotBecomeRoot(
                said,
                hint=(
                    "Register the host with root as its control account, or let that account use sudo without a "
                    "password."
                ),
            ) from error

    def look(self, folder: str) -> Json:
        """Return facts about the host. Those about the disk are for the one that contains `folder`."""
        lines = [line.partition("=") for line in self.run(LOOK, folder).splitlines()]
        found: Json = {name: _read(name, value) for name, _, value in lines if value.strip("-")}
        return found | {"arch": architecture(found.get("arch", ""))}

    def end_account(self, account: int | str, *, root: bool = True) -> int:
        """End every process owned by a uid or account, except this connection's.

        Return how many are left: at least 1 if the time was too short to search all processes.
        """
        run = self.as_root if root else self.run
        return int(run(END_UID, str(account), self._budget))

    def end_marked(self, mark: str, folder: str) -> int:
        """End the processes that have the mark in their environment or work in the folder.

        Return how many are left: at least 1 if the time was too short to search all processes.
        """
        return int(self.run(END_MARKED, mark, folder, self._budget))

    def sweep_account(self, account: int | str, *, python: str = "", homes: str = "") -> bool:
        """Remove a uid's or account's files from world-writable directories. Return whether none is left.

        `python` is an interpreter on the host, if one is known. `homes` is the folder of the leases' homes, where other
        leases may keep files owned by the uid; root becomes the owner of these files.
        """
        return self.as_root(SWEEP_UID, str(account), self._budget, python, homes).split() == ["0"]

    def remove_tree(self, folder: str, *, root: bool) -> bool:
        """Remove a folder. Return whether it no longer exists."""
        run = self.as_root if root else self.run
        return run(REMOVE_TREE, folder, self._budget).split() == ["0"]

    def _run(self, argv: list[str], stdin: str) -> str:
        result = self._command.check(argv, stdin=stdin.encode(), timeout=max(0.1, self._deadline.remaining))
        return result.text


def told(act: Act) -> Act:
    """Wrap an act so that errors in reaching the host become its answer."""

    @functools.wraps(act)
    def answered(spec: Spec, memo: Json) -> Answer:
        try:
            return act(spec, memo)
        except NeedsOperator as error:
            return Failed(scope=Scope.OPERATOR, code=error.code, message=str(error))
        except (InterfaceError, InvalidRequest) as error:
            scope = Scope.OPERATOR if isinstance(error, _OF_OPERATOR) else Scope.STEP
            return Failed(scope=scope, code=error.code, message=str(error))

    return answered


def in_pieces(sentence: str) -> Callable[[Act], Act]:
    """Wrap an act that may need several calls: when a call runs out of time, the step waits and is called again.

    The step fails only at its own deadline.
    """

    def act_of(act: Act) -> Act:
        @told
        @functools.wraps(act)
        def answered(spec: Spec, memo: Json) -> Answer:
            try:
                return act(spec, memo)
            except DeadlineExceeded:
                return Wait(after=1.0, memo=memo, sentence=sentence)

        return answered

    return act_of


def until_done(sentence: str) -> Callable[[Callable[[Spec], bool]], Act]:
    """Make an act from a function that returns whether the work is done. The step is called again until it is."""

    def act_of(done: Callable[[Spec], bool]) -> Act:
        @in_pieces(sentence)
        @functools.wraps(done)
        def act(spec: Spec, memo: Json) -> Answer:
            if done(spec):
                return Ready()
            return Wait(after=1.0, memo=memo, sentence=sentence)

        return act

    return act_of


def remove_or_put_aside(memo: Json, removed: Callable[[], bool], put_aside: Callable[[], str] | None) -> Answer:
    """Remove a lease's files. After PATIENCE seconds, `put_aside` moves them and returns their new path.

    Another lease that was given access may write to them faster than root can remove them. That must not block the host
    for other leases, nor occupy a worker: a long attempt is followed by an equally long pause. If `put_aside` is None,
    the files cannot be moved, and their removal is retried without limit.
    """
    began, now = clock.monotonic(), clock.now().timestamp()
    with contextlib.suppress(DeadlineExceeded):
        if removed():
            return Ready()
    since = memo.get("since", now)
    if put_aside is None or now - since < PATIENCE:
        pause = min(_PAUSE, max(1.0, clock.monotonic() - began))
        return Wait(after=pause, memo=memo | {"since": since}, sentence="Files of the lease are being removed.")
    where = put_aside()
    said = f"The files were moved aside to {where}, because a process keeps creating files there or as the lease's uid."
    return Ready(facts={"put_aside": where}, log=said)


def _read(name: str, text: str) -> Any:
    if name == "load":
        return float(text)
    return int(text) if name == "vcpus" or name.endswith("_mib") else text
