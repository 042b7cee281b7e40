"""Shell scripts for lease accounts on a host. They run as root, except the ones for the shared account."""

from __future__ import annotations

from blueprints.devices.scripts import REVOKE_ACCOUNT

_AGAIN = r"""
# /etc/passwd is locked while somebody else changes it.
again() { n=0; until "$@"; do n=$((n + 1)); [ $n -lt 20 ] || return 1; sleep 0.2 2>/dev/null || sleep 1; done; }
"""

_UIDS = r"""
counter=/var/lib/drydock-accounts/uid
setting() { sed -n "s/^$1[[:space:]][[:space:]]*\([0-9][0-9]*\).*/\1/p" /etc/login.defs 2>/dev/null | tail -n 1; }
least=$(setting UID_MIN) most=$(setting UID_MAX)
least=${least:-1000} most=${most:-60000}
in_use() {
  getent passwd "$1" >/dev/null || getent group "$1" >/dev/null || grep -qsE "^ *$1:" /proc/key-users ||
    echo /proc/[0-9]*/task/[0-9]*/status |
    xargs grep -lsE "^[UG]id:([[:space:]][0-9]+)*[[:space:]]$1([[:space:]]|\$)" | grep -q .
}
# useradd alone gives out again what the last lease had. The uids go round instead: a process, setuid file or key that
# an older lease has kept in some way then belongs to nobody for as long as there are others.
next_uid() {
  read -r uid 2>/dev/null <"$counter" || uid=$(getent passwd | cut -d: -f3 | sort -n |
    while read -r each; do [ "$each" -gt "$most" ] || echo "$each"; done | tail -n 1)
  n=0
  while :; do
    uid=$((uid + 1)) n=$((n + 1))
    [ "$uid" -ge "$least" ] && [ "$uid" -le "$most" ] || uid=$least
    in_use "$uid" || break
    [ $n -le $((most - least)) ] || { echo "No uid from $least to $most is free." >&2; return 1; }
  done
  echo "$uid" >"$counter.new" && mv -f "$counter.new" "$counter" && echo "$uid"
}
locked_counter() {
  (umask 077; mkdir -p "${counter%/*}") || return 1
  exec 9>"$counter.lock"
  ! command -v flock >/dev/null 2>&1 || flock 9
}
"""

TOOLS = r"""
for tool in useradd userdel usermod groupdel groupmod su find grep sed sort xargs rm chown getent id; do
  command -v $tool >/dev/null 2>&1 || printf '%s ' $tool
done
[ -r /proc/self/status ] || printf '/proc '
[ -d "$1" ] || printf '%s ' "$1"
[ "$2" != sudo ] || { command -v visudo >/dev/null 2>&1 && [ -d /etc/sudoers.d ]; } || printf 'sudo '
"""
"""$1 folder of homes, $2 `sudo` if leases get it. Prints the missing tools."""

MAKE_ACCOUNT = (
    _AGAIN
    + _UIDS
    + r"""
user=$1 home=$2 comment=$3
if ! id -u "$user" >/dev/null 2>&1; then
  locked_counter && number=$(next_uid) || exit 1
  shell=/bin/sh; [ -x /bin/bash ] && shell=/bin/bash
  group=-U; getent group "$user" >/dev/null && group="-g $user"
  # A locked password ("!") would have some SSH servers refuse keys as well; "*" is one that nothing matches.
  # Subordinate uids would let it own files and processes under other numbers than its own.
  again useradd -u "$number" -M -d "$home" -s $shell -p '*' -c "$comment" $group -K SUB_UID_COUNT=0 -K SUB_GID_COUNT=0 \
    "$user" >&2 9>&- || exit 1
  exec 9>&-
fi
uid=$(id -u "$user") && gid=$(id -g "$user") || exit 1
[ "$uid" -ge 1000 ] || { echo "The account $user has the uid $uid." >&2; exit 1; }
if [ ! -d "$home" ]; then
  rm -rf "$home.new~"
  mkdir -m 700 "$home.new~" || exit 1
  cp -R /etc/skel/. "$home.new~" 2>/dev/null
  chown -R -h "$uid:$gid" "$home.new~" && mv "$home.new~" "$home" || exit 1
fi
echo "$uid $gid"
"""
)
"""$1 user, $2 home, $3 comment. Prints uid and gid. May be repeated; a home is filled only when it is new."""

RENUMBER = (
    _AGAIN
    + _UIDS
    + r"""
user=$1
id -u "$user" >/dev/null 2>&1 || { echo "The account $user does not exist." >&2; exit 1; }
locked_counter && number=$(next_uid) || exit 1
again usermod -u "$number" "$user" >&2 9>&- && again groupmod -g "$number" "$user" >&2 9>&- || exit 1
[ "$(id -u "$user") $(id -g "$user")" = "$number $number" ] ||
  { echo "The uid of $user has not changed." >&2; exit 1; }
"""
)
"""$1 user, which no longer runs or owns anything. Gives it the uid and gid that have been unused by leases the longest;
`usermod` refuses an account that has processes."""

CAN_RUN_UNITS = r"""
[ ! -d /run/systemd/system ] || [ ! -e /sys/fs/cgroup/cgroup.controllers ] || ! command -v podman >/dev/null 2>&1 ||
  echo units
"""
"""Prints `units` if the host has systemd, control groups of version 2 and podman."""

NUMBERS = 'id -u "$1" && id -g "$1"'
"""$1 user. Prints uid and gid."""

OPEN_ACCESS = (
    _AGAIN
    + r"""
user=$1 home=$2 sudo=$3
again usermod -e '' "$user" >&2 || exit 1
# Written with the account's own rights: whatever it has put in the way leads nowhere it could not go itself.
su -s /bin/sh -c 'umask 077; cd "$HOME" && mkdir -p .ssh && chmod 700 .ssh && cat >.ssh/keys.$$ &&
  mv -f .ssh/keys.$$ .ssh/authorized_keys' "$user" >&2 || exit 1
rules=/etc/sudoers.d/$user
if [ "$sudo" = sudo ]; then
  umask 077
  echo "$user ALL=(ALL:ALL) NOPASSWD: ALL" >"$rules.new~" && visudo -cqf "$rules.new~" >&2 && chmod 440 "$rules.new~" &&
    mv -f "$rules.new~" "$rules" || exit 1
fi
"""
)
"""$1 user, $2 home, $3 `sudo` or empty. Reads the authorized keys from standard input."""

CLOSE_ACCESS = (
    _AGAIN
    + r"""
user=$1
rm -f "/etc/sudoers.d/$user" "/etc/sudoers.d/$user.new~"
id -u "$user" >/dev/null 2>&1 || exit 0
again usermod -e 1 "$user" >&2 || exit 1
if command -v loginctl >/dev/null 2>&1 && [ -d /run/systemd/system ]; then
  timeout 5 loginctl disable-linger "$user" 2>/dev/null
  timeout 5 loginctl terminate-user "$user" 2>/dev/null
fi
if command -v crontab >/dev/null 2>&1; then crontab -r -u "$user" 2>/dev/null; fi
exit 0
"""
)
"""$1 user. Prevents the account from starting anything new: logins, sudo and scheduled jobs."""

TAKE_FROM_FORMER = r"""
user=$1 home=$2
homes=${home%/*}
chmod 700 -- "$home" && rm -rf -- "$home/.ssh" || exit 1
if [ -e "$home/.ssh" ] || [ -L "$home/.ssh" ]; then echo "$home/.ssh cannot be removed." >&2; exit 1; fi
# A folder that is moved away while find is inside it ends the search. A finished search has printed the root folder.
found=$(timeout -s KILL 5 find "$homes/." / -xdev '(' -path / -prune -print ')' -o \
  -path "$homes/./${home##*/}" -prune -o -uid "$(id -u "$user")" -execdir chown -h 0:0 '{}' + 2>/dev/null)
[ "$found" = / ] || echo unfinished
"""
"""$1 user, $2 home. Removes the files through which the former owner could get in later. Run it after CLOSE_ACCESS,
when no process of the account is left.

All of ~/.ssh is removed, because sshd reads other files there besides authorized_keys, and private keys in it belong to
the former owner. Set-uid files of the account in the homes of other leases could run as it. Prints `unfinished` if
those homes could not be searched to the end.
"""

DROP_SETUID = r"""
su -s /bin/sh -c 'cd "$HOME" &&
  find . -xdev -type f "(" -perm -4000 -o -perm -2000 ")" -exec chmod ug-s "{}" +' "$1" >&2
"""
"""$1 user. Clears the setuid and setgid bits of all files in the home, so that no file runs as the account if another
user starts it. Runs with the account's own rights, because a process of another lease may still work in one of its
folders."""

ASIDE = ".drydock-aside"
"""Subfolder of the folder of homes, for homes of former leases that could not be removed yet."""

PUT_ASIDE = rf"""
home=$1 place=${{1%/*}}/{ASIDE}
[ ! -L "$place" ] && mkdir -p -m 700 "$place" && chown 0:0 "$place" && chmod 700 "$place" || exit 1
place=$place/${{home##*/}}
mkdir -p -m 700 "$place" || exit 1
if [ -e "$home" ] || [ -L "$home" ]; then mv -- "$home" "$place/home"; fi
"""
"""$1 home. Moves the home to a path that only root can reach. A process that still works in the home keeps its open
files and nothing else. The surrounding folder also records that something is left elsewhere."""

PUT_ASIDE_THERE = rf"""
for each in "$1"/{ASIDE}/"$2"*; do [ ! -d "$each" ] || echo "${{each##*/}}"; done
rmdir "$1"/{ASIDE} 2>/dev/null
exit 0
"""
"""$1 folder of homes, $2 prefix. Prints the accounts whose homes were set aside, and removes the folder when it is
empty."""

REMOVE_ACCOUNT = (
    f"({REVOKE_ACCOUNT}) || exit $?\n"
    + _AGAIN
    + rf"""
[ ! -d "${{2%/*}}/{ASIDE}/${{2##*/}}" ] || exit 0
"""
    + r"""
user=$1 home=$2
if id -u "$user" >/dev/null 2>&1; then again userdel "$user" >&2 || exit 1; fi
if getent group "$user" >/dev/null; then again groupdel "$user" >&2 || exit 1; fi
rm -rf "/var/mail/$user" "/var/spool/mail/$user" "/var/spool/cron/crontabs/$user" "/var/spool/cron/$user" \
  "/var/lib/systemd/linger/$user" "$home.new~"
if id -u "$user" >/dev/null 2>&1 || [ -e "$home" ]; then exit 1; fi
"""
)
"""$1 user, $2 home, which must be gone. Fails unless the account is gone at the end; `userdel` refuses one that has
processes. Keeps an account whose home was set aside, so that its uid is not reused. Takes back its devices first."""

ACCOUNTS = r"""
getent passwd | cut -d: -f1 | while IFS= read -r name; do
  case $name in "$1"*) echo "$name";; esac
done
"""
"""$1 prefix. Prints the accounts whose names start with it."""

SHARED_OPEN = r"""
folder=$1 mark=$2
cd && umask 077 && mkdir -p .ssh && mkdir -p "$folder" && touch .ssh/authorized_keys || exit 1
{ grep -vF " $mark" .ssh/authorized_keys; cat; } >.ssh/keys.$$
chmod 600 .ssh/keys.$$ && mv -f .ssh/keys.$$ .ssh/authorized_keys || exit 1
cd "$folder" && pwd -P && id -u && id -g
"""
"""$1 folder below the home, $2 mark. Reads the lease's keys from standard input, each with the mark as its comment."""

SHARED_CLOSE = r"""
mark=$1
cd || exit 1
[ -f .ssh/authorized_keys ] && grep -qF " $mark" .ssh/authorized_keys || exit 0
umask 077
grep -vF " $mark" .ssh/authorized_keys >.ssh/keys.$$
mv -f .ssh/keys.$$ .ssh/authorized_keys
"""
"""$1 mark. Removes the keys that have this mark."""

SHARED_LEFT = (
    'cd && for one in "$2/$3"*; do [ -e "$one" ] && echo "$one"; done; rmdir "$2" 2>/dev/null\n'
    'grep -o "$1.*" .ssh/authorized_keys; exit 0\n'
)
"""$1 mark shared by all leases of the host, $2 the folder of leases, $3 the prefix of their names in it. Prints the
remaining folders and keys of leases, and ignores everything else in the account."""
