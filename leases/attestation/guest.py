"""Fetching a TDX quote from a guest, by the interface `command` of its lease.

Linux 6.7 and later make quotes under `/sys/kernel/config/tsm/report`, the same for all confidential machines: 64 bytes
are written to `inblob` of a new folder, and `outblob` and `provider` are read (Documentation/ABI/testing/configfs-tsm
of the kernel). Only root may.
"""

from __future__ import annotations

import base64
import binascii
import secrets
from dataclasses import dataclass

from drydock.core.errors import Conflict, NotSupported
from drydock_client.attestation import LARGEST_QUOTE
from interfaces.command.contract import Command
from interfaces.command.result import CommandResult
from interfaces.errors import NotStarted
from leases.validation.input_checks import printable

FOLDER = "/sys/kernel/config/tsm/report"
PROVIDER = "tdx_guest"
"""The name that the kernel gives to the source of TDX quotes."""

SECONDS = 8.0
"""The longest time in seconds that a guest may take. A request of the REST API has little more."""
_NO_FOLDER, _NOT_ROOT, _NO_REPORT, _NOT_WRITTEN, _NO_QUOTE = range(61, 66)
_MOST_OUTPUT = 2 * LARGEST_QUOTE

_SCRIPT = f"""
[ -d "$1" ] || exit {_NO_FOLDER}
[ -w "$1" ] || exit {_NOT_ROOT}
report=$1/$2
mkdir -- "$report" || exit {_NO_REPORT}
trap 'rmdir -- "$report" 2>/dev/null' EXIT
printf %s "$3" | base64 -d >"$report/inblob" || exit {_NOT_WRITTEN}
tries=0
# The quoting enclave on the host may be busy; then the kernel returns an error, or nothing.
until quote=$(head -c {LARGEST_QUOTE + 1} "$report/outblob" 2>/dev/null | base64) && [ -n "$quote" ]; do
  tries=$((tries + 1))
  [ $tries -lt 25 ] || exit {_NO_QUOTE}
  sleep 0.2
done
head -c 100 "$report/provider" | head -n 1
printf '%s\\n' "$quote"
"""
"""$1: the folder of reports, $2: the name of the new report, $3: 64 bytes in base64. Prints provider and quote."""

_NOT_TDX = "Check in the guest that `/sys/firmware/tdx` or `dmesg | grep -i tdx` shows a TDX guest."
_PROBLEMS = {
    _NO_FOLDER: (
        "has no {folder}: it is not a TDX guest, its kernel is older than 6.7, or configfs is not mounted.",
        "Mount it in the guest: `mount -t configfs none /sys/kernel/config`, and load the module tdx_guest.",
    ),
    _NOT_ROOT: (
        "lets only root make quotes, and the account of the lease is not root and may not use sudo.",
        "Lease the whole machine with an account that has sudo.",
    ),
    _NO_REPORT: ("refused to make a report: {said}", _NOT_TDX),
    _NOT_WRITTEN: ("refused the nonce: {said}", _NOT_TDX),
    _NO_QUOTE: (
        "made no quote in time: the quoting service of its host does not answer.",
        "Try again; if it fails again, tell the provider of the machine.",
    ),
}
"""Maps exit codes of the script to the problem and to what can be done."""


@dataclass(frozen=True, kw_only=True)
class GuestQuote:
    """A quote as a guest returned it. Nothing of it is trusted."""

    provider: str
    quote: bytes


def fetch(command: Command, report_data: bytes, *, folder: str = "") -> GuestQuote:
    """Let a guest make a quote with 64 bytes of report data, by root, directly or with sudo.

    `folder` is where the kernel makes reports, `FOLDER` by default. Raises NotSupported with the reason if the guest
    cannot make a TDX quote, Conflict if its answer is not one, and what `Command.run` raises.
    """
    name = f"drydock-{secrets.token_hex(8)}"
    words = ["sh", "-c", _SCRIPT, "sh", folder or FOLDER, name, base64.b64encode(report_data).decode()]
    ended = _run(command, words)
    if ended.exit_code == _NOT_ROOT:
        ended = _as_root(command, words) or ended
    if not ended.ok:
        raise _refused(ended, folder or FOLDER)
    return _read(ended)


def _run(command: Command, words: list[str]) -> CommandResult:
    return command.run(words, timeout=SECONDS, max_output=_MOST_OUTPUT)


def _as_root(command: Command, words: list[str]) -> CommandResult | None:
    """Repeat the script with sudo. Return None if sudo is missing, refuses, or asks for a password."""
    try:
        if not _run(command, ["sudo", "-n", "true"]).ok:
            return None
    except NotStarted:
        return None
    return _run(command, ["sudo", "-n", *words])


def _refused(ended: CommandResult, folder: str) -> NotSupported:
    said = printable(ended.error_text.strip()[-200:]) or f"exit code {ended.exit_code}."
    problem, hint = _PROBLEMS.get(ended.exit_code, ("could not run the script that makes a quote: {said}", ""))
    return NotSupported(
        f"The guest {problem.format(folder=folder, said=said)}", hint=hint, capability="attestation", field="lease"
    )


def _read(ended: CommandResult) -> GuestQuote:
    """Read provider and quote from the output. Raises NotSupported and Conflict."""
    provider, _, encoded = ended.stdout.partition(b"\n")
    name = printable(provider.decode("ascii", "replace").strip(), 60)
    if ended.truncated:
        raise Conflict(f"The guest returned more than {_MOST_OUTPUT} bytes instead of a quote.", field="lease")
    if name != PROVIDER:
        raise NotSupported(
            f"The guest's quotes come from {name or 'an unknown source'}; only TDX ({PROVIDER}) can be verified.",
            capability="attestation", field="lease",
        )  # fmt: skip
    try:
        quote = base64.b64decode(b"".join(encoded.split()), validate=True)
    except binascii.Error:
        raise Conflict("The guest returned something else than a quote.", field="lease") from None
    if not 0 < len(quote) <= LARGEST_QUOTE:
        raise Conflict(f"The guest's quote has {len(quote)} bytes; at most {LARGEST_QUOTE} are read.", field="lease")
    return GuestQuote(provider=name, quote=quote)
