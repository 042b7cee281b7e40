"""The shell scripts of jobs. Each takes exact arguments and needs only /bin/sh and the usual tools.

A job is a folder. A value that may be set only once is the target of a symbolic link: the first process creates the
link in one step, and later ones fail. `spec` is the digest of the request, `claim` the identity of the runner (number,
start time and boot, so that a later process with the same number is not mistaken for it), and `exit` the exit code.
"""

from __future__ import annotations

from interfaces.launch import IDENTIFY, TOKEN_NAME

JOB_NAME = "DRYDOCK_JOB"
TAIL = 1 << 16
"""Bytes kept from the end of an output that exceeds its limit."""

_PAUSE = "pause() { sleep 0.05 2>/dev/null || sleep 1; }\n"

# Runs in the job's folder as leader of its own session. $1: bound on output in blocks of 512 bytes; $2: `apart`
# where standard error has a file and a bound of its own.
RUNNER = (
    f"{IDENTIFY}\n{_PAUSE}"
    rf"""trap '' HUP
trap : TERM INT
me=$(drydock_identity $$) || me=$$..
ln -s "$me" claim 2>/dev/null || {{ [ ! -L exit ] || rm -f command input; exit 0; }}
{JOB_NAME}=$PWD/.
export {JOB_NAME}
keep() {{
  exec <"$1"
  ( trap '' XFSZ; ulimit -f "$3"; exec cat >"$2" ) 2>/dev/null || : >truncated
  tail -c {TAIL} >"$2.tail"
  [ -s "$2.tail" ] || rm -f "$2.tail"
  : >"$1.drained"
}}
mkfifo pipe errpipe || exit 0
keep pipe output "$1" &
if [ -e input ]; then exec 3<input; else exec 3</dev/null; fi
rm -f input
if [ "$2" = apart ]; then
  keep errpipe errors "$1" &
  ( umask 022; . ./command ) <&3 3<&- >pipe 2>errpipe
else
  : >errpipe.drained
  ( umask 022; . ./command ) <&3 3<&- >pipe 2>&1
fi
code=$?
n=0
until [ -e pipe.drained ] && [ -e errpipe.drained ] || [ $n -ge 20 ]; do pause; n=$((n + 1)); done
times >usage
ln -s "$code" exit 2>/dev/null
rm -f pipe errpipe input command
"""
)

_OPEN = 'umask 077\ncd -- "$HOME" && cd -- "$1" 2>/dev/null || { echo missing; exit 0; }\n'

# $1 jobs folder, $2 id, $3 digest, $4 blocks, $5 runner, $6 bytes of the command, $7 `apart`, $8 `input` where it
# has one; the command comes as input, and what it is to read behind it.
START = (
    _PAUSE
    + rf"""umask 077
cd -- "$HOME" && mkdir -p -- "$1" && cd -- "$1" || exit 71
mkdir -- "$2" 2>/dev/null
cd -- "$2" || exit 71
ln -s "$3" spec 2>/dev/null
[ "$(readlink spec)" = "$3" ] || {{ echo conflict; exit 0; }}
if [ ! -L claim ]; then
  cat >"given.$$" && printf %s "$5" >"runner.$$" && head -c "$6" <"given.$$" >"command.$$" || exit 74
  if [ -n "$8" ]; then tail -c +$(($6 + 1)) <"given.$$" >"input.$$" && mv "input.$$" input || exit 74; fi
  rm -f "given.$$"
  mv "runner.$$" runner && mv "command.$$" command || exit 74
  unset {TOKEN_NAME}
  if command -v setsid >/dev/null 2>&1; then
    setsid /bin/sh ./runner "$4" "$7" </dev/null >/dev/null 2>&1 &
  else
    set -m
    nohup /bin/sh ./runner "$4" "$7" </dev/null >/dev/null 2>&1 &
  fi
  n=0
  until [ -L claim ] || [ $n -ge 60 ]; do pause; n=$((n + 1)); done
fi
echo started
"""
)

# Prints "id state code size truncated"; in the jobs folder.
_SHOW = (
    f"{IDENTIFY}\n"
    r"""alive() {
  now=$(drydock_identity "${claim%%.*}") && [ "$now" = "$claim" ] && return 0
  [ ! -r /proc/self/stat ] && kill -0 "${claim%%.*}" 2>/dev/null
}
show() {
  code=$(readlink "$1/exit") || code=
  if ! claim=$(readlink "$1/claim"); then state=starting
  elif [ -n "$code" ]; then state=exited
  elif alive; then state=running
  elif code=$(readlink "$1/exit"); then state=exited
  else state=lost; code=; fi
  [ $state = exited ] && [ -e "$1/cancelled" ] && state=cancelled
  case $code in *[!0-9]*) code=none;; esac
  size=0; [ -f "$1/output" ] && size=$(($(wc -c <"$1/output")))
  cut=0; [ -e "$1/truncated" ] && cut=1
  echo "$1 $state ${code:--} $size $cut"
}
"""
)

# $1 jobs folder, $2 id.
STATUS = _OPEN + _SHOW + '[ -d "$2" ] || { echo missing; exit 0; }\nshow "$2"\n'

# $1 jobs folder.
LIST = _OPEN + _SHOW + 'for job in *; do [ -d "$job" ] && show "$job"; done\necho end\n'

# $1 jobs folder, $2 id, $3 offset, $4 limit, $5 file. The state is taken first: if over, what follows is all there is.
OUTPUT = (
    _OPEN
    + _SHOW
    + '[ -d "$2" ] || { echo missing; exit 0; }\nshow "$2"\n'
    + '[ ! -f "$2/$5" ] || tail -c +$(($3 + 1)) -- "$2/$5" | head -c "$4"\n'
)

# $1 jobs folder, $2 id, $3 bytes of the beginning, $4 bytes of the end. Three lines, then those bytes.
REMAINS = (
    _OPEN
    + _SHOW
    + r"""[ -d "$2" ] || { echo missing; exit 0; }
show "$2"
cd -- "$2" || exit 71
size=0; [ -f output ] && size=$(($(wc -c <output)))
rest=0; [ -f output.tail ] && rest=$(($(wc -c <output.tail)))
cause=-; [ -f cause ] && read -r cause <cause
echo "$size $rest $cause"
[ -f usage ] && tr '\n' ' ' <usage
echo
[ -f output ] && head -c "$3" <output
if [ "$rest" -gt 0 ]; then tail -c "$4" <output.tail
elif [ "$size" -gt "$3" ]; then
  n=$((size - $3)); [ "$n" -gt "$4" ] && n=$4
  tail -c "$n" <output
fi
exit 0
"""
)

# $1 jobs folder, $2 id. A job that was never claimed is claimed here, so that it never starts.
CANCEL = (
    _OPEN
    + r"""[ -d "$2" ] || { echo missing; exit 0; }
cd -- "$2" || exit 71
[ -L exit ] || : >cancelled
ln -s 0.0.cancelled claim 2>/dev/null
readlink claim
pwd
"""
)

# $1 jobs folder, $2 id.
CANCELLED = _OPEN + 'cd -- "$2" || exit 71\nln -s 143 exit 2>/dev/null\nrm -f pipe errpipe command input\necho ok\n'

# $1 jobs folder, $2 id.
REMOVE = _OPEN + 'rm -rf -- "./$2" && echo ok\n'
