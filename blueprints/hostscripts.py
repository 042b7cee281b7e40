"""Shell scripts that look at a Linux host and end what a lease has there. They need /bin/sh, grep, find and the
like; no argument is ever read as shell. Each does at most what fits into the seconds it is given, and says what
is left."""

from __future__ import annotations

LOOK = r"""
said() { printf '%s=%s\n' "$1" "$2"; }
release() { sed -n "s/^$1=//p" /etc/os-release 2>/dev/null | tr -d "\"'" | head -n 1; }
memory() { sed -n "s/^$1: *\([0-9]*\) kB/\1/p" /proc/meminfo; }
said arch "$(uname -m)"
said os "$(uname -s | tr A-Z a-z)"
said os_release "$(release ID)-$(release VERSION_ID)"
said hostname "$(uname -n)"
said vcpus "$(getconf _NPROCESSORS_ONLN 2>/dev/null || grep -c '^processor' /proc/cpuinfo)"
said ram_mib $(($(memory MemTotal) / 1024))
said ram_free_mib $(($(memory MemAvailable) / 1024))
df -Pk "$1" 2>/dev/null | { read -r _; read -r _ _ used free _ || exit 0
  said disk_mib $(((used + free) / 1024)); said disk_free_mib $((free / 1024)); }
read -r load _ </proc/loadavg && said load "$load"
said boot "$(cat /proc/sys/kernel/random/boot_id 2>/dev/null)"
"""
"""$1: a folder whose disk counts. Prints name=value lines."""

# Of an account that is not there nothing is left. The host's own accounts are never touched.
_UID = r"""
case $1 in
  '') exit 64;;
  *[!0-9]*) uid=$(id -u "$1" 2>/dev/null) || { echo 0; exit 0; };;
  *) uid=$1;;
esac
[ "$uid" -ge 1000 ] || exit 64
"""

# The script's own session and the processes above it are never touched: in a shared account they have its uid.
_LISTING = r"""
among() { [ $# -gt 1 ] || return 0; grep -LsE "$@"; }
session=$(sed -n 's/^NSsid:[[:space:]]*\([0-9]*\).*/\1/p' /proc/$$/status)
above=' ' p=$$
while [ "${p:-0}" -gt 1 ]; do
  above="$above$p "
  p=$(sed -n 's/^PPid:[[:space:]]*//p' "/proc/$p/status" 2>/dev/null)
done
numbers() {
  for f in $(among '^State:[[:space:]]+[ZX]' $(among "^NSsid:[[:space:]]+${session:-none}([[:space:]]|\$)" "$@")); do
    f=${f#/proc/}; f=${f%%/*}
    case "$above" in *" $f "*) ;; *) printf '%s ' "$f";; esac
  done
}
pause() { sleep 0.05 2>/dev/null || sleep 1; }
"""

# Stopped first, until nothing new appears: what forks faster than it is killed no longer forks then.
_ENDING = r"""
round=0
while :; do
  left=$(pids)
  [ -n "$left" ] && [ $round -lt "$rounds" ] || break
  seen=
  n=0
  while [ "$left" != "$seen" ] && [ $n -lt 20 ]; do
    kill -s STOP $left 2>/dev/null
    seen=$left
    left=$(pids)
    n=$((n + 1))
  done
  at_once
  kill -s KILL $left 2>/dev/null
  pause
  round=$((round + 1))
done
set -- $left
echo $#
"""

END_UID = (
    _LISTING
    + r"""
rounds=$2
"""
    + _UID
    + r"""
pids() { numbers $(grep -lsE "^Uid:([[:space:]][0-9]+)*[[:space:]]$uid([[:space:]]|\$)" /proc/[0-9]*/status); }
at_once() {
  [ "$(id -u)" = 0 ] && command -v setpriv >/dev/null 2>&1 || return 0
  setpriv --reuid="$uid" --regid=65534 --clear-groups \
    /bin/sh -c '[ "$(id -u)" = "$1" ] && kill -s KILL -- -1' sh "$uid" 2>/dev/null
}
"""
    + _ENDING
)
"""$1 uid or account, $2 rounds. Ends every process that has the uid in any role; prints how many are left."""

END_MARKED = (
    _LISTING
    + r"""
mark=$1 home=$2 rounds=$3
[ -n "$mark" ] && [ "${home#/?}" != "$home" ] || exit 64
found() {
  grep -slzxF -- "$mark" /proc/[0-9]*/environ
  ls -ld /proc/[0-9]*/cwd 2>/dev/null | while IFS= read -r line; do
    case $line in
      *" -> $home"|*" -> $home/"*|*" -> $home (deleted)") line=${line##* /proc/}; echo "/proc/${line%%/*}/";;
    esac
  done
}
pids() {
  set -- $(for f in $(found); do f=${f#/proc/}; echo "/proc/${f%%/*}/status"; done | sort -u)
  numbers "$@"
}
at_once() { :; }
"""
    + _ENDING
)
"""$1 NAME=value in the environment, $2 folder, $3 rounds. Ends what carries the mark or works in the folder."""

_BOUNDED = r"""
# In hundredths: whole seconds would make one second anything between none and one.
uptime() { read -r up _ </proc/uptime; echo $((${up%.*} * 100 + 1${up#*.} - 100)); }
stop=$(($(uptime) + seconds * 100))
bounded() {
  rest=$(((stop - $(uptime) + 99) / 100))
  [ $rest -gt 0 ] || return 124
  if command -v timeout >/dev/null 2>&1; then timeout -s KILL $rest "$@"; else "$@"; fi
}
"""

SWEEP_UID = (
    _UID
    + r"""
seconds=$2
"""
    + _BOUNDED
    + r"""
nothing() {
  one=$(bounded find "$1" -xdev ! -name . -uid "$uid" -print -quit 2>/dev/null)
  [ $? -lt 124 ] && [ -z "$one" ]
}
left=0
for place in /tmp /var/tmp /dev/shm /dev/mqueue /run/lock /var/spool /var/mail /var/crash; do
  [ -d "$place" ] || continue
  nothing "$place/." && continue
  bounded find "$place/." -xdev ! -name . -uid "$uid" -delete 2>/dev/null
  # A folder with things of others in it stays, but belongs to nobody who comes after.
  bounded find "$place/." -xdev ! -name . -uid "$uid" -execdir chown -h 0:0 '{}' + 2>/dev/null
  nothing "$place/." || left=1
done
ipc() {
  [ -r "/proc/sysvipc/$1" ] || return 0
  { read -r head
    n=0 owner= creator=
    for name in $head; do
      n=$((n + 1))
      case $name in uid) owner=$n;; cuid) creator=$n;; esac
    done
    while read -r line; do
      set -- "$1" "$2" $line
      eval "o=\${$((owner + 2))} c=\${$((creator + 2))}"
      if [ "$o" = "$uid" ] || [ "$c" = "$uid" ]; then ipcrm "$2" "$4" 2>/dev/null || left=1; fi
    done; } <"/proc/sysvipc/$1"
}
ipc shm -m; ipc msg -q; ipc sem -s
echo $left
"""
)
"""$1 uid or account, $2 seconds. As root: removes what the uid owns in the places that all may write to; prints 0 when
nothing of it is left there. `find -delete` follows no link and works from open folders."""

REMOVE_TREE = (
    r"""
home=$1 seconds=$2
case $home in */../*|*/..|*/./*|*//*) exit 64;; /*/*) ;; *) exit 64;; esac
"""
    + _BOUNDED
    + r"""
there() { [ -e "$home" ] || [ -L "$home" ]; }
if there && [ "$(id -u)" = 0 ]; then
  while read -r _ _ _ _ point _; do
    point=$(printf %b "$point")
    case $point in "$home"|"$home"/*) umount -l -- "$point" 2>/dev/null;; esac
  done </proc/self/mountinfo
fi
remove() { bounded rm -rf --one-file-system -- "$home" 2>/dev/null; }
there && remove
if there && [ ! -L "$home" ]; then
  bounded find "$home" -xdev -type d ! -perm -700 -exec chmod u+rwx '{}' ';' 2>/dev/null
  command -v chattr >/dev/null 2>&1 && [ "$(id -u)" = 0 ] && bounded chattr -R -f -i -a "$home" 2>/dev/null
  remove
fi
if there; then echo 1; else echo 0; fi
"""
)
"""$1 absolute folder, $2 seconds. Removes the tree, following no link, whatever stands in it; prints 0 when it is
gone. The folders above it must not be the lease's."""
