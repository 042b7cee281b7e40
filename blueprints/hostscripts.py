"""Shell scripts that inspect a Linux host, end the processes of a lease and remove its files.

They need /bin/sh, grep, find and similar tools. Arguments are never interpreted as shell code. Each script keeps to the
number of seconds it is given, and reports what is left.
"""

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
[ ! -d "$1/.drydock-aside" ] || said aside there
[ ! -d /run/systemd/system ] || said systemd there
"""
"""Script that prints facts about the host as name=value lines. $1 is a folder on the disk to report."""

# Of an account that is not there nothing is left. The host's own accounts are never touched.
_UID = r"""
case $1 in
  '') exit 64;;
  *[!0-9]*) uid=$(id -u "$1" 2>/dev/null) || { echo 0; exit 0; };;
  *) uid=$1;;
esac
[ "$uid" -ge 1000 ] || exit 64
"""

# Every thread is read, because a process whose first thread has exited shows as a zombie without an environment or a
# working folder while its other threads go on. A process may end before it is read and leave a child that was not yet
# listed, so `search` also looks at what has appeared meanwhile, until all of that was still running once it had been
# read: then nothing can have been missed. Others start and end processes all the time, so to wait until nothing new is
# there would take hundreds of processes on a busy host. If the time is over before that, it returns 75, because it may
# have missed some. `numbers` requires this script among what a search found: a search that cannot see processes must
# not pass for a proof that there are none.
# The processes above this script are left alone, and its own session where it shares the uid or the mark: in a shared
# account they match too.
_LISTING = r"""
# Lines of one process are read by the shell itself: to start a program takes ten times as long.
# If the process ends meanwhile, dash empties the variables, and bash leaves them as they were.
status() {
  name= value=
  { while read -r name value _ && [ "$name" != "$2:" ]; do :; done <"$1/status"; } 2>/dev/null
  [ "$name" = "$2:" ] || { value=; return 1; }
}
above=' ' p=$$ session=
while [ "${p:-0}" -gt 1 ]; do
  above="$above$p "
  status "/proc/$p" PPid && p=$value || p=
done
own_session() { status /proc/$$ NSsid && echo "$value"; }
few() { [ $# -lt 1000 ]; }
in_tasks() {
  file=$1 paths=
  shift
  for p in $looked; do paths="$paths $p/task/[0-9]*/$file"; done
  if few $paths; then "$@" $paths; else echo $paths | xargs "$@"; fi
}
# Paths of one process follow each other.
processes() {
  last=
  for p in "$@"; do
    p=${p#/proc/}
    p=${p%%/*}
    [ "$p" = "$last" ] || echo "$p"
    last=$p
  done
}
alive() {
  [ $# != 0 ] || return 0
  looked=$(printf '/proc/%s\n' "$@")
  processes $(in_tasks status grep -LsE '^State:[[:space:]]+[ZX]')
}
elsewhere() {
  [ -n "$session" ] && [ $# != 0 ] || { echo "$@"; return; }
  case " $* " in *" $$ "*) echo $$;; esac
  looked=$(printf '/proc/%s\n' "$@")
  processes $(in_tasks status grep -LsE "^NSsid:[[:space:]]+$session([[:space:]]|\$)")
}
# Each process is compared with all known ones, so programs are faster if there are many.
appeared() {
  looked=
  if [ $# -lt 300 ]; then
    for p in "$@"; do case "$known " in *" $p "*) ;; *) looked="$looked $p";; esac; done
  else
    looked=$(printf '%s\n' $known $known "$@" | sort | uniq -u)
  fi
}
ended() {
  for p in "$@"; do
    status "$p" State || return 0
    case $value in ''|[ZX]*) return 0;; esac
  done
  return 1
}
search() {
  look=$1 known= tries=0
  while [ $tries -lt 20 ]; do
    set -- /proc/[0-9]*
    appeared "$@"
    [ -n "$looked" ] || break
    ! [ $tries -gt 0 ] || ! over || return 75
    set -- $looked
    known="$known $*"
    found=$($look)
    tries=$((tries + 1))
    elsewhere $(alive $(processes $found))
    # After that, because what is found may end before it is looked at again, and leave a child.
    [ $tries = 1 ] || ended "$@" || break
  done
}
unseen() { echo "The processes on this host cannot be seen: $1." >&2; return 71; }
numbers() {
  found=$(search "$1")
  whole=$?
  set -- $found
  case " $* " in *" $$ "*) ;; *) unseen "this script is not among them"; return;; esac
  for p in "$@"; do
    case "$above" in *" $p "*) ;; *) printf '%s ' "$p";; esac
  done
  return $whole
}
pause() { sleep 0.05 2>/dev/null || sleep 1; }
"""

# Root without CAP_SYS_PTRACE does not see the processes of others where /proc is mounted with hidepid.
_HOLDERS = r"""
of_uid() {
  in_tasks status grep -lsE "^Uid:([[:space:]][0-9]+)*[[:space:]]$uid([[:space:]]|\$)|^Pid:[[:space:]]$$\$"
}
pids() {
  status /proc/$$ CapEff
  case $value in
    *[89a-fA-F]????) ;;
    *) [ "$(id -u)" = "$uid" ] || ! grep -qsE '^[^ ]+ /proc proc [^ ]*hidepid=[1-9nip]' /proc/self/mounts ||
      { unseen "/proc is mounted with hidepid"; return; };;
  esac
  numbers of_uid
}
"""

_CLOCK = r"""
# In hundredths: whole seconds would make one second anything between none and one.
uptime() { { read -r up _ </proc/uptime; } 2>/dev/null || up=0.00; up=$((${up%.*} * 100 + 1${up#*.} - 100)); }
uptime
stop=$((up + seconds * 100))
over() { uptime; [ $up -ge $stop ]; }
"""

# Stopped first, until nothing new appears: what forks faster than it is killed no longer forks then. Processes that
# each live shorter than a search takes are never found: once nothing else is left, `at_once` kills them unseen. Not
# before, because a process that lives longer could trace its shell and hold it. One round is made in any case, however
# slow the host is.
_ENDING = (
    _CLOCK
    + r"""
list() {
  left=$(pids)
  whole=$?
  [ $whole = 0 ] || [ $whole = 75 ] || exit 71
}
round=0
while :; do
  list
  [ -n "$left" ] || ! at_once || list
  [ -n "$left" ] && [ $round -lt 60 ] || break
  [ $round = 0 ] || ! over || break
  seen=
  n=0
  while [ "$left" != "$seen" ] && [ $n -lt 20 ]; do
    kill -s STOP $left 2>/dev/null
    seen=$left
    list
    n=$((n + 1))
    ! over || break
  done
  at_once
  kill -s KILL $left 2>/dev/null
  pause
  round=$((round + 1))
done
set -- $left
[ $whole = 0 ] || [ $# != 0 ] || set -- unknown
echo $#
"""
)

END_UID = (
    _LISTING
    + _UID
    + _HOLDERS
    + r"""
seconds=$2
[ "$(id -u)" != "$uid" ] || session=$(own_session)
# It kills all processes of the uid in one call of the kernel, and returns 1 where that is not possible.
# A process of the uid may trace this shell, which has its uid: it holds nothing, and nothing that it says is read.
at_once() {
  [ "$(id -u)" = 0 ] && command -v setpriv >/dev/null 2>&1 || return 1
  setpriv --reuid="$uid" --regid=65534 --clear-groups \
    /bin/sh -c '[ "$(id -u)" = "$1" ] && kill -s KILL -- -1' sh "$uid" </dev/null >/dev/null 2>&1
  return 0
}
"""
    + _ENDING
)
"""Script that ends every process with a thread that has a uid in any role. $1: the uid or account, $2: seconds.

Prints how many processes are left, at least 1 if it could not search to the end. Exits with 71 if the host does not
show its processes.
"""

END_MARKED = (
    _LISTING
    + r"""
mark=$1 home=$2 seconds=$3 session=$(own_session)
[ -n "$mark" ] && [ "${home#/?}" != "$home" ] || exit 64
of_mark() {
  {
    [ ! -r "/proc/$$/task/$$/environ" ] || echo "/proc/$$/"
    in_tasks environ grep -slzxF -- "$mark"
    in_tasks cwd ls -ld 2>/dev/null | while IFS= read -r line; do
      case $line in
        *" -> $home"|*" -> $home/"*|*" -> $home (deleted)") line=${line#* /proc/}; echo "/proc/${line%%/*}/";;
      esac
    done
  } | LC_ALL=C sort -u
}
pids() { numbers of_mark; }
at_once() { return 1; }
"""
    + _ENDING
)
"""Script that ends processes with a variable in their environment, or a working directory in a folder.

$1: the variable as NAME=value, $2: the folder, $3: seconds. Prints and exits as END_UID does.
"""

_BOUNDED = (
    _CLOCK
    + r"""
bounded() {
  uptime
  rest=$(((stop - up + 99) / 100))
  [ $rest -gt 0 ] || return 124
  if command -v timeout >/dev/null 2>&1; then timeout -s KILL $rest "$@"; else "$@"; fi
}
"""
)

# Clears the kernel keyrings of a uid, as that uid: root has no right to another's keys. The process cannot be traced
# by the uid, because the kernel makes one undumpable that gives up being root and starts no other program.
_KEYS_PYTHON = r"""
import ctypes, os, struct, sys
uid, bits = int(sys.argv[1]), 8 * struct.calcsize("P")
wide = {"x86_64": 250, "aarch64": 219, "riscv64": 219, "loongarch64": 219, "ppc64le": 271, "s390x": 280}
narrow = {"i686": 288, "x86_64": 288, "armv7l": 311, "aarch64": 311}
number, call = (wide if bits == 64 else narrow)[os.uname().machine], ctypes.CDLL(None).syscall
keyctl = lambda *words: call(number, *[ctypes.c_long(word) for word in words])
os.setgroups([])
os.setresgid(65534, 65534, 65534)
os.setresuid(uid, uid, uid)
join, setperm, clear, invalidate, everything = 1, 5, 7, 21, 0x3F3F0000
keyctl(join, 0)
for ring in (-5, -4):
    keyctl(setperm, ring, everything)
roots = [keyctl(0, -5, 0), keyctl(0, -4, 0), keyctl(22, -1, -2)]
with open("/proc/keys") as shown:
    fields = [line.split(None, 8) for line in shown]
own = [int(each[0], 16) for each in fields if each[5] == str(uid)]
for key in own:
    keyctl(setperm, key, everything)
for ring in (-5, -4, roots[2]):
    keyctl(clear, ring)
for key in roots + own:
    keyctl(invalidate, key)
"""
_KEYS_PERL = r"""
use POSIX; my ($uid) = @ARGV; my $machine = (POSIX::uname())[4];
my %numbers = (x86_64 => 250, aarch64 => 219, riscv64 => 219, loongarch64 => 219, ppc64le => 271, s390x => 280);
my $number = $numbers{$machine} or exit 1;
$) = "65534 65534"; POSIX::setgid(65534); POSIX::setuid($uid); $< == $uid && $> == $uid or exit 1;
sub keyctl { my @words = (@_, 0, 0, 0, 0); return syscall($number, @words[0 .. 4]); }
my $everything = 0x3f3f0000;
keyctl(1);
my @roots = map { keyctl(5, $_, $everything); keyctl(0, $_) } (-5, -4);
push @roots, keyctl(22, -1, -2);
open my $shown, "<", "/proc/keys"; my @own;
while (<$shown>) { my @each = split; push @own, hex $each[0] if $each[5] == $uid; }
keyctl(5, $_, $everything) for @own;
keyctl(7, $_) for (-5, -4, $roots[2]);
keyctl(21, $_) for @roots, @own;
"""

_KEYS = rf"""
python_program='{_KEYS_PYTHON}' perl_program='{_KEYS_PERL}'
has_keys() {{ grep -qsE "^ *$uid:" /proc/key-users; }}
clear_keys() {{
  has_keys && [ -z "$(pids)" ] || return 0
  for python in "$1" python3 /usr/libexec/platform-python; do
    command -v "$python" >/dev/null 2>&1 && "$python" -I -c "$python_program" "$uid" </dev/null >/dev/null 2>&1 && break
  done || perl -e "$perl_program" "$uid" </dev/null >/dev/null 2>&1
  n=0
  while has_keys && [ $n -lt 20 ]; do pause; n=$((n + 1)); done
}}
"""

SWEEP_UID = (
    _LISTING
    + _UID
    + _HOLDERS
    + _KEYS
    + r"""
seconds=$2 python=${3:-python3} homes=$4
"""
    + _BOUNDED
    + r"""
# A folder that somebody moves away while find is inside it ends the whole search, with the status of any small error.
# So each search goes on to the root folder and prints that last: without it, the search was not finished.
nothing() {
  found=$(bounded find "$@" / -xdev '(' -path / -prune -print ')' -o ! -name . -uid "$uid" -print -quit 2>/dev/null)
  [ "$found" = / ]
}
# What of a file system that the uid has mounted through FUSE is left when its server is gone.
while read -r _ _ _ _ point rest; do
  # $(...) drops newlines at the end, with which a mount point's name may end.
  point=$(printf '%b.' "$point")
  case ",${rest##* }," in *",user_id=$uid,"*) umount -l -- "${point%.}" 2>/dev/null;; esac
done </proc/self/mountinfo
left=0 places=
for place in /tmp /var/tmp /dev/shm /dev/mqueue /run /run/lock "/run/user/$uid" /var/spool /var/mail /var/crash; do
  [ ! -d "$place" ] || places="$places $place/."
done
nothing $places || for place in $places; do
  n=0
  until nothing "$place"; do
    [ $n -lt 10 ] || { left=1; break; }
    n=$((n + 1))
    bounded find "$place" -xdev ! -name . -uid "$uid" -delete 2>/dev/null
    # A folder with things of others in it stays, but belongs to nobody who comes after.
    bounded find "$place" -xdev ! -name . -type d -uid "$uid" -execdir chown -h 0:0 '{}' + 2>/dev/null
  done
done
# Message queues are there also where nobody has mounted them; root of a container may not be allowed to look.
queues='mount --make-rprivate / && mount -t mqueue mqueue /tmp && cd /tmp || exit 0
  find . ! -name . -uid "$1" -delete; [ -z "$(find . ! -name . -uid "$1" -print -quit)" ]'
if command -v unshare >/dev/null 2>&1 && unshare -m true 2>/dev/null; then
  bounded unshare -m /bin/sh -c "$queues" sh "$uid" 2>/dev/null || left=1
fi
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
# What systemd keeps of a uid for its owner to read.
boot='????????????????????????????????'
rm -f /var/lib/systemd/coredump/core.*."$uid".$boot.[0-9]* \
  /var/log/journal/*/user-"$uid".journal /var/log/journal/*/user-"$uid"@*.journal \
  /run/log/journal/*/user-"$uid".journal /run/log/journal/*/user-"$uid"@*.journal
clear_keys "$python"
# Files that another lease has taken into its home must not be those of whoever has the uid next, nor run as them. That
# is a search without an end on a large disk, so it has its seconds and no say: `no_new_privs` holds without it.
[ -z "$homes" ] || timeout -s KILL 5 find "$homes/." -xdev -uid "$uid" -execdir chown -h 0:0 '{}' + 2>/dev/null
echo $left
"""
)
"""Script that, as root, removes everything that a uid owns in world-writable places.

$1: the uid or account, $2: seconds, optionally $3: a Python interpreter, $4: the folder with the homes of leases.
Prints 0 if nothing is left there. `find -delete` follows no link and works from open folders. Kernel keys that the uid
has made unreadable stay until the machine reboots; such a uid is not assigned again (/proc/key-users).
"""

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
    point=$(printf '%b.' "$point")
    point=${point%.}
    case $point in "$home"|"$home"/*) umount -l -- "$point" 2>/dev/null;; esac
  done </proc/self/mountinfo
fi
remove() { bounded rm -rf --one-file-system -- "$home" 2>/dev/null; }
there && remove
# Another lease may still write in a folder that this one has opened to it, and swap a name for a link at any moment.
# So root changes no modes, which it does not need to, and gives chattr only names that are no links beside where they
# are; the folder itself is closed to others first.
if there && [ ! -L "$home" ]; then
  if [ "$(id -u)" != 0 ]; then
    bounded find "$home" -xdev -type d ! -perm -700 -exec chmod u+rwx '{}' ';' 2>/dev/null
  else
    chown 0:0 -- "$home" && chmod 700 -- "$home"
    ! command -v chattr >/dev/null 2>&1 ||
      bounded find "$home" -xdev '(' -type d -o -type f ')' -execdir chattr -f -i -a '{}' + 2>/dev/null
  fi
  remove
fi
if there; then echo 1; else echo 0; fi
"""
)
"""Script that removes a folder without following links, and prints 0 once it is gone. $1: its path, $2: seconds.

The folders above it must not belong to the lease.
"""
