"""Shell scripts that open and close device nodes on a host. They run as root and print facts, one on each line.

Grants are recorded in /run/drydock-devices, one file for each lease: `E` or `S` (exclusive, shared), number, path. The
record ends with the boot, like the modes of the nodes and the control groups.
"""

from __future__ import annotations

REFUSED = 65
STATE = "/run/drydock-devices"

COMMON = (
    rf"""
umask 077
LC_ALL=C; export LC_ALL
refuse() {{ printf '%s\n' "$*" >&2; exit {REFUSED}; }}
"""
    + r"""
state=/run/drydock-devices
# The last one to leave removes the folder with its lock, so what was waited for may not be the lock that is there.
while :; do
  mkdir -p "$state" && [ ! -L "$state" ] && [ "$(stat -c '%u %a' "$state")" = '0 700' ] ||
    refuse "$state is not a folder that only root can use."
  { exec 9>"$state/lock"; } 2>/dev/null || continue
  ! command -v flock >/dev/null 2>&1 || flock -w 20 9 || refuse 'Another program is changing the devices of this host.'
  [ "$(stat -c %i "$state/lock" 2>/dev/null)" != "$(stat -L -c %i /proc/self/fd/9)" ] || break
done
read -r boot </proc/sys/kernel/random/boot_id
if ! [ "$(cat "$state/boot" 2>/dev/null)" = "$boot" ]; then
  rm -rf "$state/leases" "$state/found" "$state/network"
  echo "$boot" >"$state/boot"
fi
mkdir -p "$state/leases" "$state/found" || exit 1

found_number_of() { found=$(stat -c '%t %T' "$1") && echo "$((0x${found% *})):$((0x${found#* }))"; }
# Devices of the host itself: a report that names one of them would take it away from everybody.
number_of() {
  number=$(found_number_of "$1") || exit 1
  case $number in
    10:196) ;;
    [1-5]:*|7:*|13:*|13[6-9]:*|14[0-3]:*|10:6[4-9]|10:[7-9][0-9]|10:1[0-9][0-9]|10:2[0-4][0-9]|10:25[0-5])
      refuse "$1 ($number) is a device of the host itself and cannot be leased.";;
  esac
  # Raw access to disks, firmware, registers and buses, which makes an account root. Many of their numbers vary.
  case $number-$(sed -n "/^Block/q; s/^ *${number%:*} //p" /proc/devices) in
    21:*|8[69]:*|90:*|20[23]:*|*-sg|*-bsg|*-nvme*|*-ch|*-i2c|*-mtd|*-cpu/*|*-ipmi*|*-mei|*-hidraw|*-gpiochip|*-tpm*|\
      *-watchdog|*-rpmb|*-aux|*-usb*|*-tty*|*-megaraid*|*-mpt*ctl|*-aac|*-spi|*-ndctl|*-dimmctl|*-macvtap|*-rtc)
      refuse "$1 ($number) is a device of the host itself and cannot be leased.";;
  esac
  echo "$number"
}
# A name in a folder that others may write to could be exchanged between this check and its use.
checked() {
  rest=${1#/dev/} at=/dev
  case "$1/" in /dev/?*) ;; *) refuse "$1 is not below /dev.";; esac
  case "$1/" in *//*|*/./*|*/../*) refuse "$1 is not a plain path.";; esac
  while :; do
    [ ! -L "$at" ] && [ -d "$at" ] || refuse "$at is not a folder."
    case $(stat -c '%u %a' "$at") in
      "0 "*[2367]|"0 "*[2367]?) refuse "Other accounts than root can write to $at.";;
      "0 "*) ;;
      *) refuse "$at does not belong to root.";;
    esac
    case $rest in */*) at=$at/${rest%%/*} rest=${rest#*/};; *) break;; esac
  done
  [ ! -L "$1" ] && [ -c "$1" ] || refuse "$1 is not a character device."
  number=$(number_of "$1") || exit $?
  [ "$2" = - ] || [ "$2" = "$number" ] || refuse "$1 is the device $number, not $2."
  echo "$number"
}
has_list() { case $(ls -ld -- "$1") in ??????????+*) return 0;; esac; return 1; }
holders() { grep -lsE "^[ES] $1 " "$state"/leases/*/* | sed 's,.*/leases/,,'; }
holders_but() { holders "$1" | grep -vxF -- "$2"; }
# A record of a node that is gone, such as of a device that came back under another name, says nothing about this one.
remember() {
  if read -r _ _ _ was 2>/dev/null <"$state/found/$1" &&
    { [ "$was" = "$2" ] || { [ -c "$was" ] && [ "$(found_number_of "$was")" = "$1" ]; }; }; then return 0; fi
  stat -c '%a %u %g %n' "$2" >"$state/found/$1"
}
root_only() {
  remember "$2" "$1"
  if has_list "$1"; then
    command -v setfacl >/dev/null 2>&1 && setfacl -b -- "$1" ||
      refuse "$1 has an access control list, which needs setfacl (Debian: acl) to be removed."
  fi
  chown -h 0:0 -- "$1" && chmod 600 -- "$1" || refuse "$1 cannot be closed."
}

give_back() {
  read -r mode owner group was <"$state/found/$1" && [ "$was" = "$2" ] || return 0
  chown -h "$owner:$group" -- "$2" && chmod "$mode" -- "$2" && rm -f "$state/found/$1" || exit 1
}

enter=/var/lib/drydock-devices/enter
# Null, zero, full, random, urandom, tty, ptmx, pseudo terminals, FUSE, TUN: open to every account on any host.
base='1:3 1:5 1:7 1:8 1:9 5:0 5:2 136:* 137:* 138:* 139:* 140:* 141:* 142:* 143:* 10:229 10:200'
tree=$(sed -n 's/^[0-9]* [0-9]* [0-9:]* [^ ]* \([^ ]*\) .* - cgroup [^ ]* \(.*,\)\{0,1\}devices\(,.*\)\{0,1\}$/\1/p' \
  /proc/self/mountinfo | tail -n 1)
# Whether a group really refuses a device, rather than whether files of these names exist.
groups_refuse() {
  [ -n "$tree" ] || return 1
  probe=$tree/drydock/probe
  mkdir -p "$probe" 2>/dev/null && { echo a >"$probe/devices.deny"; } 2>/dev/null &&
    /bin/sh -c 'echo $$ >"$1/cgroup.procs" || exit 1; ( : </dev/full ) && exit 1; exit 0' sh "$probe" 2>/dev/null
  refuses=$?
  rmdir "$probe" 2>/dev/null
  return $refuses
}
wanted_of() { cat "$state/leases/$1"/* 2>/dev/null | cut -d' ' -f2; }
# Brings the list of a group to what its leases hold. Nothing that stays allowed is refused in between.
list() {
  wanted=" $(echo $base $(wanted_of "$2" | sort -u)) "
  case $(cat "$1/devices.list") in 'a '*) echo a >"$1/devices.deny" || return 1;; esac
  set -f
  for each in $wanted; do echo "c $each rw" >"$1/devices.allow" || { set +f; return 1; }; done
  set +f
  while read -r type each access; do
    case $type-$access-$wanted in
      c-rw-*" $each "*) ;;
      *) echo "$type $each $access" >"$1/devices.deny" || return 1;;
    esac
  done <<end
$(cat "$1/devices.list")
end
}
group_of() {
  group=$tree/drydock/$1
  mkdir -p "$group" && chmod 755 "$tree/drydock" "$group" && list "$group" "$1" || refuse "$group cannot be set up."
  # The account may move its own processes in, and out nowhere.
  chown "0:$2" "$group/cgroup.procs" && chmod 620 "$group/cgroup.procs"
}
# Threads with the uid in any role, so also what a setuid program runs.
threads_outside() {
  echo /proc/[0-9]*/task/[0-9]*/status | xargs grep -lsE "^Uid:([[:space:]][0-9]+)*[[:space:]]$1([[:space:]]|\$)" |
    xargs -r grep -LsE '^State:[[:space:]]+[ZX]' | sed -n 's,.*/task/\([0-9]*\)/status$,\1,p' |
    grep -vxF -f "$tree/drydock/$1/tasks"
}
# What forks faster than it is moved is stopped first, so that it makes no more children outside.
move_in() {
  moved=0 round=0
  while outside=$(threads_outside "$1"); [ -n "$outside" ]; do
    [ $round -lt 40 ] || refuse "Processes of uid $1 start faster than they can be moved into its control group."
    [ $round -lt 5 ] || kill -s STOP $outside 2>/dev/null
    for thread in $outside; do
      { echo "$thread" >"$tree/drydock/$1/tasks"; } 2>/dev/null && moved=$((moved + 1))
      [ $round -lt 5 ] || kill -s CONT "$thread" 2>/dev/null
    done
    round=$((round + 1))
  done
  echo "moved $moved"
}
prune() {
  for each in "$state"/leases/*; do rmdir "$each" 2>/dev/null; done
  # The login shell of accounts with devices goes with the last of them.
  if [ -e "$enter" ] && rmdir "$state/leases" 2>/dev/null && ! grep -qs ":$enter\$" /etc/passwd; then
    rm -f "$enter" "$enter.new"
    rmdir "${enter%/*}" 2>/dev/null
  fi
  [ -n "$tree" ] || return 0
  for each in "$tree"/drydock/*/; do
    each=${each%/}
    [ -e "$state/leases/${each##*/}" ] || rmdir "$each" 2>/dev/null
  done
  rmdir "$tree/drydock" 2>/dev/null
  return 0
}
"""
)

_LOGIN = r"""
plain_shell() { if [ -x /bin/bash ]; then echo /bin/bash; else echo /bin/sh; fi; }
login_of() { getent passwd "$1" 2>/dev/null | { IFS=: read -r name _ _ _ _ _ shell && echo "$name $shell"; }; }
again() { n=0; until "$@"; do n=$((n + 1)); [ $n -lt 20 ] || return 1; sleep 0.2 2>/dev/null || sleep 1; done; }
# sshd, su and login start everything through the login shell, which the account itself cannot change.
login_enters() {
  login=$(login_of "$1")
  case ${login#* } in "$enter"|/bin/bash|/bin/sh) ;; *) return 0;; esac
  (umask 022; mkdir -p "${enter%/*}") && cat >"$enter.new" <<end &&
#!/bin/sh
# Login shell of accounts with devices: enters the account's control group, then starts the real shell.
group=$tree/drydock/\$(PATH=/usr/bin:/bin id -u)/cgroup.procs
if [ -e "\$group" ]; then
  echo \$\$ >"\$group" || exit 1
  { echo \$PPID >"\$group"; } 2>/dev/null
fi
SHELL=$(plain_shell); export SHELL
[ \$# = 0 ] && exec "\$SHELL" -l
exec "\$SHELL" "\$@"
end
  chmod 755 "$enter.new" && mv -f "$enter.new" "$enter" || refuse "$enter cannot be written."
  [ "${login#* }" = "$enter" ] || again usermod -s "$enter" "${login%% *}" >&2 ||
    refuse "The login shell of ${login%% *} cannot be set."
}
login_plain() {
  login=$(login_of "$1")
  [ "${login#* }" != "$enter" ] || again usermod -s "$(plain_shell)" "${login%% *}" >&2
}
"""

GRANT = (
    COMMON
    + _LOGIN
    + r"""
uid=$1 gid=$2 key=$3; shift 3
mine=$uid/$key lines=
for word do
  path=${word##* } rest=${word% *}
  use=${rest%% *} number=${rest#* }
  if [ "$use" = S ] && ! [ -e "$path" ]; then continue; fi
  number=$(checked "$path" "$number") || exit $?
  other=$(holders_but "$number" "$mine")
  shared_there=$(grep -lsE "^S $number " "$state"/leases/*/* | sed 's,.*/leases/,,' | grep -vxF -- "$mine")
  case $use in
    E) [ -z "$other" ] || refuse "$path is held by another lease.";;
    S) [ "$other" = "$shared_there" ] || refuse "$path is held by another lease.";;
  esac
  lines="$lines$use $number $path
"
done
mkdir -p "$state/leases/$uid" && old=$(cat "$state/leases/$mine" 2>/dev/null)
printf %s "$lines" >"$state/leases/$mine.new~" && mv -f "$state/leases/$mine.new~" "$state/leases/$mine" || exit 1
# What an earlier call with other devices has opened is closed first.
echo "$old" | while read -r use number path; do
  [ -n "$path" ] && ! holders "$number" | grep -q . || continue
  [ ! -c "$path" ] || [ "$(number_of "$path")" != "$number" ] || root_only "$path" "$number"
done
if groups_refuse; then
  group_of "$uid" "$gid"
  login_enters "$uid"
  move_in "$uid"
  echo mechanism cgroup-v1
else
  echo mechanism nodes
  echo "warning No device control group can be used on this host. Only the ownership of the nodes keeps others away."
fi
# In the end, so that nothing is open to the account before it is confined.
printf %s "$lines" | while read -r use number path; do
  again_number=$(checked "$path" "$number") || exit $?
  if [ "$use" = E ]; then
    root_only "$path" "$number"
    chown -h "0:$gid" -- "$path" && chmod 660 -- "$path" || refuse "$path cannot be opened to the lease."
  else
    [ -n "$(holders_but "$number" "$mine")" ] || root_only "$path" "$number"
    if ! { command -v setfacl >/dev/null 2>&1 && setfacl -m "u:$uid:rw" -- "$path" 2>/dev/null; }; then
      remember "$number" "$path"
      chmod 666 -- "$path" || exit 1
      echo "warning $path is open to every account, because access control lists cannot be used."
    fi
  fi
  echo "node $again_number $path"
done || exit $?
if grep -qsE '^ModifyDeviceFiles: *1' /proc/driver/nvidia/params && printf %s "$lines" | grep -q ' /dev/nvidia'; then
  echo "warning The nvidia driver resets the mode of its nodes (NVreg_ModifyDeviceFiles=1)."
fi
prune
"""
)
"""$1 uid, $2 gid, $3 key of the lease, then `E|S NUMBER|- PATH` for each node.

Confines the account to the devices of all its leases, then opens the nodes to it. May be repeated, also with other
nodes. The nodes belong to root and are open to the account's group: their owner could change the mode.
"""

_CLOSING = r"""
# Closes the nodes on standard input (`NUMBER|- PATH`) to an account, and to everyone if no lease holds them. A node
# that has become another device since then is closed as that device. A device of the host itself is left as it is, or
# as it was if a version that did not know it as one has opened it, so that a release always ends.
close_nodes() {
  while read -r _ path; do
    [ -c "$path" ] && [ ! -L "$path" ] || continue
    is=$(found_number_of "$path") || continue
    left=$(holders "$is") kept=
    (number_of "$path") >/dev/null 2>&1 || kept=yes
    if [ -n "$kept" ] && [ ! -e "$state/found/$is" ]; then
      echo "$path ($is) is a device of the host itself, and was left as it is."
    elif [ -z "$left" ]; then
      root_only "$path" "$is"
      [ -z "$kept" ] || give_back "$is" "$path"
    elif ! echo "$left" | grep -q "^$1/" && has_list "$path"; then
      setfacl -x "u:$1" -- "$path" || exit 1
    fi
  done
}
forget() {
  rm -f "$state/leases/$1" "$state/leases/$1.new~" || exit 1
  rmdir "$state/leases/${1%%/*}" 2>/dev/null
}
confine_again() {
  if [ -n "$tree" ] && [ -d "$tree/drydock/$1" ]; then list "$tree/drydock/$1" "$1" || exit 1; fi
  [ -e "$state/leases/$1" ] || login_plain "$1"
  prune
}
listed() { cut -d' ' -f2- "$@" 2>/dev/null; }
"""

REVOKE = (
    COMMON
    + _LOGIN
    + _CLOSING
    + r"""
uid=$1 key=$2; shift 2
if [ "$uid" = - ]; then
  for each in "$state"/leases/*/"$key"; do [ ! -e "$each" ] || { uid=${each%/*} uid=${uid##*/}; }; done
  [ "$uid" != - ] || { prune; exit 0; }
fi
{ for word do echo "$word"; done; listed "$state/leases/$uid/$key"; } | sort -u >"$state/revoked"
forget "$uid/$key"
close_nodes "$uid" <"$state/revoked" || exit $?
rm -f "$state/revoked"
confine_again "$uid"
"""
)
"""$1 uid, or `-` for that of the record, $2 key of the lease, then `NUMBER|- PATH` for each node. Closes the lease's
nodes, and also the nodes named here that no lease holds. A lease without a record, such as after a restart of the host,
is no error. Prints a sentence for each node that is a device of the host itself and was left as it is."""

REVOKE_ACCOUNT = (
    f"record={STATE}/leases"
    r"""
case $1 in *[!0-9]*) uid=$(id -u "$1" 2>/dev/null) || exit 0;; *) uid=$1;; esac
[ -e "$record/$uid" ] || exit 0
"""
    + COMMON
    + _LOGIN
    + _CLOSING
    + r"""
listed "$state/leases/$uid"/* | sort -u >"$state/revoked"
for each in "$state/leases/$uid"/*; do forget "$uid/${each##*/}"; done
close_nodes "$uid" <"$state/revoked" || exit $?
rm -f "$state/revoked"
confine_again "$uid"
"""
)
"""$1 uid or name of an account. Closes the nodes of all its leases. Of an account without devices, it does nothing."""

CLOSE = (
    COMMON
    + r"""
code=0
for path do
  [ -c "$path" ] || continue
  number=$(checked "$path" -) || { code=$?; continue; }
  [ -n "$(holders "$number")" ] || root_only "$path" "$number"
done
prune
exit $code
"""
)
"""Paths of nodes. Closes those that no lease holds to everyone but root. Refuses the others after that."""

REMAINING = (
    COMMON
    + _LOGIN
    + r"""
uid=$1 key=$2; shift 2
[ ! -e "$state/leases/$uid/$key" ] || echo "The host has a record of the lease."
allowed=
if [ -n "$tree" ] && [ -d "$tree/drydock/$uid" ]; then allowed=$(cat "$tree/drydock/$uid/devices.list"); fi
for word do
  path=${word#* }
  [ -c "$path" ] && [ ! -L "$path" ] || continue
  number=$(found_number_of "$path") || continue
  (number_of "$path") >/dev/null 2>&1 || [ -e "$state/found/$number" ] || continue
  left=$(holders "$number")
  if echo "$left" | grep -q "^$uid/"; then continue; fi
  case "
$allowed
" in *"
a "*|*" $number "*) echo "The control group of uid $uid still allows $path ($number).";; esac
  if [ -z "$left" ]; then
    [ "$(stat -c '%a %u %g' "$path")" = '600 0 0' ] || echo "$path is open to others than root."
    ! has_list "$path" || echo "$path has an access control list."
  elif has_list "$path" && getfacl -pcn -- "$path" | grep -q "^user:$uid:"; then
    echo "The access control list of $path still names uid $uid."
  fi
done
"""
)
"""The arguments of REVOKE. Prints one sentence for each right that is left; nothing if the lease has none."""

HANDING_BACK = r"""
leave() {
  prune
  rmdir "$state/leases" "$state/found" 2>/dev/null
  [ -e "$state/leases" ] || [ -e "$state/found" ] || [ -e "$state/network" ] || rm -rf "$state"
  exit 0
}
"""

HAND_BACK = (
    COMMON
    + HANDING_BACK
    + r"""
for path do
  [ -c "$path" ] && [ ! -L "$path" ] || continue
  number=$(found_number_of "$path") || continue
  [ -z "$(holders "$number")" ] || refuse "$path is held by a lease."
  [ ! -e "$state/found/$number" ] || give_back "$number" "$path"
done
leave
"""
)
"""Paths of nodes. Gives them the owner and mode that they had before they were first granted."""

HAND_BACK_ALL = (
    f"[ -e {STATE} ] || exit 0\n"
    + COMMON
    + HANDING_BACK
    + r"""
for each in "$state"/found/*; do
  number=${each##*/}
  [ -e "$each" ] && [ -z "$(holders "$number")" ] && read -r _ _ _ path <"$each" || continue
  [ ! -c "$path" ] || [ -L "$path" ] || [ "$(found_number_of "$path")" != "$number" ] || give_back "$number" "$path"
  [ -c "$path" ] || rm -f "$each"
done
leave
"""
)
"""Gives all nodes that no lease holds the owner and mode that they had, and removes the record if none is left."""
