"""Terminate the processes of a command: its group, its session, and every process with its token in the environment.

Signals are sent by a second process with the rights of the lease's account. Therefore a signal cannot reach a process
of another account that has reused a process id. A process of the same account that has reused a process id is
recognized by its start time.
"""

from __future__ import annotations

import contextlib
import re

from drydock.core import clock
from interfaces.deadline import Deadline
from interfaces.errors import InterfaceError
from interfaces.launch import IDENTIFY
from interfaces.transport import Launch, Process, Transport

_LONGEST_COUNT = 20
"""Bytes of the script's answer that are kept. The number of processes is shorter."""
_COUNT = re.compile(rb"\s*([0-9]{1,9})\s*")

# $1 leader ("pid.start.boot"), $2 NAME=token, $3 tenths of a second between TERM and KILL.
END = (
    IDENTIFY
    + r"""
leader=${1%%.*}
now=$(drydock_identity "$leader") && [ "$now" != "$1" ] && leader=-
# One whose first thread has exited shows as a zombie without an environment, while its other threads go on.
runs() {
  for t in "/proc/$1/task"/[0-9]*/stat; do
    { read -r l <"$t"; } 2>/dev/null || continue
    case "${l##*) }" in [ZX]*) ;; *) return 0;; esac
  done
  return 1
}
members() {
  seen=
  if [ -n "$2" ]; then
    for e in $(echo /proc/[0-9]*/task/[0-9]*/environ | xargs grep -slF -- "$2" 2>/dev/null); do
      e=${e#/proc/}; e=${e%%/*}
      case "$seen" in *" $e "*) continue;; esac
      seen="$seen $e "
      runs "$e" && printf '%s ' "$e"
    done
  fi
  [ "$1" = - ] && return
  for f in /proc/[0-9]*/stat; do
    { read -r l <"$f"; } 2>/dev/null || continue
    p=${l%% *}; set -- "$1" "$2" ${l##*) }
    if [ "$5" = "$1" ] || [ "$6" = "$1" ]; then
      case "$3" in [ZX]) runs "$p" || continue;; esac
      printf '%s ' "$p"
    fi
  done
}
signal() {
  if [ "$leader" != - ]; then kill -s "$1" -- "-$leader" 2>/dev/null; fi
  for p in $left; do kill -s "$1" "$p" 2>/dev/null; done
}
pause() { sleep 0.1 2>/dev/null || sleep 1; }
tenths=0 sent=
while :; do
  left=$(members "$leader" "$2")
  if [ -z "$left" ]; then
    [ -r /proc/self/stat ] || signal KILL
    break
  fi
  if [ -z "$sent" ]; then signal TERM; sent=term
  elif [ "$tenths" -ge "$3" ]; then signal KILL; fi
  [ "$tenths" -ge $(($3 + 30)) ] && break
  pause; tenths=$((tenths + 1))
done
set -- $left
echo "$#"
"""
)
_SPARE = 5.0
"""Seconds allowed for ending processes after their own deadline has passed."""


def end(transport: Transport, *, leader: str, token: str, grace: float, within: float = 20.0) -> int | None:
    """Terminate the processes led by `leader` or carrying `token` ("NAME=value").

    Returns the number of remaining processes, or None if it is unknown.
    """
    tenths = str(max(0, int(grace * 10)))
    argv = ["/bin/sh", "-c", END, "sh", leader or "-", token, tenths]
    with contextlib.suppress(InterfaceError, ValueError):
        deadline = Deadline(within + grace, spare=_SPARE)
        process = transport.start(Launch(argv=argv, cwd="/"), deadline)
        try:
            found = _COUNT.fullmatch(_said(process, deadline))
            return int(found[1]) if found else None
        finally:
            process.kill()
            process.close()
    return None


def _said(process: Process, deadline: Deadline) -> bytes:
    process.close_input()
    said = b""
    while not process.ended:
        deadline.check("Ending the processes")
        said = (said + process.read(min(0.2, deadline.remaining))[0])[:_LONGEST_COUNT]
    while process.exit is None:
        deadline.check("Ending the processes")
        clock.sleep(0.01)
    return said
