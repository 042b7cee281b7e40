"""The arguments that pull or load the image of a workload and run it as a container, within its unit.

Each account has an image store and containers of its own: what one lease pulls or loads, no other lease runs, and all
of it goes with the folder of the account. Images that an operator has pulled into the host's own store are used from
there, and that store is never written to. Credentials of the host for registries are not used.

The variables of a workload are given to the container alone: podman, which root runs, reads them from files and never
has them in its own environment, where they could misdirect it.
"""

from __future__ import annotations

import base64
from collections.abc import Mapping, Sequence
from typing import NamedTuple

from blueprints.units.values import RUNTIME, Identity, Unit
from interfaces.command.container import NO_IMAGE, NO_PODMAN, PODMAN
from interfaces.command.jobscripts import JOB_NAME

NO_UNITS, BAD_ARCHIVE = "units", "archive"
"""Values that a start script writes as the job's cause if it fails before the container runs."""
ARCHIVE = "archive"
"""Name of the file with the image in the folder of the account."""
ENVIRONMENT, VALUES = "environment", "values"
"""Names of the files with variables in the folder of the job, see `Environment`."""
_LONGEST_LINE = 60_000
"""Bytes of a line that podman reads from a file of variables; it refuses those of 64 KiB."""

_STOP = rf"""stop() {{ printf '%s\n' "$1" >"${JOB_NAME}/cause"; echo "drydock: $2" >&2; exit 125; }}
"""

# $1 podman, $2 folder of the account, $3 folder for what ends with the boot; paths without spaces, so that options with
# them can be in one variable. The options hold for removing as for running: a store is found by them alone.
STORE = r"""podman=$1 folder=$2 state=$3 common=/var/lib/containers/storage
store="--root $folder/storage --runroot $state/run --tmpdir $state/tmp --events-backend none"
[ ! -d "$common/overlay-images" ] ||
  store="$store --storage-driver overlay --storage-opt additionalimagestore=$common"
"""

# As above, then $4 name, $5 image, $6 SHA-256 of its archive if it has one; then the options of `run`, the image and
# the command. The files of variables are in the folder of the job.
_START = rf"""{_STOP}{STORE}name=$4 image=$5 sum=$6
shift 6
command -v "$podman" >/dev/null 2>&1 || stop {NO_PODMAN} "podman is not installed on this host"
umask 077
mkdir -p "$folder/tmp" "$state" && echo '{{}}' >"$folder/auth.json" || exit 125
export TMPDIR="$folder/tmp"
"$podman" $store rm --force --ignore --time 0 "$name" >/dev/null 2>&1
if [ -n "$sum" ] && ! "$podman" $store image exists "$image"; then
  found=$(sha256sum <"$folder/{ARCHIVE}") && [ "${{found%% *}}" = "$sum" ] ||
    stop {BAD_ARCHIVE} "the archive that was copied to this host does not have the SHA-256 $sum"
  said=$("$podman" $store load --quiet --input "$folder/{ARCHIVE}") ||
    stop {NO_IMAGE} "archive $sum could not be loaded"
  rm -f "$folder/{ARCHIVE}"
  case $said in *,*) stop {NO_IMAGE} "archive $sum has several images";; esac
  "$podman" $store tag "${{said#*: }}" "$image" || stop {NO_IMAGE} "archive $sum has no image"
elif ! "$podman" $store image exists "$image"; then
  "$podman" $store pull --quiet --authfile "$folder/auth.json" "$image" >/dev/null ||
    stop {NO_IMAGE} "the image $image could not be pulled"
fi
init=
for each in /usr/libexec/podman/catatonit /usr/lib/podman/catatonit /usr/bin/catatonit; do
  [ ! -x "$each" ] || init=--init
done
n=0
[ ! -s "${JOB_NAME}/{VALUES}" ] || while read -r variable value; do
  printf %s "$value" | base64 -d | "$podman" $store secret create --driver file "v$n" - >/dev/null || exit 125
  set -- --secret "v$n,type=env,target=$variable" "$@"
  n=$((n + 1))
done <"${JOB_NAME}/{VALUES}"
[ ! -s "${JOB_NAME}/{ENVIRONMENT}" ] || set -- --env-file "${JOB_NAME}/{ENVIRONMENT}" "$@"
exec "$podman" $store run --name "$name" $init "$@"
"""


class Environment(NamedTuple):
    """The variables of a container as the contents of two files, which only root can read."""

    plain: bytes
    """A line NAME=VALUE for each variable that podman can read from such a file (`--env-file`)."""
    values: bytes
    """A line with name and base64 for each of the others, such as one with several lines. They become secrets in the
    store of the account, with which podman sets them (`--secret`, `type=env`)."""


def environment(variables: Mapping[str, str]) -> Environment:
    """Return the variables of a container as files. The names must be valid ones."""
    plain, values = bytearray(), bytearray()
    for name, value in sorted(variables.items()):
        content = value.encode("utf-8", "surrogateescape")
        line = b"%b=%b\n" % (name.encode(), content)
        # podman ends a line at a line feed, drops a carriage return before it, and knows no quotes.
        if b"\n" in content or content.endswith(b"\r") or len(line) > _LONGEST_LINE:
            values += b"%b %b\n" % (name.encode(), base64.b64encode(content))
        else:
            plain += line
    return Environment(bytes(plain), bytes(values))


def words(
    unit: Unit, *, image: str, archive: str = "", command: Sequence[str] | str = (), cwd: str = "",
    identity: Identity | None = None, devices: Sequence[str] = (),
) -> list[str]:  # fmt: skip
    """Return the arguments that run `image`, or the image in the archive with this SHA-256, as the container of a unit.

    `command` is either exact arguments for the image's entry point, or one line for /bin/sh in the container; if empty,
    the image's own command runs. `devices` are names of CDI or paths. Without an identity, the container's root is the
    host's. The variables are those of the job. The exit code is the container's; 125 means that podman itself failed.
    """
    inner = ["/bin/sh", "-c", command] if isinstance(command, str) and command else list(command)
    image = f"localhost/drydock:{archive}" if archive else image
    return [
        "/bin/sh", "-c", _START, "sh", PODMAN, unit.folder, f"{RUNTIME}/{unit.account}", unit.key, image, archive,
        *_options(unit, cwd, identity, devices), image, *inner,
    ]  # fmt: skip


def _options(unit: Unit, cwd: str, identity: Identity | None, devices: Sequence[str]) -> list[str]:
    """Return the options of `podman run`. The container is in the control group of the unit, whose limits it shares.

    Its standard input is a pipe without a writer. The runtime makes its root the owner of the standard input: without
    `--interactive` that would be the host's /dev/null.
    """
    found = ["--rm", "--interactive", "--pull=never", "--log-driver=none", "--cgroups=split", "--network=host",
             "--security-opt=no-new-privileges", "--label", f"drydock.lease={unit.key}"]  # fmt: skip
    if identity is not None and devices:
        # The nodes of the devices belong to the account, so the container's root must be the account. Podman before 5
        # cannot start containers with several ranges on kernels that map mounts, so there are no other users then.
        found += ["--uidmap", f"0:{identity.uid}:1", "--gidmap", f"0:{identity.gid}:1"]
    elif identity is not None:
        found += ["--uidmap", f"0:{identity.first_of_range}:65536", "--gidmap", f"0:{identity.first_of_range}:65536"]
    for name in devices:
        found += ["--device", name]
    return [*found, *(["--workdir", cwd] if cwd else [])]


def needs_units() -> list[str]:
    """Return the arguments of a job that says that its host cannot run the workload as a unit, and fails."""
    script = _STOP + (
        f'stop {NO_UNITS} "ports and archives need a host with systemd, podman, control groups of version 2'
        ' and a control account that is root"'
    )
    return ["/bin/sh", "-c", script]
