"""Identities of hardware: serial numbers, UUIDs and addresses by which different discoveries recognize the same thing.

This module depends on no database, queue or provider.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from drydock_agent.identity import identity, known

OF_BMC, SWITCH_PORT = "bmc", "switch_port"
"""The namespaces of identities that name the BMC of a registered machine, and a port of a switch that it is connected
to. They say how a machine is reached, so only operators see them, and no record of what happened to it has them."""
_MAC = re.compile(r"\A[0-9a-f]{12}\Z")


@dataclass(frozen=True, kw_only=True)
class Identity:
    """A globally unique name of a thing.

    `namespace` is the type of the name: `gpu_uuid`, `bmc_uuid`, `dmi_uuid`, `mac`, or `serial:VENDOR`, because two
    vendors may use the same serial number.
    """

    namespace: str
    value: str

    def __str__(self) -> str:
        return f"{self.namespace} {self.value}"


def real(given: Mapping[str, str | None]) -> tuple[Identity, ...]:
    """Convert names, given by namespace, to identities. Normalizes each name, and leaves out placeholders and None."""
    found = (Identity(namespace=name, value=_spelled(name, identity(value))) for name, value in sorted(given.items()))
    return tuple(one for one in found if one.value)


def is_placeholder(text: str) -> bool:
    """Return whether a text is a placeholder for a missing name, such as "N/A" or "To be filled by O.E.M."."""
    return not known(text)


def _spelled(namespace: str, value: str) -> str:
    """Return a value in the spelling in which values of this namespace are compared."""
    if namespace == "mac" or namespace.endswith("_mac"):
        digits = re.sub(r"[-:.]", "", value.lower())
        return ":".join(re.findall("..", digits)) if _MAC.match(digits) else ""
    return value.lower() if namespace.endswith("uuid") else value
