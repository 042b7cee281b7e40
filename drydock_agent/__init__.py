"""Detect the hardware of a machine: PCI functions, accelerators, processors, memory.

Drivers are pure functions from a tree of files (`/sys`, `/proc`, the output of tools) to facts. The tree is this
machine, a folder captured from another machine, or the output of a shell script that ran on a host; the facts are the
same. The package needs only the standard library, and is also published as a distribution of its own.
"""

from __future__ import annotations

from drydock_agent.driver import GROUP, Driver, Drivers, Findings, load_drivers
from drydock_agent.facts import CpuFacts, Device, Hardware, Host, Link, NumaNode, Readiness, ScanWarning
from drydock_agent.fetch import parse_fetched, script
from drydock_agent.scan import local_tree, scan
from drydock_agent.tree import FolderTree, Limits, MemoryTree, Tree

__all__ = [
    "GROUP",
    "CpuFacts",
    "Device",
    "Driver",
    "Drivers",
    "Findings",
    "FolderTree",
    "Hardware",
    "Host",
    "Limits",
    "Link",
    "MemoryTree",
    "NumaNode",
    "Readiness",
    "ScanWarning",
    "Tree",
    "load_drivers",
    "local_tree",
    "parse_fetched",
    "scan",
    "script",
]
