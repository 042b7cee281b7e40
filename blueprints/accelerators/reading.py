"""Read the hardware of a host with one script over its control account. Nothing is installed there."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

from blueprints.accelerators.config import Config
from blueprints.specs import HostView
from drydock_agent import Hardware, Limits, load_drivers, parse_fetched, scan, script
from drydock_agent.fetch import FetchFailed
from drydock_agent.scan import CAPTURED
from interfaces.command.shell import ShellCommand
from interfaces.errors import InterfaceError

_LIMITS = Limits(total_bytes=16 << 20, entries=100_000)
_MOST_OUTPUT = 24 << 20
_NO_FOLDER = 2
"""Exit code of the script if the root of the captured tree cannot be entered."""


class ScanFailed(InterfaceError):
    """The hardware of a host could not be read."""

    code = "scan_failed"


def hardware_of(config: Config, host: HostView, *, only: Sequence[str] = ()) -> Hardware:
    """Return the hardware of a host, or of the captured tree that the config names; `only` what these drivers find.

    Raises ScanFailed, InterfaceError, or what the host's kind raises.
    """
    transport = host.connect()
    if transport is None:
        raise ScanFailed(f"Drydock has no control account on {host.name}, so it cannot search the host for devices.")
    drivers = load_drivers()
    if only:
        drivers = replace(drivers, drivers=tuple(one for one in drivers.drivers if one.name in only))
    command = ShellCommand(transport, still_mine=lambda: None)
    result = command.run(
        ["/bin/sh", "-s", *filter(None, [config.captured])], stdin=script(drivers, limits=_LIMITS).encode(),
        timeout=config.scan_seconds, max_output=_MOST_OUTPUT,
    )  # fmt: skip
    if result.exit_code == _NO_FOLDER and config.captured:
        raise ScanFailed(f"{config.captured} is not a folder that can be read on {host.name}.")
    try:
        tree = parse_fetched(result.text, limits=_LIMITS)
    except FetchFailed as error:
        said = result.error_text.strip()[-200:]
        raise ScanFailed(f"The devices of {host.name} could not be read: {said or error}") from None
    if result.truncated:
        tree.warn("tree", f"The host printed more than {_MOST_OUTPUT >> 20} MiB.")
    return scan(tree, drivers=drivers, traits=(CAPTURED,) if config.captured else ())


def incomplete(found: Hardware) -> str:
    """Return why devices may be missing from what was read, or an empty string."""
    return next((one.message for one in found.warnings if one.subject == "tree"), "")
