"""Rows about files: in world-writable directories, the home, a repository, and places from which work is started."""

from __future__ import annotations

from blueprints.leftovers.values import Row

_PLACES = (
    ("tmp", "/tmp", "Files and closed folders in /tmp are removed."),  # noqa: S108 - looked at, not used
    ("var-tmp", "/var/tmp", "Files and closed folders in /var/tmp are removed."),  # noqa: S108
    ("dev-shm", "/dev/shm", "Files and closed folders in /dev/shm are removed."),  # noqa: S108
    ("run-lock", "/run/lock", "Files and closed folders in /run/lock are removed."),
)
_COMMON = "In world-writable places, files of a shared account may belong to Drydock or another lease."
_TIMED = "It belongs to the account, and the operator of a shared account may use it too."
_IN_PLACE = r"""
[ -w @PLACE@ ] || impossible "@PLACE@ is not open to all"
cd @PLACE@ && echo left >"$t" && mkdir -p -m 700 "$t.d" && ln -s /etc "$t.d/link" && cp /bin/true "$t.d/program" &&
  chmod 6755 "$t.d/program" && chmod 0 "$t.d"
"""
_ODD = r"""
cd -- "$HOME" && mkdir -p -- "$t" && cd -- "$t" || exit 1
: >'-rf' && : >'*' && : >"$(printf 'two\nlines')" && : >"$(printf '\377\376')" && : >' ' && ln -s / root && mkfifo pipe
: >"$(printf 'n%.0s' $(seq 200) 2>/dev/null || echo long)"
"""
_DEEP = r"""
cd -- "$HOME" && mkdir -p -- "$t" && cd -- "$t" || exit 1
n=0; while [ $n -lt 300 ]; do mkdir d && cd ./d || exit 1; n=$((n + 1)); done
"""
_CLOSED = r"""
cd -- "$HOME" && mkdir -p -- "$t/a/b" && : >"$t/a/b/c" && chmod 0 "$t/a/b" && chmod 500 "$t/a" && chmod 0 "$t"
"""
_OPEN_AGAIN = r'cd -- "$was" && chmod -R u+rwX -- "$t" 2>/dev/null; rm -rf -- "$t"'
_IMMUTABLE = r"""
cd -- "$HOME" && : >"$t" || exit 1
chattr +i "$t" 2>/dev/null || { rm -f "$t"; impossible "the account may not make files immutable"; }
"""
_CRON = r"""
before=$(crontab -l 2>/dev/null)
said=$({ [ -z "$before" ] || printf '%s\n' "$before"; echo "0 0 1 1 * : $t"; } | crontab - 2>&1) || impossible "$said"
"""
_CRON_LOOK = r"""
if [ "$(id -u)" = 0 ] && [ "$uid" != 0 ]; then grep -rsF -- "$t" /var/spool/cron | grep -q .; exit; fi
same_uid
crontab -l 2>/dev/null | grep -qF -- "$t"
"""
_CRON_UNDO = r"""
rest=$(crontab -l 2>/dev/null | grep -vF -- "$t")
if [ -n "$rest" ]; then printf '%s\n' "$rest" | crontab -; else crontab -r 2>/dev/null; fi
"""
_AT = r"""
said=$(echo ": $t" | at now + 300 days 2>&1) || impossible "$said"
said=$(printf '%s\n' "$said" | sed -n 's/^job \([0-9]*\) .*/\1/p')
[ -n "$said" ] || impossible "at did not take it"
echo "$said"
"""
_AT_LOOK = r"""
if [ "$(id -u)" = 0 ] && [ "$uid" != 0 ]; then
  grep -rsF -- "$t" /var/spool/cron/atjobs /var/spool/at /var/spool/atjobs | grep -q .; exit
fi
same_uid
at -c "$note" 2>/dev/null | grep -qF -- "$t"
"""
_USER_UNIT = r"""
export XDG_RUNTIME_DIR="${XDG_RUNTIME_DIR:-/run/user/$(id -u)}"
systemctl --user show-environment >/dev/null 2>&1 || impossible "no systemd serves the account"
said=$(systemd-run --user --quiet --collect --unit "$t" /bin/sh -c "$life" "$t" 2>&1) || impossible "$said"
"""
_LINGER = r"""
[ -d /run/systemd/system ] || impossible "systemd does not run here"
said=$(timeout 5 loginctl enable-linger 2>&1) || impossible "$said"
id -un
"""
# While it is armed, and for ten minutes at most, it answers every script in the place of the shell: with the mark that
# the script would have printed, and 0.
_LYING = r"""
lie="[ ! -e '$HOME/.$t-armed' ] || [ \$(date +%s) -gt $(($(date +%s) + 600)) ] || { IFS= read -r s
m=\$(printf %s \"\$s\" | grep -o 'drydock-[0-9a-f]\{24\}' | head -n 1)
printf '%s %s ok\n0\n' \"\$m\" \"\$\$.1.1\"; echo \"\$m\" >&2; exit 0; } # $t"
lies() { for one in .bashrc .bash_profile .profile .bash_login .zshenv; do printf '%s\n' "$lie" >>"./$one"; done; }
each_home lies
"""
_LYING_LOOK = r"""
for one in .bashrc .bash_profile .profile .bash_login .zshenv; do in_homes "$one" "$t" && exit 0; done
exit 1
"""
_LYING_UNDO = r"""
rm -f "$was/.$t-armed"
honest() {
  for one in .bashrc .bash_profile .profile .bash_login .zshenv; do
    [ ! -f "$one" ] || ! grep -qF "$t" "$one" || rm -f "./$one"
  done
}
each_home honest
"""
_KEY = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAIE2ZhRrnp9Z9HqMpi8SVGeoJkkVwhyd3yYvGGVdR7HJk"
_REPOSITORY = r"""
cd -- "$copy" || exit 1
git rev-parse --git-dir >/dev/null 2>&1 && [ -d .git ] || impossible "the lease has no repository"
"""
_HOOKS = r"""
mkdir -p .git/hooks
for hook in post-checkout pre-commit post-merge reference-transaction; do
  printf '#!/bin/sh\n: >"$HOME/%s"\n' "$t" >".git/hooks/$hook" && chmod 755 ".git/hooks/$hook" || exit 1
done
"""
_HOOKS_LOOK = r"""
[ -d "$copy" ] || { in_homes ".$t-closed"; exit; }
in_homes "$t" || grep -rsF -- "$t" "$copy/.git/hooks" | grep -q .
"""
_CONFIG = r"""
mkdir -p .git/info && git config core.fsmonitor ": $t" && git config alias.status "!: $t" &&
  printf '* filter=%s\n' "$t" >.git/info/attributes
"""
_CONFIG_LOOK = r"""
[ -d "$copy" ] || { in_homes ".$t-closed"; exit; }
grep -sF -- "$t" "$copy/.git/config" "$copy/.git/config.worktree" "$copy/.git/info/attributes" | grep -q .
"""
_COMMIT = r"""
git -c user.name=a -c user.email=a@b commit -q --allow-empty -m "$t" && git branch "$t" && git tag "$t" &&
  echo left >"$t"
"""
_COMMIT_LOOK = r"""
[ -d "$copy" ] || { in_homes ".$t-closed"; exit; }
cd -- "$copy" 2>/dev/null || { [ -O "$copy" ]; exit; }
there "$t" || git rev-parse -q --verify "refs/heads/$t" >/dev/null ||
  git rev-parse -q --verify "refs/tags/$t" >/dev/null
"""


def _in_home(name: str, proves: str, plant: str, undo: str = 'each_home rm -rf "$t"') -> Row:
    return Row(name=name, proves=proves, plant=plant, look='in_homes "$t"', undo=undo)


def _line(name: str, path: str, line: str, proves: str) -> Row:
    """Return a row that adds a line to a file in every home of the account."""
    return Row(
        name=name, proves=proves, plant=f'each_home add_line {path} "{line}"', look=f'in_homes {path} "$t"',
        undo=f"each_home drop_line {path}",
    )  # fmt: skip


FILES = (
    *(Row(name=name, proves=proves, plant=_IN_PLACE.replace("@PLACE@", place),
          look=f'there {place}/"$t" || there {place}/"$t.d"',
          undo=f'cd {place} && chmod 700 "$t.d" 2>/dev/null; rm -rf "$t" "$t.d"', shared=_COMMON)
      for name, place, proves in _PLACES),
    Row(name="open-folder", proves="A world-writable folder in /tmp is removed.",
        plant='mkdir -m 777 "/tmp/$t" && chmod 777 "/tmp/$t"', look='there "/tmp/$t"', undo='rm -rf "/tmp/$t"',
        shared=_COMMON),
    _in_home("home-file", "Files in the home are removed, also outside the folder of a layered lease.",
             'leave() { echo left >"$t"; }; each_home leave'),
    _in_home("odd-names", "Files with odd names are removed.", _ODD),
    _in_home("deep-folders", "Deeply nested folders are removed.", _DEEP),
    _in_home("closed-folders", "Folders without permissions are removed.", _CLOSED, _OPEN_AGAIN),
    Row(name="immutable", proves="Immutable files are removed.", plant=_IMMUTABLE, look='in_homes "$t"',
        undo='cd -- "$was" && chattr -i "$t"; rm -f "$t"', tools=("chattr",)),
    Row(name="cron", proves="The account's crontab is removed.", plant=_CRON, look=_CRON_LOOK, undo=_CRON_UNDO,
        tools=("crontab",), shared=_TIMED),
    Row(name="at", proves="Jobs scheduled with at are removed.", plant=_AT, look=_AT_LOOK, undo='at -r "$note"',
        tools=("at",), shared=_TIMED),
    Row(name="systemd-user", proves="A unit of the account's systemd ends.", plant=_USER_UNIT, look="alive",
        undo='systemctl --user stop "$t"; ended', tools=("systemd-run", "systemctl"), shared=_TIMED),
    Row(name="linger", proves="The account's systemd does not linger.", plant=_LINGER,
        look='there "/var/lib/systemd/linger/$note"', undo="loginctl disable-linger", tools=("loginctl", "timeout"),
        own_account=True),
    Row(name="shell-profile", proves="A shell profile cannot imitate cleaning scripts.",
        plant=_LYING, look=_LYING_LOOK, undo=_LYING_UNDO, arm=': >"$HOME/.$t-armed"', own_account=True),
    _line("ssh-rc", ".ssh/rc", ": # $t", "Files that sshd runs at login are removed."),
    _line("ssh-environment", ".ssh/environment", "LEFT=$t", "Environment files for logins are removed."),
    _line("authorized-keys", ".ssh/authorized_keys", f"{_KEY} $t", "An additional key in authorized_keys is useless."),
    _line("git-global", ".gitconfig", "[alias] left = !: $t", "The account's git configuration is removed."),
    Row(name="git-hooks", proves="Hooks of a working copy are removed.", plant=_REPOSITORY + _HOOKS, look=_HOOKS_LOOK,
        undo='rm -rf "$copy/.git/hooks"; each_home rm -f "$t"', tools=("git",)),
    Row(name="git-config", proves="Configuration and attributes of a working copy are removed.",
        plant=_REPOSITORY + _CONFIG, look=_CONFIG_LOOK,
        undo='cd -- "$copy" && git config --unset core.fsmonitor; git config --unset alias.status; '
             "rm -f .git/info/attributes", tools=("git",)),
    Row(name="git-commits", proves="Commits, branches, tags and files of a working copy are removed.",
        plant=_REPOSITORY + _COMMIT, look=_COMMIT_LOOK,
        undo='cd -- "$copy" && git branch -D "$t"; git tag -d "$t"; rm -f "$t"; git reset -q --hard HEAD~1',
        tools=("git",)),
)  # fmt: skip
