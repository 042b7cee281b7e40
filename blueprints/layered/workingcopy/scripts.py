"""What runs on the host, as jobs. git there reads no configuration but ours, runs no hooks, and asks nobody."""

from __future__ import annotations

# Secrets come in the environment, which the job's runner has removed from disk; never as arguments.
_PRELUDE = r"""
umask 077
export DRYDOCK_GIT="$HOME/.drydock/git"
rm -rf -- "$DRYDOCK_GIT"
mkdir -p -- "$DRYDOCK_GIT" || exit 71
trap 'rm -rf -- "$DRYDOCK_GIT"' EXIT
trap 'exit 143' TERM INT HUP
printf '[safe]\n\tdirectory = *\n' >"$DRYDOCK_GIT/config"
printf '%s\n' "$DRYDOCK_KNOWN_HOSTS" >"$DRYDOCK_GIT/known_hosts"
ssh='ssh -F /dev/null -o BatchMode=yes -o StrictHostKeyChecking=yes -o ConnectTimeout=20'
id -un >/dev/null 2>&1 || ssh="unshare -r $ssh"
ssh="$ssh -o GlobalKnownHostsFile=/dev/null -o UserKnownHostsFile=\"\$DRYDOCK_GIT/known_hosts\""
if [ -n "$DRYDOCK_KEY" ]; then
  printf '%s\n' "$DRYDOCK_KEY" >"$DRYDOCK_GIT/key"
  ssh="$ssh -o IdentitiesOnly=yes -i \"\$DRYDOCK_GIT/key\""
fi
if [ -n "$DRYDOCK_PASSWORD" ]; then
  printf %s "$DRYDOCK_USERNAME" >"$DRYDOCK_GIT/username"
  printf %s "$DRYDOCK_PASSWORD" >"$DRYDOCK_GIT/password"
  printf %s "$DRYDOCK_PROMPTS" >"$DRYDOCK_GIT/prompts"
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
unset DRYDOCK_KEY DRYDOCK_PASSWORD DRYDOCK_USERNAME DRYDOCK_PROMPTS DRYDOCK_KNOWN_HOSTS
export GIT_SSH_COMMAND="$ssh" GIT_SSH_VARIANT=ssh GIT_CONFIG_GLOBAL="$DRYDOCK_GIT/config" GIT_CONFIG_NOSYSTEM=1
export GIT_TERMINAL_PROMPT=0 GIT_LFS_SKIP_SMUDGE=1 LC_ALL=C
copy=$1
umask 022
g() {
  git -c core.hooksPath=/dev/null -c core.fsmonitor=false -c gc.auto=0 -c maintenance.auto=false \
    -c advice.detachedHead=false -c submodule.recurse=false \
    -c http.followRedirects="${DRYDOCK_REDIRECTS:-false}" -C "$copy" "$@"
}
drop() {
  for each in "$@"; do
    { [ -e "$each" ] || [ -L "$each" ]; } || continue
    [ -L "$each" ] || chmod -R u+rwX -- "$each" 2>/dev/null
    rm -rf -- "$each" || exit 1
  done
}
"""
_FETCH = r"""
url=$2 depth=$3
[ -d "$copy/.git/refs" ] || { drop "$copy"; git init -q --template= -- "$copy" || exit 1; }
chmod 700 -- "$copy"
g config remote.origin.url "$url" && g config remote.origin.fetch '+refs/heads/*:refs/remotes/origin/*' || exit 1
shallow=
[ "$depth" = 0 ] || shallow="--depth=$depth"
g fetch --progress --prune --tags --force --no-recurse-submodules --no-write-fetch-head $shallow origin || exit 1
g for-each-ref --format='delete %(refname)' refs/drydock | g update-ref --stdin
g remote set-head origin -a >/dev/null 2>&1 || g remote set-head origin -d >/dev/null 2>&1
"""
_CHECKOUT = r"""
ref=$4 branch=
if [ -z "$ref" ]; then
  ref=$(g symbolic-ref -q refs/remotes/origin/HEAD) || { echo 'fatal: the repository has no default branch'; exit 3; }
  ref=${ref#refs/remotes/origin/}
fi
commit() { g rev-parse -q --verify "$1^{commit}"; }
if at=$(commit "refs/remotes/origin/${ref#refs/heads/}"); then branch=${ref#refs/heads/}
elif at=$(commit "refs/tags/${ref#refs/tags/}"); then :
else
  case $ref in
    *[!0-9a-f]*) echo "fatal: no branch, tag or commit $ref"; exit 3;;
    ????????????????????????????????????????*) ;;
    *) echo "fatal: no branch, tag or commit $ref"; exit 3;;
  esac
  at=$(commit "$ref") || {
    g fetch --progress --no-tags --no-recurse-submodules --no-write-fetch-head $shallow origin "$ref" || exit 3
    at=$(commit "$ref") || exit 3
  }
fi
if [ -n "$branch" ]; then g checkout -q --progress -f --no-track -B "$branch" "$at" -- || exit 1
  g config "branch.$branch.remote" origin && g config "branch.$branch.merge" "refs/heads/$branch"
else g checkout -q --progress -f --detach "$at" -- || exit 1; fi
g reset -q --hard && g clean -q -ffdx || exit 1
[ -z "$5" ] || g config user.name "$5"
[ -z "$6" ] || g config user.email "$6"
printf '\ndrydock %s %s\n' "$at" "$branch"
"""
# Nothing of the old repository but its objects is kept, and of these each is compared with its own number: what the
# next lease sees is what the origin has, whatever the one before did to configuration, refs, caches and packs.
_PRISTINE = r"""
new=$copy.new old=$copy
anew() { drop "$old" "$new"; git init -q --template= -- "$old"; exit $?; }
drop "$new"
keep=1
for each in "$copy" "$copy/.git" "$copy/.git/objects"; do [ -d "$each" ] && [ ! -L "$each" ] || keep=; done
[ ! -e "$copy/.git/shallow" ] || keep=
[ -z "$keep" ] || [ -z "$(find "$copy/.git/objects" ! -type d ! -type f | head -n 1)" ] || keep=
[ -n "$keep" ] || anew
for each in packed-refs refs refs/remotes; do [ ! -L "$copy/.git/$each" ] || anew; done
{ [ ! -f "$copy/.git/packed-refs" ] || cat "$copy/.git/packed-refs"
  find "$copy/.git/refs/remotes" -type f -size -2 -exec cat '{}' + 2>/dev/null
} | grep -oE '^([0-9a-f]{64}|[0-9a-f]{40})([^0-9a-f]|$)' | grep -oE '^[0-9a-f]+' |
  sort -u | head -n 50000 >"$DRYDOCK_GIT/tips"
git init -q --template= -- "$new" || exit 1
drop "$new/.git/objects"
chmod -R u+rwX -- "$old/.git/objects"
mv -- "$old/.git/objects" "$new/.git/objects" || exit 1
drop "$new/.git/objects/info"
find "$new/.git/objects" -type f ! -path '*/pack/*.pack' ! -path '*/pack/*.idx' \
  ! -path '*/objects/[0-9a-f][0-9a-f]/*' -delete
mkdir -p -- "$new/.git/objects/info" "$new/.git/objects/pack"
drop "$old"
copy=$new
g fsck --full --no-dangling --no-progress >/dev/null 2>&1 || anew
g cat-file --batch-check='%(objecttype) %(objectname)' <"$DRYDOCK_GIT/tips" 2>/dev/null |
  sed -n 's|^commit \([0-9a-f]*\)$|create refs/drydock/\1 \1|p' | g update-ref --stdin || anew
g rev-list --objects --quiet --all >/dev/null 2>&1 || anew
mv -T -- "$new" "$old"
"""

# ssh works for accounts with a name only. In a user namespace of its own, an account without one is called root, and
# is to the world what it was.
SSH_HINDRANCE = r"""
command -v ssh >/dev/null 2>&1 || { echo 'it has no ssh'; exit 0; }
id -un >/dev/null 2>&1 || unshare -r true >/dev/null 2>&1 ||
  echo "ssh wants an account with a name, uid $(id -u) has none there, and user namespaces (unshare -r) are not allowed"
"""
"""Prints why the account could not use ssh; nothing when it can."""

FETCH = _PRELUDE + _FETCH
"""$1 folder, $2 address, $3 depth or 0. Makes the repository or brings it up to date; no files are checked out."""

CHECKOUT = _PRELUDE + _FETCH + _CHECKOUT
"""The same and $4 ref or empty, $5 and $6 name and address of the author. Its last line is `drydock commit branch`."""

PRISTINE = _PRELUDE + _PRISTINE
"""$1 folder. Leaves a repository with objects that are proven genuine and nothing else, or an empty one."""
