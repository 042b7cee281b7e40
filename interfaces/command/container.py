"""A container as a command: the words that have podman pull its image and run it in the foreground.

The values of its variables are never among the words: podman takes them from its own environment by name.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from interfaces.command.jobscripts import JOB_NAME

PODMAN = "podman"
"""The program, as it is looked for on the host."""
NO_PODMAN, NO_IMAGE = "podman", "image"
"""What the start leaves as the job's cause when it comes no further."""

_IMAGE = re.compile(
    r"[a-z0-9]([a-z0-9._-]*[a-z0-9])?(:[0-9]{1,5})?(/[a-z0-9]+([._-]+[a-z0-9]+)*)*"
    r"(:[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?(@sha256:[0-9a-f]{64})?"
)
_PODMANS = re.compile(
    r"(PATH|HOME|USER|LOGNAME|SHELL|IFS|ENV|TMPDIR|NOTIFY_SOCKET|DRYDOCK_[A-Z_]*"
    r"|(XDG|LD|DBUS|CONTAINER|CONTAINERS|_CONTAINERS|PODMAN|REGISTRY|STORAGE|BUILDAH)(_.*)?)"
)
"""Variables by which podman itself, or the shell that starts it, would be led astray."""

# $1 program, $2 name, $3 image; then the options, the image and the command for `run`.
_START = rf"""
stop() {{ printf '%s\n' "$1" >"${JOB_NAME}/cause"; echo "drydock: $2" >&2; exit 125; }}
podman=$1 name=$2 image=$3
shift 3
command -v "$podman" >/dev/null 2>&1 || stop {NO_PODMAN} "there is no podman on this host"
"$podman" rm --force --ignore --time 0 "$name" >/dev/null 2>&1
if ! "$podman" image exists "$image"; then
  "$podman" pull --quiet "$image" >/dev/null || stop {NO_IMAGE} "the image $image could not be pulled"
fi
exec "$podman" run --name "$name" "$@"
"""


def is_image(name: str) -> bool:
    """Whether it reads like the name of an image: [registry/]path[:tag][@digest]."""
    return len(name) <= 255 and _IMAGE.fullmatch(name) is not None


def is_podmans(variable: str) -> bool:
    """Whether podman would take a variable of this name for its own."""
    return _PODMANS.fullmatch(variable) is not None


def options(*, lease: str, variables: Iterable[str] = (), cwd: str = "") -> list[str]:
    """Options of `podman run`. It goes with its end and keeps no log of its own; an init reaps its orphans."""
    given = [word for name in sorted(variables) for word in ("--env", name)]
    folder = ["--workdir", cwd] if cwd else []
    return [
        "--rm", "--init", "--pull=never", "--log-driver=none", "--label", f"drydock.lease={lease}", *given, *folder,
    ]  # fmt: skip


def words(*, lease: str, image: str, command: Sequence[str] | str = (), variables: Iterable[str] = (),
          cwd: str = "") -> list[str]:  # fmt: skip
    """The exact arguments that pull `image` where it is not there yet, and run it as the container `lease`.

    `command`: exact arguments after the image's entry point, or one line for /bin/sh in the container; empty: what
    the image says. It ends with the container's exit code; 125 is podman's own failure.
    """
    inner = ["/bin/sh", "-c", command] if isinstance(command, str) and command else list(command)
    asked = options(lease=lease, variables=variables, cwd=cwd)
    return ["/bin/sh", "-c", _START, "sh", PODMAN, lease, image, *asked, image, *inner]


def removal(lease: str) -> list[str]:
    """The words that end and remove the container of a lease; well also where there is none, nor a podman."""
    script = 'command -v "$1" >/dev/null 2>&1 || exit 0; exec "$1" rm --force --ignore --time 0 "$2"'
    return ["/bin/sh", "-c", script, "sh", PODMAN, lease]
