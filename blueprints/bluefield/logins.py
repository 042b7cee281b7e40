"""The limit on logins at the BMC of a card, and its passwords."""

from __future__ import annotations

import ipaddress
import secrets
import socket
import string
from collections.abc import Mapping
from itertools import pairwise

from blueprints.bmc.contract import LoginGuard
from blueprints.bmc.errors import BmcLoginsSpent
from blueprints.bmc.redfish import Access
from blueprints.records.logins import Logins
from blueprints.specs import ResourceView

FACTORY: Mapping[str, str] = {"username": "root", "password": "0penBmc"}
"""The login that the BMC of a BlueField-3 has when it is delivered, and must change before it does anything else."""
SHORTEST, LONGEST = 13, 20
"""Characters of a password (`MinPasswordLength` and `MaxPasswordLength` of the captured AccountService)."""
_CLASSES = (string.ascii_uppercase, string.ascii_lowercase, string.digits, "-_.+=")
PENDING, SET = "pending", "set"
"""Values of the fact `password`: a generated password is stored and perhaps set, or it is known to be set."""


def new_password() -> str:
    """Return a random password of the greatest length, with characters of each class and no two equal ones in a row."""
    while True:
        made = "".join(secrets.choice("".join(_CLASSES)) for _ in range(LONGEST))
        mixed = all(any(one in kind for one in made) for kind in _CLASSES)
        if mixed and all(one != other for one, other in pairwise(made)):
            return made


class CountedLogins(LoginGuard):
    """The logins at the BMC of one card, on the record that all workers share.

    They count for the address of the BMC, whatever system or name it was registered with, and for the serial number of
    the card. So neither another registration nor another address begins the count anew.
    """

    def __init__(self, record: Logins, where: str, places: tuple[str, ...]) -> None:
        self._record, self._where, self._places = record, where, places

    def begin(self) -> str:
        """Put a login on record at each place. Raises BmcLoginsSpent."""
        begun: list[str] = []
        for place in self._places:
            attempt = self._record.begin(place)
            if not attempt.token:
                self.accepted(" ".join(begun))
                raise BmcLoginsSpent(self._where, attempt.wait)
            begun.append(attempt.token)
        return " ".join(begun)

    def accepted(self, attempt: str) -> None:
        """Strike this login from the record, and no other."""
        for token in attempt.split():
            self._record.accepted(token)

    def refused(self, attempt: str = "") -> None:
        """Note that a login was refused, or a session after it."""
        tokens = attempt.split() or [""] * len(self._places)
        for place, token in zip(self._places, tokens, strict=True):
            self._record.refused(place, token)


def counted(resource: ResourceView, access: Access, serial: str) -> CountedLogins:
    """Return the record of the logins at the BMC of a card."""
    where = f"The BMC at {access.address}:{access.port}"
    return CountedLogins(resource.logins, where, (place_of(access), f"card {serial.strip().upper()}"))


def place_of(access: Access) -> str:
    """Return the IP address and port of a BMC, so that its name and its address are one place."""
    try:
        found = socket.getaddrinfo(access.address, access.port, type=socket.SOCK_STREAM)
    except OSError:
        return f"bmc {access.address} {access.port}"
    addresses = {ipaddress.ip_address(str(one[4][0]).partition("%")[0]) for one in found}
    plain = {getattr(one, "ipv4_mapped", None) or one for one in addresses}
    first = min(plain, key=lambda one: (one.version, int(one)))
    return f"bmc {first} {access.port}"
