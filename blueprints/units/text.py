"""The text of a unit, from frozen values. No value can add a line, a word, a specifier or a variable to it."""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from blueprints.units.values import Unit
from drydock.core.errors import InvalidRequest

_STOP_SECONDS = 10
"""Time that the processes of a workload have between TERM and KILL."""


def unit_text(unit: Unit, folder: str, arguments: Sequence[str] = ()) -> str:
    """Return the text of the unit file. `folder` is that of its job, whose script `main` gets the arguments.

    What a tenant has written, such as the image and its arguments, is in the job's folder and not in the unit.
    """
    lines = [
        "[Unit]", _line("Description", f"Drydock workload of lease {unit.key}"), "[Service]",
        *(_line(name, value) for name, value in _settings(unit, folder)),
        command_line("ExecStart", ["/bin/sh", f"{folder}/main", *arguments]),
    ]  # fmt: skip
    return "".join(f"{line}\n" for line in lines)


def _settings(unit: Unit, folder: str) -> Iterator[tuple[str, str]]:
    yield "Type", "exec"
    yield "WorkingDirectory", folder
    yield "StandardInput", "null"
    yield "StandardOutput", "null"  # the job keeps the output of the workload in files of bounded size
    yield "Restart", "no"
    yield "TimeoutStopSec", str(_STOP_SECONDS)
    yield "Delegate", "yes"
    # The exit code of a container that the kernel killed for its memory is the outcome of the workload.
    yield "OOMPolicy", "continue"
    for name in ("CPUAccounting", "MemoryAccounting", "IPAccounting"):
        yield name, "yes"
    yield from _limits(unit)
    yield "DevicePolicy", "closed"
    for path in unit.devices:
        yield "DeviceAllow", f"{path} rwm"


def _limits(unit: Unit) -> Iterator[tuple[str, str]]:
    if unit.cpu_millicores:
        # In whole percents, rounded up: 1 would stop what has less than a hundredth of a processor.
        yield "CPUQuota", f"{-(-unit.cpu_millicores // 10)}%"
    if unit.cpus:
        yield "AllowedCPUs", unit.cpus
    if unit.memory_nodes:
        yield "AllowedMemoryNodes", unit.memory_nodes
    if unit.ram_mib:
        yield "MemoryMax", f"{unit.ram_mib}M"
        yield "MemorySwapMax", "0"


def _line(name: str, value: str) -> str:
    """Return one setting. Raises InvalidRequest for a value that could not stand on one line, or be read differently.

    `%` begins a specifier, so it is doubled.
    """
    if value != value.strip() or value.endswith("\\"):
        raise InvalidRequest(f"{value!r:.100} cannot be the value of {name} in a unit.", field=name)
    return f"{name}={_printable(name, value) if name in _VERBATIM else _printable(name, value).replace('%', '%%')}"


_VERBATIM = frozenset({"CPUQuota"})
"""Settings in which systemd replaces no specifiers."""


def command_line(name: str, words: Sequence[str]) -> str:
    """Return a setting that is a command line with exactly these words. Raises InvalidRequest."""
    return f"{name}={' '.join(_word(name, word) for word in words)}"


def _word(name: str, word: str) -> str:
    escaped = _printable(name, word).replace("\\", "\\\\").replace('"', '\\"')
    return '"' + escaped.replace("%", "%%").replace("$", "$$") + '"'


def _printable(name: str, value: str) -> str:
    if not value or not value.isprintable():
        raise InvalidRequest(f"{value!r:.100} cannot be written in a unit, as a part of {name}.", field=name)
    return value
