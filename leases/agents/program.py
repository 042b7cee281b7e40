"""The version of the agent that this server offers to its agents: that of the installed `drydock_agent`."""

from __future__ import annotations

from functools import lru_cache
from typing import Any

from drydock_agent import package
from drydock_agent.package import Package

PATH = "/api/v1/agents/me/program"
"""The address from which agents fetch the program."""


@lru_cache(maxsize=1)
def current() -> Package:
    """Return the program, which stays the same while this process runs."""
    return package.build()


def arguments() -> dict[str, Any]:
    """Return the arguments of an order to install the program."""
    offered = current()
    return {"path": PATH, "sha256": offered.sha256, "version": offered.version}
