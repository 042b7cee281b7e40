"""Fetching a quote of TDX or of a TPM from a guest, by the interface `command` of its lease."""

from __future__ import annotations

import base64
import binascii
import secrets
from dataclasses import dataclass

from blueprints.attestation import tsm
from drydock.core.errors import Conflict, NotSupported
from drydock_client.attestation import LARGEST_QUOTE
from interfaces.command.contract import Command
from interfaces.command.result import CommandResult
from interfaces.errors import NotStarted
from leases.validation.input_checks import printable

FOLDER = tsm.FOLDER
SECONDS = 8.0
"""The longest time in seconds that a guest may take. A request of the REST API has little more."""


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
    words = ["sh", "-c", tsm.SCRIPT, "sh", folder or FOLDER, name, base64.b64encode(report_data).decode()]
    ended = run_as_root(command, words, denied=tsm.NOT_ROOT)
    if not ended.ok:
        raise _refused(ended, folder or FOLDER)
    return _read(ended)


def run_as_root(command: Command, words: list[str], *, denied: int) -> CommandResult:
    """Run a script as the account of the lease, and again with sudo if it ends with the exit code `denied`."""
    ended = _run(command, words)
    return (_as_root(command, words) or ended) if ended.exit_code == denied else ended


def _run(command: Command, words: list[str]) -> CommandResult:
    return command.run(words, timeout=SECONDS, max_output=tsm.LARGEST_OUTPUT)


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
    problem, hint = tsm.PROBLEMS.get(ended.exit_code, ("could not run the script that makes a quote: {said}", ""))
    return NotSupported(
        f"The guest {problem.format(folder=folder, said=said)}", hint=hint, capability="attestation", field="lease"
    )


def _read(ended: CommandResult) -> GuestQuote:
    """Read provider and quote from the output. Raises NotSupported and Conflict."""
    provider, _, encoded = ended.stdout.partition(b"\n")
    name = printable(provider.decode("ascii", "replace").strip(), 60)
    if ended.truncated:
        raise Conflict(f"The guest returned more than {tsm.LARGEST_OUTPUT} bytes instead of a quote.", field="lease")
    if name != tsm.PROVIDER:
        raise NotSupported(
            f"The guest's quotes come from {name or 'an unknown source'}; only TDX ({tsm.PROVIDER}) can be verified.",
            capability="attestation", field="lease",
        )  # fmt: skip
    try:
        quote = base64.b64decode(b"".join(encoded.split()), validate=True)
    except binascii.Error:
        raise Conflict("The guest returned something else than a quote.", field="lease") from None
    if not 0 < len(quote) <= LARGEST_QUOTE:
        raise Conflict(f"The guest's quote has {len(quote)} bytes; at most {LARGEST_QUOTE} are read.", field="lease")
    return GuestQuote(provider=name, quote=quote)
