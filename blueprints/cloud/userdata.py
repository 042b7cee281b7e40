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

from blueprints.cloud import interruption
from drydock.core.errors import InvalidRequest
from interfaces.keys import KeyPair

LIMIT = 16_384
"""Bytes: the smallest limit of the three clouds (EC2, before base64)."""
DEEPEST = 32
"""Levels of a cloud-config, as of every other document that is taken."""
_TOO_DEEP = f"it is nested more than {DEEPEST} levels deep"
_UNREAD = (AttributeError, KeyError, IndexError, OverflowError)
"""What PyYAML raises for a tag that its value does not fit, such as `!!int ""` or `!!bool maybe`."""
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
    reader: str = "",
) -> str:
    """User data for one machine. `host_key`: None where it makes one itself. `ends_at`: when it switches itself off,
    whatever becomes of us and however often it was booted by then; `also`: the operator's own cloud-config, and `asked`
    the lease's: their lists come after ours in this order, and their other keys must not be said already. `reader`: how
    the guest asks whether its cloud takes it back (see `interruption`); empty: nothing in it asks.

    Raises InvalidRequest where one says what another has said, or all of it is larger than a cloud takes.
    """
    ours: dict[str, Any] = {
        "ssh_deletekeys": True,
        "ssh_keys": {"ed25519_private": host_key.private, "ed25519_public": host_key.public} if host_key else {},
        "ssh_pwauth": False,
        "users": [_account(user, public_key)],
        "bootcmd": [["sh", "-c", _SWITCH, "end", str(int(ends_at.timestamp()))]] if ends_at else [],
        "runcmd": [],
        **(interruption.cloud_config(reader) if reader else {}),
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
        _check_events(text)
        read = yaml.load(text, _Loader)  # noqa: S506 - it is the safe loader
        json.dumps(read, allow_nan=False)
    except (yaml.YAMLError, ValueError, TypeError, RecursionError, *_UNREAD) as error:
        raise ValueError(f"it is not a cloud-config: {' '.join(str(error).split())}"[:500]) from None
    if not isinstance(read, dict) or not all(isinstance(name, str) for name in read):
        raise ValueError("it is not a cloud-config: that is a mapping, as in `packages: [git]`")
    return read


def _check_events(text: str) -> None:
    """Refuse what would cost far more than its own length, before anything is composed: PyYAML's time grows with the
    square of the depth, and an alias may stand for any number of others. Raises ValueError."""
    depth = 0
    for event in yaml.parse(text, _Loader):
        if isinstance(event, yaml.AliasEvent):
            raise ValueError("it has a YAML alias (*name); write out what it stands for")
        depth += isinstance(event, yaml.CollectionStartEvent) - isinstance(event, yaml.CollectionEndEvent)
        if depth > DEEPEST:
            raise ValueError(_TOO_DEEP)


class _Loader(yaml.SafeLoader):
    """The safe loader; brackets are counted as they are scanned, which it does a thousand of them ahead."""

    def fetch_flow_collection_start(self, token: Any) -> None:
        if self.flow_level >= DEEPEST:
            raise ValueError(_TOO_DEEP)
        super().fetch_flow_collection_start(token)
