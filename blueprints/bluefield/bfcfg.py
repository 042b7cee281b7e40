"""bf.cfg: the shell fragment that the installer in a BFB image runs. Pure functions.

The installer reads variables such as `ubuntu_PASSWORD`, and calls the function `bfb_modify_os` when the new system is
mounted at /mnt (https://github.com/Mellanox/bfb-build, `install.sh`). There we write the seed from which cloud-init
takes the host key and our account (data source NoCloud).
"""

from __future__ import annotations

import json
import re
import shlex
from collections.abc import Mapping

LARGEST = 64 << 10
"""Bytes of a bf.cfg."""
MOST, LONGEST = 64, 1024
"""Parameters of a flavor, and characters of a value."""
NO_PASSWORD = "*"  # noqa: S105 - the hash that no password has
HASH = re.compile(r"\$(5|6|y)\$[./A-Za-z0-9$=,]{20,200}")
_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,63}")
_PASSWORD = re.compile(r"PASSWORD|SECRET|TOKEN|PRIVATE", re.IGNORECASE)
_RESERVED = frozenset({"PATH", "IFS", "ENV", "BASH_ENV", "SHELLOPTS", "HOME", "PS4"})
_SEED = "/mnt/var/lib/cloud/seed/nocloud-net"


def check_parameters(given: Mapping[str, str]) -> Mapping[str, str]:
    """Return the parameters of a flavor. Raises ValueError that names the parameter and the limit."""
    if len(given) > MOST:
        raise ValueError(f"a flavor has at most {MOST} parameters, not {len(given)}")
    for name, value in given.items():
        if not _NAME.fullmatch(name):
            raise ValueError(f"{name[:80]!r} is not the name of a variable: use letters, digits and underscores")
        if name in _RESERVED:
            raise ValueError(f"{name} must not be set: the installer would not work any more")
        if _PASSWORD.search(name):
            raise ValueError(f"{name} is a secret, and must not be in a config; see password_credential")
        if len(value) > LONGEST:
            raise ValueError(f"{name} has {len(value)} characters; at most {LONGEST} are allowed")
        if not value.isprintable():
            raise ValueError(f"{name} contains line breaks or control characters")
    return given


def bf_cfg(*, parameters: Mapping[str, str], password_hash: str, user_data: str, name: str) -> bytes:
    """Return a bf.cfg. It contains secrets: the private host key, and the hash of a password.

    Raises ValueError if it is longer than is allowed.
    """
    values = {"ubuntu_PASSWORD": password_hash or NO_PASSWORD, **parameters}
    lines = [f"{key}={shlex.quote(value)}" for key, value in values.items()]
    meta = json.dumps({"instance-id": name, "local-hostname": name})
    # printf is part of the shell, so no process has the secrets among its arguments.
    script = f"""
bfb_modify_os()
{{
    (
        umask 077
        mkdir -p {_SEED}
        printf '%s' {shlex.quote(user_data)} > {_SEED}/user-data
        printf '%s' {shlex.quote(meta)} > {_SEED}/meta-data
        chmod 600 {_SEED}/user-data {_SEED}/meta-data
    )
}}
"""
    made = ("\n" + "\n".join(lines) + "\n" + script).encode()
    if len(made) > LARGEST:
        raise ValueError(f"bf.cfg has {len(made)} bytes; at most {LARGEST} are allowed")
    return made
