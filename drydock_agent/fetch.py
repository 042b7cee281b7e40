"""Fetch a tree from a host without an agent, with a single `/bin/sh` script.

The script prints the files, links and folders that drivers declare, and the output of the tools that are installed. It
needs a POSIX shell and awk. `parse_fetched` converts its output to a tree.
"""

from __future__ import annotations

import re
import shlex

from drydock_agent.driver import Drivers
from drydock_agent.tools import BYTES, SECONDS, TIMEOUT, TOO_LONG
from drydock_agent.tree import TOOLS, Limits, MemoryTree

_PATTERN = re.compile(r"\A[A-Za-z0-9_.][A-Za-z0-9_./*?:@+\[\]-]*\Z")

_HEADER, _END = "drydock-hardware 1", "END"

_SCRIPT = """\
# Print what drydock_agent reads of a host. It only reads. Argument: the root of a captured tree, or nothing.
LC_ALL=C IFS=; export LC_ALL
nl='
'
root=${1:-/}; root=$(cd -P "$root" && pwd -P) || exit 2
[ "$root" = / ] && root=
export root
count=0
show() {
  for path do
    case $path in *"$nl"*|*"	"*) continue ;; esac
    count=$((count + 1)); [ "$count" -gt @ENTRIES@ ] && return
    short=${path#"$root"/}
    if [ -L "$path" ]; then
      target=
      if [ -d "$path" ] && cd -P "$path" 2>/dev/null; then
        case $PWD in "$root"/*) target=${PWD#"$root"} ;; esac
      fi
      [ -n "$target" ] || target=$(readlink "$path" 2>/dev/null)
      printf 'L%s\\t%s\\n' "$short" "$target"
    elif [ -d "$path" ]; then
      printf 'D%s\\n' "$short"
    elif [ -f "$path" ] && [ -r "$path" ]; then
      printf 'F%s\\n' "$short"
    fi
  done
}
limited() {
  if command -v timeout >/dev/null 2>&1; then timeout -s KILL @SECONDS@ "$@"; return; fi
  "$@" & one=$!
  (sleep @SECONDS@; kill -9 "$one") >/dev/null 2>&1 & other=$!
  wait "$one"; status=$?
  kill "$other" 2>/dev/null; return "$status"
}
tool() {
  name=$1; shift
  command -v "$1" >/dev/null 2>&1 || return 0
  printf 'T%s\\n' "$name"
  { limited "$@" </dev/null 2>/dev/null; printf '\\n@%s\\n' "$?"; } | head -c @BYTES@ | sed 's/^/ /'
  echo
}
echo '@HEADER@'
{
@PATTERNS@
} | awk '
/^F/ {
  file = ENVIRON["root"] "/" substr($0, 2); size = 0; print
  while ((got = (getline line < file)) > 0) {
    size += length(line) + 1; total += length(line) + 1
    if (size > @FILE@ || total > @TOTAL@) { print "!"; break }
    print " " line
  }
  close(file); next
}
{ print }'
if [ -z "$root" ]; then :
@TOOLS@
fi
echo '@END@'
"""


class FetchFailed(ValueError):
    """The output was not printed by the script."""


def script(drivers: Drivers, *, limits: Limits | None = None) -> str:
    """Return the script that prints everything that these drivers read. Run it with `sh -s` or `sh -s ROOT`.

    Raises ValueError for a pattern that is not a plain relative path with wildcards.
    """
    limits = limits or Limits()
    shows = []
    for path in (*drivers.paths, f"{TOOLS}/*"):
        if not _PATTERN.match(path) or ".." in path.split("/"):
            raise ValueError(f"{path!r} is not a relative path with wildcards")
        shows.append(f'show "$root"/{path}')
    tools = [f"tool {shlex.join((name, *argv))}" for name, argv in drivers.tools.items()]
    fields = {
        "ENTRIES": limits.entries, "FILE": limits.file_bytes, "TOTAL": limits.total_bytes, "SECONDS": int(SECONDS),
        "BYTES": BYTES, "HEADER": _HEADER, "END": _END, "PATTERNS": "\n".join(shows), "TOOLS": "\n".join(tools),
    }  # fmt: skip
    return re.sub(r"@([A-Z]+)@", lambda match: str(fields[match[1]]), _SCRIPT)


def parse_fetched(text: str, *, limits: Limits | None = None) -> MemoryTree:
    """Parse the output of the script to a tree. Skips lines before the header, such as a login banner.

    If the output is truncated, the tree has everything before that point, and a warning. Raises FetchFailed if the
    header is missing.
    """
    limits = limits or Limits()
    lines = text.split("\n")
    if _HEADER not in lines:
        raise FetchFailed(f"The output lacks the line {_HEADER!r}. It begins with: {text[:100]!r}")
    files: dict[str, list[str]] = {}
    links: dict[str, str] = {}
    folders: list[str] = []
    large: list[str] = []
    tools: dict[str, list[str]] = {}
    current: list[str] = []
    ended, path = False, ""
    for line in lines[lines.index(_HEADER) + 1 :]:
        mark, rest = line[:1], line[1:]
        if mark == " ":
            current.append(rest)
            continue
        if mark == "!":
            large.append(path)
        current, path = [], rest
        if mark == "F":
            files[rest] = current
        elif mark == "T":
            tools[rest] = current
        elif mark == "D":
            folders.append(rest)
        elif mark == "L":
            path, _, target = rest.partition("\t")
            links[path] = target
        elif line == _END:
            ended = True
    texts = {name: "\n".join(content) for name, content in files.items() if name not in large}
    for name, content in tools.items():
        texts |= _tool(name, content)
    tree = MemoryTree(texts, links=links, folders=tuple(folders), limits=limits)
    for path in large:
        tree.warn(path, f"The file, or all files before it, have more than {limits.file_bytes} bytes. It was not used.")
    if not ended:
        tree.warn("tree", "The output of the host is incomplete, so devices or facts may be missing.")
    return tree


def _tool(name: str, lines: list[str]) -> dict[str, str]:
    """Return the output and the status of a tool as files of a tree. The last line is the status."""
    status = TOO_LONG
    if lines and re.fullmatch(r"@\d{1,3}", lines[-1]):
        status = lines[-1][1:]
        lines = lines[:-1]
    if status in ("124", "137"):
        status = TIMEOUT
    return {f"{TOOLS}/{name}.out": "\n".join(lines), f"{TOOLS}/{name}.status": status}
