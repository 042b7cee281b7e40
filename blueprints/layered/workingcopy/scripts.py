"""Scripts that run on the host as jobs.

Their git reads no configuration except Drydock's, runs no hooks, and never prompts a person. Two accounts take part
besides root, and neither receives the other's data. git's own account, which is never given to a lease, talks to the
repository and keeps a mirror of it; only this account has the credential. The lease's account gets a checked-out copy
of that mirror, and Drydock runs nothing as that account. If the host cannot be reached from outside, one account does
everything, without a credential.
"""

from __future__ import annotations

# The credential comes as input: it is in no argument, and in no environment.
_PRELUDE = r"""
umask 077
work=$1 redirects=$3
cd -- "$work" || exit 71
export HOME="$work" DRYDOCK_GIT="$work/secret" GIT_ALLOW_PROTOCOL="$2" LC_ALL=C
rm -rf -- "$DRYDOCK_GIT" && mkdir -- "$DRYDOCK_GIT" || exit 71
trap 'rm -rf -- "$DRYDOCK_GIT"' EXIT
trap 'exit 143' TERM INT HUP
printf '[safe]\n\tdirectory = *\n' >"$DRYDOCK_GIT/config"
printf '%s\n' "$4" >"$DRYDOCK_GIT/known_hosts"
printf %s "$5" >"$DRYDOCK_GIT/prompts"
IFS= read -r username
IFS= read -r password
cat >"$DRYDOCK_GIT/key"
ssh='ssh -F /dev/null -o BatchMode=yes -o StrictHostKeyChecking=yes -o ConnectTimeout=20'
id -un >/dev/null 2>&1 || ssh="unshare -r $ssh"
ssh="$ssh -o GlobalKnownHostsFile=/dev/null -o UserKnownHostsFile=\"\$DRYDOCK_GIT/known_hosts\""
[ ! -s "$DRYDOCK_GIT/key" ] || ssh="$ssh -o IdentitiesOnly=yes -i \"\$DRYDOCK_GIT/key\""
if [ -n "$password" ]; then
  printf %s "$username" >"$DRYDOCK_GIT/username"
  printf %s "$password" >"$DRYDOCK_GIT/password"
  cat >"$DRYDOCK_GIT/ask" <<'ASK'
#!/bin/sh
while IFS= read -r each; do
  [ "$1" = "$each" ] || continue
  case $1 in Username*) cat "$DRYDOCK_GIT/username";; *) cat "$DRYDOCK_GIT/password";; esac
  exit
done <"$DRYDOCK_GIT/prompts"
exit 1
ASK
  chmod 700 "$DRYDOCK_GIT/ask"
  export GIT_ASKPASS="$DRYDOCK_GIT/ask"
fi
unset username password
export GIT_SSH_COMMAND="$ssh" GIT_SSH_VARIANT=ssh GIT_CONFIG_GLOBAL="$DRYDOCK_GIT/config" GIT_CONFIG_NOSYSTEM=1
export GIT_TERMINAL_PROMPT=0 GIT_LFS_SKIP_SMUDGE=1
umask 022
at=$work/mirror
g() {
  git -c core.hooksPath=/dev/null -c core.fsmonitor=false -c gc.auto=0 -c maintenance.auto=false \
    -c advice.detachedHead=false -c submodule.recurse=false -c http.followRedirects="$redirects" -C "$at" "$@"
}
"""
_FETCH = r"""
url=$6 depth=$7
# A run that was killed may have left locks; there is one at a time.
[ ! -d "$at" ] || find "$at" -name '*.lock' -type f -delete
[ -d "$at/.git/refs" ] || { rm -rf -- "$at"; git init -q --template= -- "$at" || exit 1; }
g config remote.origin.url "$url" && g config remote.origin.fetch '+refs/heads/*:refs/remotes/origin/*' || exit 1
shallow=
[ "$depth" = 0 ] || shallow="--depth=$depth"
get() {
  g fetch --progress --prune --prune-tags --tags --force --no-recurse-submodules --no-write-fetch-head $shallow origin
}
get || {
  # A mirror that is damaged, as by a full disk, is made anew.
  ! g fsck --connectivity-only --no-dangling --no-progress >/dev/null 2>&1 || exit 1
  rm -rf -- "$at"/.git/refs "$at"/.git/packed-refs "$at"/.git/objects "$at"/.git/shallow
  git init -q --template= -- "$at" && get || exit 1
}
g remote set-head origin -a >/dev/null 2>&1 || g remote set-head origin -d >/dev/null 2>&1
"""
_CHECKOUT = r"""
[ "$8" = checkout ] || exit 0
ref=$9 branch=
if [ -z "$ref" ]; then
  ref=$(g symbolic-ref -q refs/remotes/origin/HEAD) || { echo 'fatal: the repository has no default branch'; exit 3; }
  ref=${ref#refs/remotes/origin/}
fi
commit() { g rev-parse -q --verify "$1^{commit}"; }
if found=$(commit "refs/remotes/origin/${ref#refs/heads/}"); then branch=${ref#refs/heads/}
elif found=$(commit "refs/tags/${ref#refs/tags/}"); then :
else
  case $ref in
    *[!0-9a-f]*) echo "fatal: no branch, tag or commit $ref"; exit 3;;
    ????????????????????????????????????????*) ;;
    *) echo "fatal: no branch, tag or commit $ref"; exit 3;;
  esac
  found=$(commit "$ref") || {
    g fetch --progress --no-tags --no-recurse-submodules --no-write-fetch-head $shallow origin "$ref" || exit 3
    found=$(commit "$ref") || exit 3
  }
fi
copy=$work/copy
rm -rf -- "$copy" && mkdir -- "$copy" && cp -R -- "$at/.git" "$copy/.git" || exit 1
at=$copy
if [ -n "$branch" ]; then g checkout -q --progress -f --no-track -B "$branch" "$found" -- || exit 1
  g config "branch.$branch.remote" origin && g config "branch.$branch.merge" "refs/heads/$branch"
else g checkout -q --progress -f --detach "$found" -- || exit 1; fi
[ -z "${10}" ] || g config user.name "${10}"
[ -z "${11}" ] || g config user.email "${11}"
printf '\ndrydock %s %s\n' "$found" "$branch"
"""

GIT = _PRELUDE + _FETCH + _CHECKOUT
"""$1 folder for git, $2 protocols, $3 whether redirects are followed, $4 known hosts, $5 prompts that are answered, $6
address, $7 depth or 0, $8 `fetch` or `checkout`, $9 ref or empty, $10 and $11 name and address of the author. Input:
username, password, then the private key. Its last line after a checkout is `drydock commit branch`."""

# The copy is taken out of git's reach, then given to the lease's account, then put in its place; root alone can change
# the folders in which that happens.
WORK = r"""
umask 077
base=$1 git=$2 folder=$3 uid=$4 gid=$5 inner=$6 checkout=${13}
shift 6
work=$base/git drop=
mkdir -p -- "$work" || exit 71
if [ -n "$git" ]; then
  chown "$git:$git" -- "$work" || exit 71
  drop="setpriv --reuid=$git --regid=$git --clear-groups --no-new-privs --inh-caps=-all --"
  $drop true || { echo 'fatal: git cannot be given an account of its own there'; exit 3; }
  # ssh refuses an account without a name, except as root of a user namespace.
  case $5 in
    http://*|https://*|git://*|file://*) ;;
    *) $drop unshare -r true 2>/dev/null || drop=;;
  esac
fi
cd / || exit 71
$drop env -i PATH="$PATH" /bin/sh -c "$inner" sh "$work" "$@"
code=$?
rm -rf -- "$work/secret"
[ $code = 0 ] || exit $code
[ "$checkout" = checkout ] || exit 0
new=$base/new
remove() {
  for each; do
    # Root needs no modes, and must change none by a path that others may have opened to themselves.
    [ "$(id -u)" = 0 ] || [ -L "$each" ] || chmod -R u+rwX -- "$each" 2>/dev/null
    rm -rf -- "$each" || exit 1
  done
}
remove "$new"
mv -T -- "$work/copy" "$new" && [ -d "$new" ] && [ ! -L "$new" ] || exit 1
remove "$folder" "$folder.home"
mkdir -- "$folder.home" || exit 1
[ -z "$uid" ] || chown -R -h "$uid:$gid" -- "$new" "$folder.home" || exit 1
chmod 700 -- "$new" && mv -T -- "$new" "$folder"
"""
"""$1 control folder in the home, $2 git's account or empty, $3 folder of the copy, $4 and $5 account and group of the
lease or empty, $6 `GIT`, and its arguments from $2 on."""

FORGET = 'rm -rf -- "$1/git/secret" "$1/git/copy" "$1/new"'
"""$1 control folder. Removes the files left by a job that was ended."""

THERE = '[ -d "$1/git/mirror/.git" ] && echo 1 || echo 0'
"""$1 control folder. Prints 1 if the mirror exists, else 0."""

TOOLS = r"""
command -v git >/dev/null 2>&1 || { echo 'git is not installed'; exit 0; }
[ -z "$1" ] || command -v setpriv >/dev/null 2>&1 || { echo 'setpriv (util-linux) is not installed'; exit 0; }
[ "$2" != ssh ] || command -v ssh >/dev/null 2>&1 || echo 'ssh is not installed'
"""
"""$1 git's account or empty, $2 protocol of the repository. Prints the missing tools."""
