"""Agents: how they join and renew their tokens, what becomes of their reports, and the orders that they fetch.

`reported` shows the hardware that agents, or Drydock itself, last reported.

An agent can only act for the host that it joined for. Everything that it sends is untrusted.
"""

from leases.agents.administration import agent, agents, confirm_agent, create_join_code, order_agent, revoke_agent
from leases.agents.endpoints import new_secret
from leases.agents.enrolment import join, renew, server_version, valid_code
from leases.agents.hardware import accept, accept_repeated, accept_unchanged
from leases.agents.installation import install_agent, uninstall_agent
from leases.agents.orders import due, finish
from leases.agents.program import current as current_program
from leases.agents.reported import hardware_report, hardware_reports, scan_hardware

__all__ = [
    "accept",
    "accept_repeated",
    "accept_unchanged",
    "agent",
    "agents",
    "confirm_agent",
    "create_join_code",
    "current_program",
    "due",
    "finish",
    "hardware_report",
    "hardware_reports",
    "install_agent",
    "join",
    "new_secret",
    "order_agent",
    "renew",
    "revoke_agent",
    "scan_hardware",
    "server_version",
    "uninstall_agent",
    "valid_code",
]
