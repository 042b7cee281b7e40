"""User data for cloud-init: the host key we know beforehand, the control account, and the dead man's switch.

As JSON, which cloud-init reads as the YAML that it is. Sources: cloud-init's modules `ssh` (`ssh_keys`,
`ssh_deletekeys`), `users_groups`, `bootcmd` and `runcmd`.
"""

from __future__ import annotations

import datetime as dt
import json
from collections.abc import Mapping
from typing import Any

from drydock.core.errors import InvalidRequest
from interfaces.keys import KeyPair

LIMIT = 16_384
"""Bytes: the smallest limit of the three clouds (EC2, before base64)."""
READY_MARK = "/run/drydock-ready"
"""Made by the last of our commands: with it and `cloud-init status --wait` a guest is ready."""

_SWITCH = (
    'left=$(($1 - $(date +%s))); [ "$left" -gt 0 ] || left=1;'
    ' systemd-run --unit=drydock-end --on-active="$left" systemctl poweroff'
)


def user_data(
    *,
    user: str,
    public_key: str,
    host_key: KeyPair | None,
    ends_at: dt.datetime | None = None,
    also: Mapping[str, Any] | None = None,
) -> str:
    """User data for one machine. `host_key`: None where it makes one itself. `ends_at`: when it switches itself off,
    whatever becomes of us and however often it was booted by then; `also`: the operator's own cloud-config, whose lists
    come after ours and whose other keys must not be ours.

    Raises InvalidRequest where the operator's says what is ours to say, or all of it is larger than a cloud takes.
    """
    ours: dict[str, Any] = {
        "ssh_deletekeys": True,
        "ssh_keys": {"ed25519_private": host_key.private, "ed25519_public": host_key.public} if host_key else {},
        "ssh_pwauth": False,
        "users": [_account(user, public_key)],
        "bootcmd": [["sh", "-c", _SWITCH, "end", str(int(ends_at.timestamp()))]] if ends_at else [],
        "runcmd": [["touch", READY_MARK]],
    }
    text = "#cloud-config\n" + json.dumps(_with(ours, also or {}), indent=1)
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


def _with(ours: dict[str, Any], also: Mapping[str, Any]) -> dict[str, Any]:
    """Ours first, so that an account and a key are there whatever the operator's commands do."""
    merged = dict(ours)
    for name, value in also.items():
        there = merged.get(name)
        if there is None:
            merged[name] = value
        elif isinstance(there, list) and isinstance(value, list):
            merged[name] = there + value if name != "runcmd" else value + there
        else:
            raise InvalidRequest(
                f"{name} is Drydock's own to say.",
                field=f"user_data.{name}",
                hint="Leave it out; lists such as users, bootcmd and runcmd may be added to.",
            )
    return {name: value for name, value in merged.items() if value not in ([], {})}
