"""The shell scripts that start, watch and end units. All run as root, by way of the control account."""

from __future__ import annotations

from blueprints.units.firewall import REFUSED
from blueprints.units.podman import ARCHIVE, ENVIRONMENT, STORE, VALUES
from blueprints.units.values import FOLDER, RUNTIME, UNITS
from interfaces.command.container import PODMAN

_COUNTERS = "counters"
"""Name of the file with the last counters, in the folder of the account."""

# Prints "counted usage_usec memory peak inactive in out"; what the kernel or systemd does not count is `-`. $1 unit.
# The group of the unit counts for those below it, to which podman moves what runs.
_COUNT = r"""counted() {
  group=$(LC_ALL=C systemctl show --property=ControlGroup --value -- "$1")
  group=/sys/fs/cgroup$group
  [ "$group" != /sys/fs/cgroup ] && [ -r "$group/cpu.stat" ] || return 1
  usage=- memory=- peak=- inactive=-
  read -r _ usage <"$group/cpu.stat"
  [ ! -r "$group/memory.current" ] || read -r memory <"$group/memory.current"
  [ ! -r "$group/memory.peak" ] || read -r peak <"$group/memory.peak"
  [ ! -r "$group/memory.stat" ] ||
    while read -r name value; do [ "$name" != inactive_file ] || inactive=$value; done <"$group/memory.stat"
  into=$(LC_ALL=C systemctl show --property=IPIngressBytes --value -- "$1")
  out=$(LC_ALL=C systemctl show --property=IPEgressBytes --value -- "$1")
  echo "counted $usage $memory $peak $inactive ${into:--} ${out:--}"
}
written() { counted "$1" >"$2.new" && mv -f "$2.new" "$2"; }
"""

MAIN = (
    _COUNT
    + rf"""unit=$1 folder=$2 blocks=$3
trap : TERM INT HUP
/bin/sh ./runner "$blocks" ""
rm -f {ENVIRONMENT} {VALUES}
written "$unit" "$folder/{_COUNTERS}"
code=$(readlink exit) && exit "$code"
"""
)
"""The main process of a unit, in the folder of its job. $1 unit, $2 folder of the account, $3 bound on the output.

It outlives the signal that stops the unit, to write the counters down while the control group is there.
"""

MAKE_FOLDER = rf"""umask 077
[ -d /run/systemd/system ] || {{ echo "systemd does not run on this host." >&2; exit {REFUSED}; }}
[ -d {FOLDER} ] || mkdir -m 700 {FOLDER} || exit 71
there=
[ ! -s "$1/unit" ] || read -r there <"$1/unit"
[ "${{there:-$2}}" = "$2" ] ||
  {{ echo "The account already runs $there, and it can have one unit." >&2; exit {REFUSED}; }}
mkdir -p -- "$1" && printf '%s\n' "$2" >"$1/unit"
"""
"""$1 folder of the account, $2 unit. Makes the folder before anything else is done for the unit."""

START = rf"""pause() {{ sleep 0.05 2>/dev/null || sleep 1; }}
umask 077
jobs=$1 id=$2 digest=$3 runner=$4 bytes=$5 plain=$6 unit=$7 text=$8 main=$9
mkdir -p -- "$jobs/$id" && cd -- "$jobs/$id" || exit 71
ln -s "$digest" spec 2>/dev/null
[ "$(readlink spec)" = "$digest" ] || {{ echo conflict; exit 0; }}
if [ ! -L claim ]; then
  cat >"given.$$" && printf %s "$runner" >"runner.$$" && head -c "$bytes" <"given.$$" >"command.$$" || exit 74
  tail -c +$((bytes + 1)) <"given.$$" | head -c "$plain" >"plain.$$" &&
    tail -c +$((bytes + plain + 1)) <"given.$$" >"values.$$" || exit 74
  rm -f "given.$$"
  mv "plain.$$" {ENVIRONMENT} && mv "values.$$" {VALUES} || exit 74
  mv "runner.$$" runner && mv "command.$$" command && printf %s "$main" >main || exit 74
  [ -d {UNITS} ] || mkdir -p -m 755 {UNITS} || exit 71
  umask 022
  printf %s "$text" >"{UNITS}/.$unit.new" && mv -f "{UNITS}/.$unit.new" "{UNITS}/$unit" || exit 74
  systemctl daemon-reload && systemctl start -- "$unit" >&2 || exit {REFUSED}
  n=0
  until [ -L claim ] || [ $n -ge 60 ]; do pause; n=$((n + 1)); done
fi
echo started
"""
"""$1 folder of jobs, $2 id, $3 digest, $4 runner, $5 bytes of the command, $6 bytes of the plain variables, $7 unit,
$8 its text, $9 `MAIN`.

Reads the command and the files of variables, one after another. May be repeated: the unit of a job that was claimed is
not started again.
"""

# A job that was not claimed is claimed here, so that it never starts. The counters are written down first: a main
# process that is killed can no longer do so.
CANCEL = (
    _COUNT
    + rf"""cd -- "$1/$2" 2>/dev/null || {{ echo missing; exit 0; }}
written "$3" "$4/{_COUNTERS}"
[ -L exit ] || : >cancelled
ln -s 0.0.cancelled claim 2>/dev/null
systemctl stop -- "$3" 2>/dev/null
LC_ALL=C systemctl show --property=ActiveState --value -- "$3"
"""
)
"""$1 folder of jobs, $2 id, $3 unit, $4 folder of the account.

Prints the state in which the unit is then, or `missing`.
"""

METER = (
    _COUNT
    + rf"""b=-; [ -r /proc/sys/kernel/random/boot_id ] && read -r b </proc/sys/kernel/random/boot_id
echo "host $b"
counted "$1" || cat "$2/{_COUNTERS}" 2>/dev/null
exit 0
"""
)
"""$1 unit, $2 folder of the account. Prints the counters of the unit, or those at its end."""

RECEIVE = rf"""umask 077
file=$1/{ARCHIVE}
[ ! -e "$1/storage" ] || {{ echo done; exit 0; }}
[ -e "$file" ] || : >"$file"
size=$(($(wc -c <"$file")))
if [ "$size" = "$2" ] && [ "$3" -gt 0 ]; then cat >>"$file" && size=$(($(wc -c <"$file"))); fi
echo "$size"
"""
"""$1 folder of the account, $2 offset, $3 bytes. Appends what it reads to the archive if the archive has that size.

Prints the size of the archive then, or `done` once a container was begun from it.
"""

END = rf"""account=$1
set -- {PODMAN} "{FOLDER}/$account" "{RUNTIME}/$account"
[ -d "$2" ] || [ -d "$3" ] || exit 0
{STORE}unit=
[ ! -f "$folder/unit" ] || read -r unit <"$folder/unit"
case $unit in
  drydock-lease-*.service) ;;
  *) echo "ended -"; exit 0;;
esac
key=${{unit#drydock-lease-}} key=${{key%.service}}
systemctl stop -- "$unit" 2>/dev/null
state=$(LC_ALL=C systemctl show --property=ActiveState --value -- "$unit") || state=unknown
case $state in inactive|failed) ;; *) echo "left the unit $unit is $state"; exit 0;; esac
group=$(LC_ALL=C systemctl show --property=ControlGroup --value -- "$unit")
if [ -n "$group" ] && grep -rqs . "/sys/fs/cgroup$group" --include=cgroup.procs; then
  echo "left processes of the unit $unit"; exit 0
fi
if command -v "$podman" >/dev/null 2>&1 && [ -d "$folder/storage" ]; then
  "$podman" $store rm --force --ignore --time 0 "$key" >/dev/null 2>&1
  there=$("$podman" $store ps --all --quiet) && [ -z "$there" ] ||
    {{ echo "left a container of the unit $unit"; exit 0; }}
fi
echo "ended $key"
"""
"""$1 account. Ends its unit and its container, and prints `ended` and the lease, or `left` and what is left.

Prints nothing if the account has no unit. May be repeated.
"""

FORGET = rf"""unit=$1
rm -f "{UNITS}/$unit" "{UNITS}/.$unit.new"
systemctl daemon-reload
systemctl reset-failed -- "$unit" 2>/dev/null
load=$(LC_ALL=C systemctl show --property=LoadState --value -- "$unit")
[ "$load" = not-found ] || echo "the unit $unit is $load"
exit 0
"""
"""$1 unit, which does not run. Removes its file, and prints a sentence if systemd still knows the unit."""

ACCOUNTS = rf"""for each in {FOLDER}/"$1"* {RUNTIME}/"$1"*; do [ ! -d "$each" ] || echo "${{each##*/}}"; done | sort -u
"""
"""$1 prefix. Prints the accounts that have a folder."""

TIDY = f"rmdir {FOLDER} {RUNTIME} 2>/dev/null; exit 0\n"
"""Removes the folders above those of the accounts if they are empty."""
