"""Run a container as a command: the arguments that make podman pull its image and run it in the foreground.

Values of environment variables never appear in the arguments: podman reads them by name from its own environment.
"""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence

from interfaces.command.jobscripts import JOB_NAME

PODMAN = "podman"
"""Name of the program on the host."""
NO_PODMAN, NO_IMAGE = "podman", "image"
"""Values that the start script writes as the job's cause if it fails before the container runs."""

_IMAGE = re.compile(
    r"[a-z0-9]([a-z0-9._-]*[a-z0-9])?(:[0-9]{1,5})?(/[a-z0-9]+([._-]+[a-z0-9]+)*)*"
    r"(:[A-Za-z0-9_][A-Za-z0-9_.-]{0,127})?(@sha256:[0-9a-f]{64})?"
)
_PODMANS = re.compile(
    r"(PATH|HOME|USER|LOGNAME|SHELL|IFS|ENV|TMPDIR|NOTIFY_SOCKET|DRYDOCK_[A-Z_]*"
    r"|(XDG|LD|DBUS|CONTAINER|CONTAINERS|_CONTAINERS|PODMAN|REGISTRY|STORAGE|BUILDAH)(_.*)?"
    r"|GCONV_PATH|LOCPATH|NLSPATH|GLIBC_TUNABLES|HOSTALIASES|SHELLOPTS|PS4|(BASH|GIO|MALLOC|OPENSSL|GODEBUG).*)"
)
"""Variables that would misdirect podman itself, what it starts, or the shell that starts it.

Variables that let the C library, OpenSSL or a shell load or run something are among them. A unit gives its variables to
the container alone, so no variable misdirects what root runs there, whatever its name.
"""
_TRANSPORTS = frozenset(
    {"containers-storage", "dir", "docker", "docker-archive", "docker-daemon", "oci", "oci-archive", "ostree", "sif",
     "tarball"}
)  # fmt: skip
"""Names before a colon with which podman takes an image from the host, and not by name: containers-transports(5)."""

# $1 program, $2 name, $3 image; then the options, the image and the command for `run`.
_START = rf"""
stop() {{ printf '%s\n' "$1" >"${JOB_NAME}/cause"; echo "drydock: $2" >&2; exit 125; }}
podman=$1 name=$2 image=$3
shift 3
command -v "$podman" >/dev/null 2>&1 || stop {NO_PODMAN} "podman is not installed on this host"
"$podman" rm --force --ignore --time 0 "$name" >/dev/null 2>&1
if ! "$podman" image exists "$image"; then
  "$podman" pull --quiet "$image" >/dev/null || stop {NO_IMAGE} "the image $image could not be pulled"
fi
exec "$podman" run --name "$name" "$@"
"""


def is_image(name: str) -> bool:
    """Return whether a string is a valid image reference: [registry/]path[:tag][@digest]."""
    first, colon, _ = name.partition(":")
    is_transport = bool(colon) and first in _TRANSPORTS
    return len(name) <= 255 and not is_transport and _IMAGE.fullmatch(name) is not None


def is_podmans(variable: str) -> bool:
    """Return whether podman would interpret a variable with this name as one of its own settings."""
    return _PODMANS.fullmatch(variable) is not None


def options(*, lease: str, variables: Iterable[str] = (), cwd: str = "") -> list[str]:
    """Return the options of `podman run`.

    They disable the log, remove the container when it ends, and run an init that reaps orphaned processes.
    """
    given = [word for name in sorted(variables) for word in ("--env", name)]
    folder = ["--workdir", cwd] if cwd else []
    return [
        "--rm", "--init", "--pull=never", "--log-driver=none", "--label", f"drydock.lease={lease}", *given, *folder,
    ]  # fmt: skip


def words(*, lease: str, image: str, command: Sequence[str] | str = (), variables: Iterable[str] = (),
          cwd: str = "") -> list[str]:  # fmt: skip
    """Return the arguments that pull `image` if it is missing, and run it as the container of `lease`.

    `command` is either exact arguments for the image's entry point, or one line for /bin/sh in the container; if empty,
    the image's own command runs. The exit code is the container's; 125 means that podman itself failed.
    """
    inner = ["/bin/sh", "-c", command] if isinstance(command, str) and command else list(command)
    asked = options(lease=lease, variables=variables, cwd=cwd)
    return ["/bin/sh", "-c", _START, "sh", PODMAN, lease, image, *asked, image, *inner]


def removal(lease: str) -> list[str]:
    """Return the arguments that remove a lease's container. They succeed even if the container or podman is missing."""
    script = 'command -v "$1" >/dev/null 2>&1 || exit 0; exec "$1" rm --force --ignore --time 0 "$2"'
    return ["/bin/sh", "-c", script, "sh", PODMAN, lease]
