"""Shell scripts that change devices through sysfs and `ip`. They run as root, and print facts, one on each line.

Each takes the root of a captured tree first, or nothing for the host's own sysfs.
"""

from __future__ import annotations

from blueprints.devices import LINK_IN_USE

REFUSED = 65

_COMMON = (
    rf"""
umask 077
LC_ALL=C; export LC_ALL
refuse() {{ printf '%s\n' "$*" >&2; exit {REFUSED}; }}
"""
    + LINK_IN_USE
    + r"""
root=$1; shift
pci=$root/sys/bus/pci
pause() { sleep 0.1 2>/dev/null || sleep 1; }
# The kernel has done what a write asks for when the write returns, but a driver may finish later.
eventually() { n=0; until "$@"; do n=$((n + 1)); [ $n -lt 50 ] || return 1; pause; done; }
put() { { printf '%s\n' "$2" >"$1"; } 2>/dev/null; }
driver_of() { link=$(readlink "$pci/devices/$1/driver") && echo "${link##*/}"; }
override_of() {
  read -r word 2>/dev/null <"$pci/devices/$1/driver_override" && [ "$word" != '(null)' ] && echo "$word"
}
vfs_of() {
  for link in "$pci/devices/$1"/virtfn*; do
    [ ! -L "$link" ] || { at=$(readlink "$link"); echo "${at##*/}"; }
  done
}
# Whether a disk belongs to a function, also by one of several paths of an NVMe subsystem.
is_on() {
  at=$(readlink -f "$2")
  case $at in
    */"$1"/*) return 0;;
    */nvme-subsystem/*) ;;
    *) return 1;;
  esac
  subsystem=${at#*/nvme-subsystem/} subsystem=${at%%/nvme-subsystem/*}/nvme-subsystem/${subsystem%%/*}
  for controller in "$subsystem"/nvme*; do
    case $(readlink -f "$controller") in */"$1"/*) return 0;; esac
  done
  return 1
}
# Why the host needs a function: a disk of it holds a file system, swap space or another disk, or see link_in_use.
in_use() {
  for link in $(links_of "$root" "$1"); do
    why=$(link_in_use "$link")
    [ -z "$why" ] || { echo "$why"; return; }
  done
  for block in "$root"/sys/class/block/*; do
    is_on "$1" "$block" || continue
    name=${block##*/} number=$(cat "$block/dev" 2>/dev/null)
    for holder in "$block"/holders/*; do
      [ ! -e "$holder" ] || { echo "The disk $name is part of ${holder##*/}."; return; }
    done
    while read -r _ _ at _ on rest; do
      case "$at ${rest#* - }" in
        "$number "*|*" /dev/$name "*) echo "The disk $name is mounted on $on."; return;;
      esac
    done <"$root/proc/self/mountinfo"
    ! grep -qs "^/dev/$name[[:space:]]" "$root/proc/swaps" || { echo "The host swaps to its disk $name."; return; }
    [ -n "$root" ] || ! command -v zpool >/dev/null 2>&1 || ! zpool status -LP 2>/dev/null | grep -qw "/dev/$name" ||
      { echo "The disk $name is part of a ZFS pool."; return; }
  done
}
guard() {
  for function in "$@"; do
    [ -e "$pci/devices/$function" ] || refuse "The host has no device $function."
    why=$(in_use "$function")
    [ -z "$why" ] || refuse "The host itself uses $function: $why"
  done
}
is_bound() {
  case $2 in
    none) [ -z "$(driver_of "$1")" ];;
    '') [ -n "$(driver_of "$1")" ];;
    *) [ "$(driver_of "$1")" = "$2" ];;
  esac
}
load() { [ -n "$root" ] || ! command -v modprobe >/dev/null 2>&1 || modprobe -q -- "$1" 2>/dev/null; }
# bind FUNCTION DRIVER OVERRIDE: a driver, `none`, or nothing for the one that the kernel chooses.
bind() {
  to=$pci/devices/$1
  [ "$2" = none ] || [ -z "$2" ] || [ -d "$pci/drivers/$2" ] || load "$2"
  [ "$2" = none ] || [ -z "$2" ] || [ -d "$pci/drivers/$2" ] || { why="The host has no kernel driver $2."; return 1; }
  put "$to/driver_override" "$3" || { why="The driver of $1 cannot be chosen (driver_override)."; return 1; }
  if [ -n "$(driver_of "$1")" ] && { [ -z "$2" ] || ! is_bound "$1" "$2"; }; then
    put "$to/driver/unbind" "$1" && eventually is_bound "$1" none ||
      { why="The driver $(driver_of "$1") does not give up $1."; return 1; }
  fi
  [ "$2" != none ] || return 0
  [ -n "$2" ] || load "$(cat "$to/modalias" 2>/dev/null)"
  put "$pci/drivers_probe" "$1"
  eventually is_bound "$1" "$2" || { why="The kernel does not bind ${2:-a driver} to $1."; return 1; }
}
"""
)

SETUP = (
    _COMMON
    + r"""
function=$1 driver=$2
guard "$function"
[ -z "$(vfs_of "$function")" ] || refuse "$function has VFs, which would disappear. Set their number to 0 first."
was=$(driver_of "$function") was_override=$(override_of "$function")
if [ "$driver" = vfio-pci ]; then
  [ -e "$pci/devices/$function/iommu_group/devices" ] ||
    refuse "The host has no IOMMU group for $function. Its IOMMU is off, or does not cover the device."
  for member in "$pci/devices/$function/iommu_group/devices"/*; do
    member=${member##*/}
    [ "$member" != "$function" ] && [ -e "$pci/devices/$member" ] || continue
    case $(cat "$pci/devices/$member/class") in 0x06*) continue;; esac
    case $(driver_of "$member") in
      ''|vfio-pci) ;;
      *) refuse "$member is in the same IOMMU group and in use by $(driver_of "$member"). Only whole groups can be" \
        "passed through: set up $member with the driver none first.";;
    esac
  done
fi
case $driver in none|'') override=;; *) override=$driver;; esac
if ! { is_bound "$function" "$driver" && [ "$(override_of "$function")" = "$override" ]; } &&
  ! bind "$function" "$driver" "$override"; then
  said=$why
  bind "$function" "${was:-none}" "$was_override" || said="$said It could not be undone: $why"
  refuse "$said"
fi
echo "was ${was:-none} $was_override"
"""
)
"""$1 root, $2 PCI address, $3 driver, `none`, or empty for the kernel's choice. Prints `was DRIVER OVERRIDE`.

Undoes what it did if the driver is not bound in the end. The device must not be in use by the host. For `vfio-pci`, no
other member of its IOMMU group may be in use.
"""

UNDO = (
    _COMMON
    + r"""
bind "$1" "$2" "$3" || refuse "$why"
"""
)
"""$1 root, $2 PCI address, $3 driver or `none`, $4 override or empty. Binds the driver that SETUP has printed."""

VFS = (
    _COMMON
    + r"""
card=$1 count=$2 driver=$3
at=$pci/devices/$card
[ -e "$at/sriov_totalvfs" ] || { [ "$count" = 0 ] || refuse "$card offers no VFs."; exit 0; }
total=$(cat "$at/sriov_totalvfs") before=$(cat "$at/sriov_numvfs")
[ "$count" -le "$total" ] || refuse "$card offers at most $total VFs; $count were requested."
has() { [ "$(cat "$at/sriov_numvfs")" = "$1" ] && [ "$(vfs_of "$card" | grep -c .)" = "$1" ]; }
are_bound() {
  for vf in $(vfs_of "$card"); do [ -z "$driver" ] || [ "$(driver_of "$vf")" = "$driver" ] || return 1; done
}
[ "$before" != "$count" ] || ! are_bound || { has "$count" && exit 0; }
had=$(vfs_of "$card")
guard "$card" $had
# A number can be changed from and to 0 only.
set_count() {
  [ "$(cat "$at/sriov_numvfs")" = 0 ] || put "$at/sriov_numvfs" 0 && eventually has 0 ||
    { why="The VFs of $card cannot be removed."; return 1; }
  [ "$1" != 0 ] || return 0
  put "$at/sriov_numvfs" "$1" && eventually has "$1" ||
    { why="The driver $(driver_of "$card") of $card does not create $1 VFs."; return 1; }
}
bind_all() {
  [ -n "$driver" ] || return 0
  for vf in $(vfs_of "$card"); do bind "$vf" "$driver" "$driver" || return 1; done
}
[ "$before" = "$count" ] || for vf in $had; do echo "gone $vf"; done
if ! { { [ "$before" = "$count" ] || set_count "$count"; } && bind_all; }; then
  said=$why
  [ "$before" = "$count" ] || set_count "$before" || said="$said It could not be undone: $why"
  refuse "$said"
fi
has "$count" && are_bound || refuse "The VFs of $card changed while they were set up."
echo changed
"""
)
"""$1 root, $2 PCI address of a card, $3 number of VFs, $4 their driver, or empty for the kernel's choice.

Prints `gone ADDRESS` for each VF that was removed, and `changed`, or nothing if nothing had to be done. Restores the
number of VFs if it fails.
"""

_FIND_CARD = (
    _COMMON
    + r"""
PATH=${1:+$1:}$PATH; export PATH; vf=$2; shift 2
index=
for link in "$pci/devices/$vf"/physfn/virtfn*; do
  at=$(readlink "$link") && [ "${at##*/}" = "$vf" ] && index=${link##*/virtfn}
done
[ -n "$index" ] || refuse "The card of the VF $vf is not known."
card=$(readlink "$pci/devices/$vf/physfn") card=${card##*/}
link=$(links_of "$root" "$card" | head -n 1)
[ -n "$link" ] || refuse "$card has no network interface in the host, so its VF $vf cannot be set up."
"""
)

VF_SHOW = (
    _FIND_CARD
    + r"""
echo "$index"
ip -j link show dev "$link"
"""
)
"""$1 root, $2 folder with ip, $3 PCI address of a VF. Prints its number, then the JSON that ip prints for its card."""

VF_SET = (
    _FIND_CARD
    + r"""
ip link set dev "$link" vf "$index" "$@" || refuse "ip refuses to set $* of VF $index of $link."
"""
)
"""$1 root, $2 folder with ip, $3 PCI address of a VF, then what ip is to set, such as `trust off`."""
