"""Programs for /bin/sh that run the same script of many rows, each separately and with a time limit.

A program is read from standard input, so that the words that identify planted processes appear only in the arguments of
these processes.
"""

from __future__ import annotations

import shlex
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

_SECONDS = 20
LIFE = 300
"""Seconds after which a planted process exits by itself."""

HELPERS = r"""
loose() { "$@" </dev/null >/dev/null 2>&1 & }
impossible() { echo "$*"; exit 3; }
there() { [ -e "$1" ] || [ -L "$1" ]; }
life='n=0; while [ $n -lt @LIFE@ ]; do sleep 1; n=$((n + 1)); done'
alive() { case "$running" in *"<$t>"*) return 0;; esac; return 1; }
ended() {
  for f in $(grep -lszxF -- "$t" /proc/[0-9]*/task/[0-9]*/cmdline); do
    f=${f#/proc/}
    kill -s KILL "${f%%/*}" 2>/dev/null
  done
  :
}
homes() {
  printf '%s\n' "$was"
  [ -z "$above" ] || [ "$above" = "$was" ] || printf '%s\n' "$above"
}
each_home() {
  homes | while IFS= read -r home; do [ ! -w "$home" ] || ( cd -- "$home" && "$@" ) || exit 1; done
}
# A home that its owner cannot enter hides something; one that has another owner by now is rightly closed.
in_homes() {
  homes | { while IFS= read -r home; do
    if [ -x "$home" ]; then
      there "$home/$1" && { [ -z "$2" ] || grep -qsF -- "$2" "$home/$1"; } && exit 0
    elif [ -O "$home" ]; then exit 0; fi
  done; exit 1; }
}
add_line() { mkdir -p -- "$(dirname -- "$1")" && printf '%s\n' "$2" >>"$1"; }
drop_line() {
  [ -f "$1" ] || return 0
  grep -vF -- "$t" "$1" >"$1.$$"
  cat "$1.$$" >"$1"
  rm -f "$1.$$"
  [ -s "$1" ] || rm -f "$1"
}
same_uid() { [ "$(id -u)" = "$uid" ] || impossible "only the account that planted it can see it"; }
""".replace("@LIFE@", str(LIFE))
"""Shell functions available to the scripts of rows."""

_PROGRAM = r"""
umask 022
have() { command -v "$1" >/dev/null 2>&1 && { [ "$1" != python3 ] || python3 -c '' >/dev/null 2>&1; }; }
limit=; command -v timeout >/dev/null 2>&1 && limit="timeout -k 2 @SECONDS@"
scan() {
  cat /proc/[0-9]*/task/[0-9]*/cmdline 2>/dev/null | tr '\0' '\n' |
    awk 'index($0, ENVIRON["run"] "-") == 1 { print "<" $0 ">" }' | sort -u
}
export run
running=; n=0
# What follows itself all the time may be missed by one look.
while [ $n -lt @SCANS@ ]; do running="$running$(scan)"; n=$((n + 1)); sleep 0.1 2>/dev/null || sleep 1; done
was=${was:-$(cd -- "$HOME" 2>/dev/null && pwd -P)} uid=${uid:-$(id -u)} copy=${copy:-$(pwd -P)}
export running was above uid copy
row() {
  t=$run-$1 note=$4 name=$1
  export t note
  for tool in $2; do
    have "$tool" || { printf 'row\t%s\t3\tthere is no %s that the account can use\n' "$name" "$tool"; return; }
  done
  said=$($limit /bin/sh -c "$3" sh 2>&1 </dev/null)
  code=$?
  printf 'row\t%s\t%s\t%s\n' "$name" "$code" "$(printf %s "$said" | tail -n 1 | tr '\t\r' '  ' | cut -c 1-300)"
}
@ROWS@
printf 'end\t%s\t%s\t%s\t%s\n' "$(id -u)" "$(cat /proc/sys/kernel/random/boot_id)" \
  "$(cd -- "$HOME" 2>/dev/null && pwd -P)" "$(pwd -P)"
"""


@dataclass(frozen=True, kw_only=True)
class Said:
    """The exit status of one test case's script, and the last line that the script printed."""

    code: int
    text: str


@dataclass(frozen=True, kw_only=True)
class Answer:
    """The parsed output of a program.

    It has the result of every row, and the uid, home and working directory of the process that ran it.
    """

    rows: Mapping[str, Said]
    uid: int
    boot: str
    """Identifies the machine and its current boot."""
    home: str
    folder: str


def program(
    scripts: Iterable[tuple[str, tuple[str, ...], str, str]], known: Mapping[str, str], *, token: str, scans: int = 0
) -> bytes:
    """Build a program from the (name, tools, script, note) of every row.

    `known` may contain `was`, `above`, `uid` and `copy`.
    """
    names = {"was": "", "above": "", "uid": "", "copy": "", **known, "run": token}
    given = "".join(f"{name}={shlex.quote(value)}\n" for name, value in names.items())
    rows = "".join(
        f"row {name} {shlex.quote(' '.join(tools))} {shlex.quote(HELPERS + script)} {shlex.quote(note)}\n"
        for name, tools, script, note in scripts
    )
    text = _PROGRAM.replace("@SECONDS@", str(_SECONDS)).replace("@SCANS@", str(scans)).replace("@ROWS@", rows)
    return (given + text).encode()


def understood(text: str) -> Answer | None:
    """Parse the output of a program; return None if the program did not run to its end."""
    rows, end = {}, None
    for line in text.splitlines():
        words = line.split("\t")
        if words[0] == "row" and len(words) == 4 and words[2].isdecimal():
            rows[words[1]] = Said(code=int(words[2]), text=words[3])
        elif words[0] == "end" and len(words) == 5 and words[1].isdecimal():
            end = words
    if end is None:
        return None
    return Answer(rows=rows, uid=int(end[1]), boot=end[2], home=end[3], folder=end[4])
