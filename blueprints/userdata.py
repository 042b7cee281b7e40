"""User data for cloud-init: the host key, which we know in advance, the control account, and the dead man's switch.

The user data is written as JSON, which cloud-init reads as YAML. The additions of the operator and the lease are read
as YAML without aliases, because a few lines with aliases can expand to more than fits in memory. Sources: cloud-init's
modules `ssh` (`ssh_keys`, `ssh_deletekeys`), `users_groups`, `bootcmd` and `runcmd`.
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Mapping
from typing import Annotated, Any

import yaml
from pydantic import AfterValidator, BeforeValidator

from drydock.core.errors import InvalidRequest
from interfaces.keys import KeyPair, new_key_pair

LIMIT = 16_384
"""Maximum size in bytes: the smallest limit of the three clouds (EC2's, before base64)."""
DEEPEST = 32
"""Maximum nesting of a cloud-config, as of every other document that is accepted."""
_TOO_DEEP = f"it is nested more than {DEEPEST} levels deep"
_UNREAD = (AttributeError, KeyError, IndexError, OverflowError)
"""Errors that PyYAML raises for a tag that does not fit its value, such as `!!int ""` or `!!bool maybe`."""
READY_MARK = "/run/drydock-ready"
"""File that the last of our commands creates. The guest is ready once this file exists and `cloud-init status --wait`
has returned."""
FIRST_BOOT = f"""
command -v cloud-init > /dev/null || {{ echo absent; exit; }}
said=$(cloud-init status 2> /dev/null)
case $said in
*error*) echo error; cloud-init status --long 2> /dev/null | tail -n 20;;
*done*) [ -e {READY_MARK} ] && echo done || echo running;;
*disabled*) echo absent;;
*) echo running;;
esac
"""
"""Script for the guest. Prints `running`, `done`, `absent` (no cloud-init), or `error` and what cloud-init says."""

_SWITCH = (
    'left=$(($1 - $(date +%s))); [ "$left" -gt 0 ] || left=1;'
    ' systemd-run --unit=drydock-end --on-active="$left" systemctl poweroff >/dev/null 2>&1 &'
)
"""Command that starts the dead man's switch, in the background.

A bootcmd runs before sysinit.target, the timer starts only after that target, and systemd-run waits for the timer even
with --no-block. In the foreground, the command would keep the machine from booting.
"""


def user_data(
    *,
    user: str,
    public_key: str,
    host_key: KeyPair | None,
    ends_at: dt.datetime | None = None,
    also: Mapping[str, Any] | None = None,
    asked: Mapping[str, Any] | None = None,
    programs: Mapping[str, Any] | None = None,
) -> str:
    """Return the user data for one machine.

    `host_key` is None if the machine generates its own. `ends_at` is when the machine switches itself off, even if
    Drydock is down and however often it has booted by then. `also` is the operator's own cloud-config and `asked` the
    lease's: their lists are appended to ours in this order, and their other keys must not be set already. `programs` is
    a cloud-config that installs programs of Drydock.

    Raises InvalidRequest if two of the cloud-configs set the same key, or if the result is larger than a cloud accepts.
    """
    ours: dict[str, Any] = {
        "ssh_deletekeys": True,
        "ssh_keys": {"ed25519_private": host_key.private, "ed25519_public": host_key.public} if host_key else {},
        "ssh_pwauth": False,
        **({"disable_root": False} if user == "root" else {}),
        "users": [_account(user, public_key)],
        "bootcmd": [["sh", "-c", _SWITCH, "end", str(int(ends_at.timestamp()))]] if ends_at else [],
        "runcmd": [],
        **(programs or {}),
    }
    said = _with(_with(ours, also or {}, whose="Drydock's own"), asked or {}, whose="the operator's, or Drydock's own,")
    said["runcmd"].append(["touch", READY_MARK])
    text = "#cloud-config\n" + json.dumps({name: one for name, one in said.items() if one not in ([], {})}, indent=1)
    if len(text.encode()) > LIMIT:
        raise InvalidRequest(
            f"The user data has {len(text.encode())} bytes; at most {LIMIT} are allowed.", field="user_data"
        )
    return text


def _account(user: str, public_key: str) -> dict[str, Any]:
    if user == "root":
        return {"name": user, "lock_passwd": True, "ssh_authorized_keys": [public_key]}
    return {
        "name": user,
        "gecos": "Drydock",
        "shell": "/bin/sh",
        "lock_passwd": True,
        "sudo": "ALL=(ALL) NOPASSWD:ALL",
        "ssh_authorized_keys": [public_key],
    }


def _with(there: dict[str, Any], more: Mapping[str, Any], *, whose: str) -> dict[str, Any]:
    """Return the config with additions appended.

    Our own entries come first, so our account and key are always created.
    """
    merged = dict(there)
    for name, value in more.items():
        known = merged.get(name)
        if known is None:
            merged[name] = value
        elif isinstance(known, list) and isinstance(value, list):
            merged[name] = known + value
        else:
            raise InvalidRequest(
                f"{name} is already set by {whose} cloud-config.",
                field=f"user_data.{name}",
                hint="Omit this key. Lists such as users, bootcmd and runcmd can be extended.",
            )
    return merged


def cloud_config(text: str) -> dict[str, Any]:
    """Parse a cloud-config in YAML or JSON. Raises ValueError that says what is wrong."""
    if len(text.encode()) > LIMIT:
        raise ValueError(f"it has {len(text.encode())} bytes; at most {LIMIT} are allowed")
    try:
        _check_events(text)
        read = yaml.load(text, _Loader)  # noqa: S506 - it is the safe loader
        json.dumps(read, allow_nan=False)
    except (yaml.YAMLError, ValueError, TypeError, RecursionError, *_UNREAD) as error:
        raise ValueError(f"it is not a valid cloud-config: {' '.join(str(error).split())}"[:500]) from None
    if not isinstance(read, dict) or not all(isinstance(name, str) for name in read):
        raise ValueError("it is not a valid cloud-config, which must be a mapping such as `packages: [git]`")
    return read


def _check_events(text: str) -> None:
    """Refuse documents with aliases or deep nesting, before values are built from them.

    Raises ValueError. Even a short document could otherwise take much time and memory: PyYAML's time grows with the
    square of the depth, and an alias may refer to a value that contains many others.
    """
    depth = 0
    for event in yaml.parse(text, _Loader):
        if isinstance(event, yaml.AliasEvent):
            raise ValueError("it contains a YAML alias (*name); repeat the value instead")
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > DEEPEST:
            raise ValueError(_TOO_DEEP)


class _Loader(yaml.SafeLoader):
    """PyYAML's safe loader, which refuses brackets that are nested too deeply.

    It counts brackets while scanning, because scanning may be a thousand brackets ahead of parsing.
    """

    def fetch_flow_collection_start(self, token: Any) -> None:
        if self.flow_level >= DEEPEST:
            raise ValueError(_TOO_DEEP)
        super().fetch_flow_collection_start(token)


def user_data_trouble(also: dict[str, Any], asked: dict[str, Any] | None = None) -> str:
    """Return why the cloud-configs of the operator and the lease cannot be combined, or an empty string if they can."""
    try:
        pair = new_key_pair()
        user_data(user="drydock", public_key=pair.public, host_key=pair, also=also, asked=asked)
    except InvalidRequest as error:
        return str(error)
    return ""


def _cloud_config(given: Any) -> Any:
    return cloud_config(given) if isinstance(given, str) else given


def _possible(given: dict[str, Any]) -> dict[str, Any]:
    trouble = user_data_trouble(given)
    if trouble:
        raise ValueError(trouble)
    return given


CloudInit = Annotated[dict[str, Any], BeforeValidator(_cloud_config), AfterValidator(_possible)]
"""A cloud-config as a field of a config or a requirement: YAML or JSON text, or a mapping."""
