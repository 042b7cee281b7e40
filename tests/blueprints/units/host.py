"""An SSH host of this machine that looks as if it had systemd, podman and firewalld: programs with a state like theirs.

Its SSH server has a mount namespace of its own, with these programs first in PATH, a `/run` of its own, and files where
the control groups of version 2 would be. The accounts are real, and so are the processes of units. What the real
programs answer is tested on a machine of their own (`tests.metal.test_units`).
"""

from __future__ import annotations

import json
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from blueprints.units.values import FOLDER
from tests.blueprints import host_peers as peers
from tests.peers import require

_SYSTEMCTL = r"""#!/bin/sh
# Stands in for systemctl: `show` prints one property of one unit, as with --value.
echo "systemctl $*" >>{log}
state={state}/units; mkdir -p $state
for unit do :; done
command=$1
running() {{ [ -f "$state/$unit.pid" ] && kill -s 0 -- "-$(cat "$state/$unit.pid")" 2>/dev/null; }}
group=/system.slice/$unit
case $command in
  daemon-reload) exit 0;;
  reset-failed) rm -f "$state/$unit.pid"; exit 0;;
  start)
    file=/run/systemd/system/$unit
    [ -f "$file" ] || {{ echo "Failed to start $unit: Unit $unit not found." >&2; exit 5; }}
    ! running || exit 0
    [ ! -e {state}/broken ] || {{ echo "Failed to start $unit: Unit is masked." >&2; exit 1; }}
    folder=$(sed -n 's/^WorkingDirectory=//p' "$file")
    eval "set -- $(sed -n 's/^ExecStart=//p' "$file")"
    cd "$folder" || exit 1
    mkdir -p "/sys/fs/cgroup$group"
    echo "usage_usec 2500000" >"/sys/fs/cgroup$group/cpu.stat"
    echo 67108864 >"/sys/fs/cgroup$group/memory.current"
    echo 134217728 >"/sys/fs/cgroup$group/memory.peak"
    echo "inactive_file 1048576" >"/sys/fs/cgroup$group/memory.stat"
    env -i PATH="$PATH" setsid /bin/sh -c 'echo $$ >"$1.pid"; shift; exec "$@"' sh "$state/$unit" "$@" \
      </dev/null >/dev/null 2>&1 &
    while [ ! -s "$state/$unit.pid" ]; do sleep 0.02; done;;
  stop)
    ! running || {{
      kill -s TERM -- "-$(cat "$state/$unit.pid")" 2>/dev/null
      n=0; while running && [ $n -lt 60 ]; do sleep 0.05; n=$((n + 1)); done
      kill -s KILL -- "-$(cat "$state/$unit.pid")" 2>/dev/null
      while running; do sleep 0.05; done
    }}
    rm -rf "/sys/fs/cgroup$group";;
  show)
    case $2 in
      --property=LoadState) if [ -f "/run/systemd/system/$unit" ]; then echo loaded; else echo not-found; fi;;
      --property=ActiveState) if running; then echo active; else echo inactive; fi;;
      --property=ControlGroup) if running; then echo "$group"; else echo; fi;;
      --property=IPIngressBytes) echo 1000;;
      --property=IPEgressBytes) echo 2000;;
      *) exit 1;;
    esac;;
  *) exit 1;;
esac
"""

_PODMAN = r"""#!/bin/sh
# Stands in for podman, with a store in the folder of --root. A container runs as the uid that root is mapped to.
echo "podman $*" >>{log}
env >>{state}/podman.environment
while :; do
  case $1 in
    --root) root=$2; shift 2;;
    --runroot|--tmpdir|--events-backend|--storage-driver|--storage-opt) shift 2;;
    *) break;;
  esac
done
mkdir -p "$root/images" "$root/containers" "$root/secrets"
name() {{ echo "$1" | tr / _; }}
case $1 in
  rm) for it do :; done; rm -f "$root/containers/$it"; exit 0;;
  image) [ -e "$root/images/$(name "$3")" ];;
  pull)
    for it do :; done
    case $it in *missing*) echo "manifest unknown" >&2; exit 125;; esac
    : >"$root/images/$(name "$it")";;
  load) grep -q "an image" "$4" || exit 125; echo "Loaded image: localhost/loaded:1";;
  tag) : >"$root/images/$(name "$3")";;
  ps) ls "$root/containers";;
  secret) [ "$2 $3 $4" = "create --driver file" ] && cat >"$root/secrets/$5";;
  run)
    own=0
    shift
    while :; do
      case $1 in
        --uidmap) own=${{2#0:}}; own=${{own%:*}}; shift 2;;
        --name) it=$2; shift 2;;
        --env-file)
          while IFS= read -r line; do export "$line"; done <"$2"
          shift 2;;
        --secret)
          value=$(cat "$root/secrets/${{2%%,*}}"; echo .)
          export "${{2##*target=}}=${{value%.}}"
          shift 2;;
        --workdir|--label|--gidmap|--device) shift 2;;
        --*) shift;;
        *) break;;
      esac
    done
    shift
    : >"$root/containers/$it"
    setpriv --reuid "$own" --regid "$own" --clear-groups "$@"; code=$?
    rm -f "$root/containers/$it"
    exit $code;;
  *) exit 125;;
esac
"""

_FIREWALLD = r"""#!/bin/sh
# Stands in for firewall-cmd, with the ports of one zone.
echo "firewall-cmd $*" >>{log}
mkdir -p {state}/ports
port() {{ echo "$1" | sed 's/.*=//; s,/,_,'; }}
case $1 in
  --state) [ ! -e {state}/stopped ];;
  --query-port=*) [ -e "{state}/ports/$(port "$1")" ];;
  --add-port=*) : >"{state}/ports/$(port "$1")";;
  --remove-port=*) [ -e {state}/stuck ] || rm -f "{state}/ports/$(port "$1")";;
  *) exit 2;;
esac
"""

_SSHD = r"""#!/bin/sh
exec unshare --mount --propagation private /bin/sh -c '
mount -t tmpfs tmpfs /run && mkdir -m 755 /run/sshd /run/systemd /run/systemd/system &&
mount -t tmpfs tmpfs /sys/fs/cgroup && echo "cpu memory" >/sys/fs/cgroup/cgroup.controllers &&
mount --bind {folder}/programs /usr/local/sbin && exec {sshd} "$@"' sh "$@"
"""


class UnitHost:
    """The host: its server, and what its programs have been asked and keep."""

    def __init__(self, folder: Path, server: peers.Server) -> None:
        self.folder, self.server = folder, server

    @property
    def asked(self) -> str:
        """All command lines of its programs."""
        return (self.folder / "log").read_text()

    @property
    def environment(self) -> str:
        """The variables that its podman has had, of all calls."""
        return (self.folder / "state" / "podman.environment").read_text()

    @property
    def ports(self) -> list[str]:
        """The ports that are open."""
        return sorted(path.name.replace("_", "/") for path in (self.folder / "state" / "ports").glob("*"))

    def breaks(self, what: str) -> None:
        """Let a program fail: `broken` units do not start, `stuck` ports stay, a `stopped` firewall is none."""
        (self.folder / "state" / what).touch()

    def mended(self, what: str) -> None:
        """No longer."""
        (self.folder / "state" / what).unlink()

    def left(self) -> list[Path]:
        """What is left of units on the disk of this machine."""
        return list(Path(FOLDER).glob("*"))


@contextmanager
def unit_host(address: str, monkeypatch, folder: Path) -> Iterator[UnitHost]:
    """A host for as long as it is needed."""
    require("setpriv")
    programs, state = folder / "programs", folder / "state"
    folder.chmod(0o755)
    for path in (programs, state):
        path.mkdir(mode=0o755)
    log = folder / "log"
    log.touch()
    for name, text in {"systemctl": _SYSTEMCTL, "podman": _PODMAN, "firewall-cmd": _FIREWALLD}.items():
        (programs / name).write_text(text.format(log=log, state=state))
        (programs / name).chmod(0o755)
    sshd = folder / "sshd"
    sshd.write_text(_SSHD.format(folder=folder, sshd=peers.SSHD))
    sshd.chmod(0o755)
    monkeypatch.setattr(peers, "SSHD", str(sshd))
    with peers.server(address) as server:
        yield UnitHost(folder, server)


def registered(found: UnitHost) -> dict[str, object]:
    """As an operator would register it."""
    return json.loads(json.dumps(found.server.registration()))
