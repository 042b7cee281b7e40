"""Specifications of the Container Device Interface: `podman run --device drydock.dev/gpu=NAME`.

Each granted device has a file of its own, which ends with the boot. It names device nodes and variables, and no
libraries: an image has its own, or gets them from the vendor's specification.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from typing import Any

from blueprints.devices.environment import environment
from blueprints.devices.scripts import REFUSED
from blueprints.devices.values import Device, refused_by
from blueprints.hostshell import HostShell

VERSION = "0.3.0"
"""The earliest version that runtimes accept. It suffices because names begin with a letter (else 0.5.0), and classes
have no dot (else 0.6.0)."""
FOLDER = "/run/cdi"
"""Podman reads it as /var/run/cdi. Like the grants, the files end with the boot."""
_VENDOR = "drydock.dev"
_CLASS = re.compile(r"[A-Za-z][A-Za-z0-9_-]*")
_ODD = re.compile(r"[^A-Za-z0-9_.:-]")

_CHECKED = rf"""
umask 022
folder=$1; shift
refuse() {{ printf '%s\n' "$*" >&2; exit {REFUSED}; }}
[ ! -L "$folder" ] || refuse "$folder is a link."
[ -d "$folder" ] || [ "$wanted" = no ] || mkdir -m 755 "$folder" || exit 1
[ -d "$folder" ] || exit 0
case $(stat -c '%u %a' "$folder") in
  "0 "*[2367]|"0 "*[2367]?) refuse "Other accounts than root can write to $folder.";;
  "0 "*) ;;
  *) refuse "$folder does not belong to root.";;
esac
"""
_PUBLISH = (
    "wanted=yes\n"
    + _CHECKED
    + r"""
for name do
  IFS= read -r line && rm -f "$folder/$name.new~" && printf '%s\n' "$line" >"$folder/$name.new~" &&
    chmod 644 "$folder/$name.new~" && mv -f "$folder/$name.new~" "$folder/$name" || exit 1
done
"""
)
"""$1 folder, then names of files. Reads the content of each from one line of standard input."""
_WITHDRAW = (
    "wanted=no\n"
    + _CHECKED
    + r"""
for name do rm -f "$folder/$name" "$folder/$name.new~" || exit 1; done
rmdir "$folder" 2>/dev/null
exit 0
"""
)
"""$1 folder, then names of files. A folder that is empty then is removed too."""


def qualified_name(device: Device) -> str:
    """Return the name by which containers request a device, such as `drydock.dev/gpu=gpu-0000:06:00.0`."""
    return f"{_kind(device)}={_name(device)}"


def specification(device: Device, numbers: Mapping[str, str]) -> dict[str, Any]:
    """Return the specification of a device whose nodes have these numbers (`MAJOR:MINOR` by path).

    Nodes without a number are left out: they do not exist.
    """
    nodes = []
    for node in device.nodes:
        if number := numbers.get(node.path):
            major, minor = map(int, number.split(":"))
            nodes.append({"path": node.path, "type": "c", "major": major, "minor": minor, "permissions": "rw"})
    edits: dict[str, Any] = {"deviceNodes": nodes}
    if variables := environment([device]):
        edits["env"] = [f"{name}={value}" for name, value in sorted(variables.items())]
    return {
        "cdiVersion": VERSION,
        "kind": _kind(device),
        "devices": [{"name": _name(device), "containerEdits": edits}],
    }


def publish(there: HostShell, devices: Sequence[Device], numbers: Mapping[str, str], *, folder: str = FOLDER) -> None:
    """Write one specification for each device on the host, readable by all and writable by root. May be repeated."""
    lines = [json.dumps(specification(device, numbers)) for device in devices]
    with refused_by(REFUSED):
        there.as_root(_PUBLISH, folder, *map(_file, devices), stdin="".join(f"{line}\n" for line in lines))


def withdraw(there: HostShell, devices: Sequence[Device], *, folder: str = FOLDER) -> None:
    """Remove the specifications of the devices from the host. May be repeated."""
    with refused_by(REFUSED):
        there.as_root(_WITHDRAW, folder, *map(_file, devices))


def _kind(device: Device) -> str:
    name = device.device_class
    return f"{_VENDOR}/{name if _CLASS.fullmatch(name) and name[-1].isalnum() else 'device'}"


def _name(device: Device) -> str:
    return f"{_kind(device).rpartition('/')[2]}-{_ODD.sub('_', device.id).rstrip('_.:-')}"


def _file(device: Device) -> str:
    return f"drydock-{_name(device).replace(':', '-')}.json"
