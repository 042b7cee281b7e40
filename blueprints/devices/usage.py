"""Shell scripts that find the processes that use devices, and end those of an account. They run as root."""

from __future__ import annotations

from blueprints.devices.scripts import COMMON

_SEARCH = r"""
LC_ALL=C; export LC_ALL
exec 3</dev/null
# What the threads of processes have mapped whose first thread has exited: those have no map_files. Their maps name the
# file system and the inode of a node.
mapped() {
  nodes=
  for status in $(echo /proc/[0-9]*/status | xargs grep -lsE '^State:[[:space:]]+[ZX]'); do
    of=${status%/status}
    cat "$of"/task/[0-9]*/maps 2>/dev/null | cut -d' ' -f4,5 | sort -u | grep -v ' 0$' | while read -r on inode; do
      [ -n "$nodes" ] || nodes=$(find /dev -type c -exec stat -c '%d %i %t:%T' '{}' + 2>/dev/null)
      major=$((0x${on%:*})) minor=$((0x${on#*:}))
      on=$(((major << 8) | (minor & 255) | ((minor & ~255) << 12)))
      printf '%s\n' "$nodes" | sed -n "s,^$on $inode \(.*\),\1 $of/task,p"
    done
  done
}
users() {
  wanted=" $* 1:3 "
  found=$({ find -L /proc/[0-9]*/task/[0-9]*/fd /proc/[0-9]*/map_files -maxdepth 1 -type c \
    -exec stat -L -c '%t:%T %n' '{}' + 2>/dev/null; mapped; } | sort -u | {
    seen=
    while IFS=': ' read -r major minor name; do
      number=$((0x$major)):$((0x$minor))
      case $wanted in *" $number "*) ;; *) continue;; esac
      pid=${name#/proc/} pid=${pid%%/*}
      [ "$number $pid" != "1:3 $$" ] || seen=yes
      [ "$number" != 1:3 ] || continue
      uids=$(cat "/proc/$pid"/task/[0-9]*/status 2>/dev/null | sed -n 's/^Uid:[[:space:]]*//p')
      [ -n "$uids" ] || continue
      least=0
      for each in $uids; do [ "$each" -le "$least" ] || least=$each; done
      read -r command 2>/dev/null <"/proc/$pid/comm" || command=
      printf '%s %s %s %s\n' "$pid" "$least" "$number" "$command"
    done
    [ -n "$seen" ] || { echo 'The open files of this host cannot be seen.' >&2; exit 71; }
  }) || exit 71
  [ -z "$found" ] || printf '%s\n' "$found" | sort -nu -k1,1 -k3,3
}
"""

USERS = _SEARCH + 'users "$@"\n'
"""Numbers of devices. Prints `PID UID NUMBER NAME` for each process that has one open or mapped, in any thread.

The uid is the highest of its threads' uids, so that a setuid program counts as the account that runs it. The search
must find this shell's own descriptor of /dev/null, so that a search that cannot see is no proof.
"""

END_USERS = (
    COMMON
    + _SEARCH
    + r"""
uid=$1; shift
kept=" $(echo $(wanted_of "$uid")) " exclusive=' ' all=
for word do
  path=${word##* } rest=${word% *} number=${rest#* }
  if [ "$number" = - ]; then
    [ -c "$path" ] && [ ! -L "$path" ] || continue
    number=$(number_of "$path" 2>/dev/null) || continue
  fi
  case $kept in *" $number "*) continue;; esac
  all="$all $number"
  case $rest in E*) exclusive="$exclusive$number ";; esac
done
exec 9>&-
[ -n "$all" ] || exit 0
in_group() { [ -n "$tree" ] && grep -qsx "$1" "$tree/drydock/$uid/cgroup.procs"; }
round=0
while :; do
  left= others=
  there=$(users $all) || exit 71
  while read -r pid of number name; do
    [ -n "$pid" ] || continue
    if [ "$of" = "$uid" ] || in_group "$pid"; then left="$left $pid"; else
      # Others may use what several leases share. Root and the services of the host watch over its devices.
      case $exclusive-$of in *" $number "*-????*) ;; *) continue;; esac
    fi
    others="$others$pid $of $number $name
"
  done <<end
$there
end
  [ -n "$left" ] && [ $round -lt 20 ] || break
  kill -s KILL $left 2>/dev/null
  sleep 0.1 2>/dev/null || sleep 1
  round=$((round + 1))
done
printf %s "$others"
"""
)
"""$1 uid, then `E|S NUMBER|- PATH` for each node. Ends the processes of the account that have one of the devices open.

Prints the processes that are left, in the form of USERS: those of the account that do not end, and those of other
accounts from uid 1000 on that have an exclusive device open.
"""
