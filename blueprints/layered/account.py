"""The account of the host lease under a resource, for the steps that clean and prepare it.

The account is managed in one of two ways. `Controlled`: from outside, as root, either directly or with sudo from the
control account. Root owns the home, and the account owns only the folders that leases get. A lease therefore cannot
plant a start-up file, a key or a link anywhere that root or a login shell reads, and root works in a folder that no
other account can change.

`Uncontrolled`: from within, as the account itself, if there is no access from outside. The results cannot be trusted: a
resource in such an account is destroyed after its lease, and never receives a credential.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable

from blueprints.answers import Json, Wait
from blueprints.hosts import LEASE_VARIABLE
from blueprints.hostshell import AS_ROOT, HostShell
from blueprints.layered.within import Within, account_of
from blueprints.specs import Control, LeaseView
from interfaces.command.jobs import Jobs
from interfaces.command.shell import ShellCommand
from interfaces.errors import DeadlineExceeded
from interfaces.local.transport import LocalTransport
from interfaces.transport import Transport

_LIMIT = 30.0
_GIT_UIDS, _GIT_UIDS_COUNT = 2_000_000_000, 100_000_000

# Root's own home for the account: no login succeeds without the keys in it, and no timed work begins.
_CLOSE = r"""
home=$1 uid=$2
[ -d "$home" ] || exit 0
[ ! -L "$home" ] || exit 64
chown 0:0 -- "$home" && chmod 711 -- "$home" && rm -rf -- "$home/.ssh" || exit 1
name=$(getent passwd "$uid" | cut -d: -f1)
[ -n "$name" ] || exit 0
if command -v loginctl >/dev/null 2>&1 && [ -d /run/systemd/system ]; then
  timeout 5 loginctl disable-linger "$name" 2>/dev/null
  timeout 5 loginctl terminate-user "$name" 2>/dev/null
fi
if command -v crontab >/dev/null 2>&1; then crontab -r -u "$name" 2>/dev/null; fi
exit 0
"""
_ADMIT = r"""
home=$1 gid=$2; shift 2
umask 077
while [ $# -gt 1 ]; do
  file=$home/$1 folder=$home/$1; folder=${folder%/*}
  if [ "$folder" != "$home" ]; then
    mkdir -p -- "$folder" && chown "0:$gid" -- "$folder" && chmod 750 -- "$folder" || exit 1
  fi
  printf %s "$2" >"$file.new" && chown "0:$gid" -- "$file.new" && chmod 640 -- "$file.new" || exit 1
  mv -fT -- "$file.new" "$file" || exit 1
  ! command -v restorecon >/dev/null 2>&1 || restorecon -R -- "$folder" 2>/dev/null
  shift 2
done
"""
# What is to go is put aside first, in moments; however much it is, it is then removed as one tree.
_PUT_ASIDE = r"""
home=$1 aside=$1/.removed; shift
[ -d "$home" ] || exit 0
while read -r _ _ _ _ point _; do
  point=$(printf %b "$point")
  case $point in "$home"/*) ;; *) continue;; esac
  for name in "$@"; do [ "$point" != "$home/$name" ] || continue 2; done
  umount -l -- "$point" 2>/dev/null
done </proc/self/mountinfo
[ ! -L "$aside" ] || rm -f -- "$aside"
for each in "$home"/* "$home"/.[!.]* "$home"/..?*; do
  [ -e "$each" ] || [ -L "$each" ] || continue
  for name in .removed "$@"; do [ "${each##*/}" != "$name" ] || continue 2; done
  [ -d "$aside" ] || mkdir -m 700 -- "$aside" || exit 1
  [ -L "$each" ] || chmod u+rwx -- "$each" 2>/dev/null
  into=$(mktemp -d "$aside/XXXXXXXX") && mv -T -- "$each" "$into/it" || exit 1
done
"""
_MAY_BECOME_ROOT = r"""
name=$(getent passwd "$1" | cut -d: -f1)
[ -n "$name" ] && command -v sudo >/dev/null 2>&1 || { echo no; exit 0; }
su -s /bin/sh -c 'sudo -n true' "$name" </dev/null >/dev/null 2>&1 && echo yes || echo no
"""
_BASE = r"""
umask 077
mkdir -p -- "$1/jobs" || exit 1
[ "$(id -u)" != 0 ] || { chown 0:0 -- "$1" && chmod 711 -- "$1" && chown "${SUDO_UID:-0}" -- "$1/jobs"; }
"""
_PATH = 'cd -- "$1" 2>/dev/null && pwd -P || :'


class Account(ABC):
    """The account of a host lease, with operations that keep to one call's deadline."""

    controlled: bool
    """Whether the account is reached from outside."""

    def __init__(self, shell: HostShell, transport: Transport) -> None:
        self.shell = shell
        self._transport = transport

    @property
    @abstractmethod
    def uid(self) -> str:
        """The account's uid; empty if folders need no change of owner because the account makes them itself."""

    @property
    @abstractmethod
    def gid(self) -> str:
        """The account's gid; empty if `uid` is empty."""

    @property
    @abstractmethod
    def home(self) -> str:
        """Path of the account's home with links resolved; empty if the home does not exist."""

    @property
    @abstractmethod
    def git_uid(self) -> str:
        """The uid that accesses repositories, which no lease ever gets; empty if that is the lease's account."""

    @abstractmethod
    def run(self, script: str, *arguments: str) -> str:
        """Run a script on the host and return its output. Raises InterfaceError, CommandFailed."""

    @abstractmethod
    def words(self, script: str, *arguments: str) -> list[str]:
        """Return the script and its arguments as the command line of a job."""

    @abstractmethod
    def closed(self) -> bool:
        """Prevent new logins and processes for the account. Return whether that succeeded."""

    @abstractmethod
    def ended(self) -> bool:
        """End every process of the account; return True if none is left."""

    @abstractmethod
    def git_ended(self) -> bool:
        """End the processes that talk to repositories for the account; return True if none is left."""

    @abstractmethod
    def swept(self) -> bool:
        """Remove the account's files in world-writable directories; return True if none is left.

        This is the last act between two leases: if a setuid program made by a lease could still give access to the
        account, the account gets another uid.
        """

    @abstractmethod
    def admit(self) -> None:
        """Allow the lease's interfaces to log in again."""

    @abstractmethod
    def may_become_root(self) -> bool:
        """Return whether the account can become root."""

    def emptied(self, *kept: str) -> bool:
        """Remove everything in the home except the entries with these names; return True if it is gone."""
        if not (home := self.home):
            return True
        self.run(_PUT_ASIDE, home, *kept)
        return self.removed(f"{home}/.removed")

    def removed(self, folder: str) -> bool:
        """Remove a folder in the home; return True if it is gone."""
        return self.shell.remove_tree(folder, root=self.controlled)

    def make_base(self, base: str) -> None:
        """Make a folder in the home that the lease cannot read."""
        self.run(_BASE, base)

    def jobs(self, base: str) -> Jobs:
        """Return the jobs that the lease cannot reach, kept in a folder that `make_base` made."""
        return ShellCommand(self._transport, still_mine=lambda: None, jobs_folder=f"{base}/jobs").jobs


class Controlled(Account):
    """The host account as seen from outside: operations run as root."""

    controlled = True

    def __init__(self, control: Control, seconds: float) -> None:
        super().__init__(HostShell(control.transport, seconds), control.transport)
        self._control = control
        self._numbers: tuple[str, str] | None = None

    @property
    def uid(self) -> str:
        return self._now()[0]

    @property
    def gid(self) -> str:
        return self._now()[1]

    @property
    def home(self) -> str:
        return self.run(_PATH, self._control.home).removesuffix("\n")

    @property
    def git_uid(self) -> str:
        return str(_GIT_UIDS + self._control.uid % _GIT_UIDS_COUNT)

    def run(self, script: str, *arguments: str) -> str:
        return self.shell.as_root(script, *arguments)

    def words(self, script: str, *arguments: str) -> list[str]:
        return ["/bin/sh", "-c", AS_ROOT, "sh", script, *arguments]

    def closed(self) -> bool:
        self.run(_CLOSE, self._control.home, self.uid)
        return True

    def ended(self) -> bool:
        return not self.shell.end_account(self.uid)

    def git_ended(self) -> bool:
        return not self.shell.end_account(self.git_uid)

    def swept(self) -> bool:
        if not self.shell.sweep_account(self.uid):
            return False
        if self._control.renumber:
            self._numbers = None
            self.run(*self._control.renumber)
        return True

    def admit(self) -> None:
        kept = [word for pair in self._control.kept.items() for word in pair]
        self.run(_ADMIT, self._control.home, self.gid, *kept)

    def may_become_root(self) -> bool:
        return self.run(_MAY_BECOME_ROOT, self.uid).split() == ["yes"]

    def _now(self) -> tuple[str, str]:
        """Return the account's current uid and gid, which may differ from those in the facts of its lease."""
        if self._numbers is None:
            self._numbers = (str(self._control.uid), str(self._control.gid))
            if self._control.numbers:
                uid, gid = self.run(*self._control.numbers).split()
                self._numbers = (uid, gid)
        return self._numbers


class Uncontrolled(Account):
    """The host account as seen from within: operations run as the account itself, which leases share."""

    controlled = False
    uid = gid = git_uid = ""

    def __init__(self, host: LeaseView, seconds: float) -> None:
        transport = transport_of(host)
        if isinstance(transport, LocalTransport):
            # What the account has used up must not keep its end from it.
            transport = transport.unbounded()
        # They begin in / so that no folder need be there.
        super().__init__(HostShell(Within(transport, "/", env={}), seconds), transport)
        self._mark = f"{LEASE_VARIABLE}={host.key}"

    @property
    def home(self) -> str:
        return self.run('cd -- "$HOME" 2>/dev/null && pwd -P || :').removesuffix("\n")

    def run(self, script: str, *arguments: str) -> str:
        return self.shell.run(script, *arguments)

    def words(self, script: str, *arguments: str) -> list[str]:
        return ["/bin/sh", "-c", script, "sh", *arguments]

    def closed(self) -> bool:
        return True

    def ended(self) -> bool:
        return not self.shell.end_marked(self._mark, self.home or "/nonexistent/home")

    def git_ended(self) -> bool:
        return True

    def swept(self) -> bool:
        return True

    def admit(self) -> None:
        """Do nothing, because the account was never closed."""

    def may_become_root(self) -> bool:
        return False


def account(host: LeaseView, seconds: float) -> Account:
    """Return the account of a host lease, from outside if possible."""
    seconds = min(seconds, _LIMIT)
    control = host.control()
    return Uncontrolled(host, seconds) if control is None else Controlled(control, seconds)


def transport_of(host: LeaseView) -> Transport:
    """Return the transport that the host lease's own interfaces use."""
    return account_of(host.interface("command").transport)


def in_stages(memo: Json, sentence: str, *stages: Callable[[], bool]) -> Wait | None:
    """Run the stages in order, each until it reports that it is done. Return None when all are done.

    Return Wait if the call's time runs out first. The next call resumes at the unfinished stage.
    """
    first = int(memo.get("stage", 0))
    for number, stage in enumerate(stages[first:], first):
        try:
            done = stage()
        except DeadlineExceeded:
            done = False
        if not done:
            return Wait(after=1.0, memo={"stage": number}, sentence=sentence)
    return None
