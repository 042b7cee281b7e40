"""User data for cloud-init: the host key we know beforehand, the control account, and the dead man's switch.

As JSON, which cloud-init reads as the YAML that it is. What the operator and the lease add is read as YAML, without
its aliases: a few lines of those can stand for more than any memory holds. Sources: cloud-init's modules `ssh`
(`ssh_keys`, `ssh_deletekeys`), `users_groups`, `bootcmd` and `runcmd`.
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Mapping
from typing import Any

import yaml

from drydock.core.errors import InvalidRequest
from interfaces.keys import KeyPair

LIMIT = 16_384
"""Bytes: the smallest limit of the three clouds (EC2, before base64)."""
READY_MARK = "/run/drydock-ready"
"""Made by the last of our commands: with it and `cloud-init status --wait` a guest is ready."""

_SWITCH = (
    'left=$(($1 - $(date +%s))); [ "$left" -gt 0 ] || left=1;'
    ' systemd-run --unit=drydock-end --on-active="$left" systemctl poweroff >/dev/null 2>&1 &'
)
"""In the background: a bootcmd runs before sysinit.target, for which the timer waits and with it, for all its
--no-block, systemd-run. Whoever waited for that would keep the machine from ever coming up."""


def user_data(
    *,
    user: str,
    public_key: str,
    host_key: KeyPair | None,
    ends_at: dt.datetime | None = None,
    also: Mapping[str, Any] | None = None,
    asked: Mapping[str, Any] | None = None,
) -> str:
    """User data for one machine. `host_key`: None where it makes one itself. `ends_at`: when it switches itself off,
    whatever becomes of us and however often it was booted by then; `also`: the operator's own cloud-config, and `asked`
    the lease's: their lists come after ours in this order, and their other keys must not be said already.

    Raises InvalidRequest where one says what another has said, or all of it is larger than a cloud takes.
    """
    ours: dict[str, Any] = {
        "ssh_deletekeys": True,
        "ssh_keys": {"ed25519_private": host_key.private, "ed25519_public": host_key.public} if host_key else {},
        "ssh_pwauth": False,
        "users": [_account(user, public_key)],
        "bootcmd": [["sh", "-c", _SWITCH, "end", str(int(ends_at.timestamp()))]] if ends_at else [],
        "runcmd": [],
    }
    said = _with(_with(ours, also or {}, whose="Drydock's own"), asked or {}, whose="the operator's, or Drydock's own,")
    said["runcmd"].append(["touch", READY_MARK])
    text = "#cloud-config\n" + json.dumps({name: one for name, one in said.items() if one not in ([], {})}, indent=1)
    if len(text.encode()) > LIMIT:
        raise InvalidRequest(f"The user data have {len(text.encode())} bytes; {LIMIT} are allowed.", field="user_data")
    return text


def _account(user: str, public_key: str) -> dict[str, Any]:
    return {
        "name": user,
        "gecos": "Drydock",
        "shell": "/bin/sh",
        "lock_passwd": True,
        "sudo": "ALL=(ALL) NOPASSWD:ALL",
        "ssh_authorized_keys": [public_key],
    }


def _with(there: dict[str, Any], more: Mapping[str, Any], *, whose: str) -> dict[str, Any]:
    """What is there comes first, so that an account and a key are made whatever further commands do."""
    merged = dict(there)
    for name, value in more.items():
        known = merged.get(name)
        if known is None:
            merged[name] = value
        elif isinstance(known, list) and isinstance(value, list):
            merged[name] = known + value
        else:
            raise InvalidRequest(
                f"{name} is {whose} to say.",
                field=f"user_data.{name}",
                hint="Leave it out; lists such as users, bootcmd and runcmd may be added to.",
            )
    return merged


def cloud_config(text: str) -> dict[str, Any]:
    """A cloud-config as people write it, in YAML or JSON. Raises ValueError that says what is wrong."""
    if len(text.encode()) > LIMIT:
        raise ValueError(f"it has {len(text.encode())} bytes; {LIMIT} are allowed")
    try:
        if any(isinstance(one, yaml.AliasEvent) for one in yaml.parse(text, yaml.SafeLoader)):
            raise ValueError("it has a YAML alias (*name); write out what it stands for")
        read = yaml.safe_load(text)
        json.dumps(read)
    except (yaml.YAMLError, TypeError, RecursionError) as error:
        raise ValueError(f"it is no cloud-config: {' '.join(str(error).split())}"[:500]) from None
    if not isinstance(read, dict) or not all(isinstance(name, str) for name in read):
        raise ValueError("it is no cloud-config: that is a mapping, as in `packages: [git]`")
    return read
