"""Quotes of Intel TDX, which Linux 6.7 and later make for the machine that they run on.

They are under `/sys/kernel/config/tsm/report`, the same for all confidential machines: 64 bytes are written to `inblob`
of a new folder, and `outblob` and `provider` are read (Documentation/ABI/testing/configfs-tsm of the kernel). Only root
may.
"""

from __future__ import annotations

import base64
import binascii

from blueprints.attestation.host_tpm import NoEvidence
from drydock_client.attestation import LARGEST_QUOTE

FOLDER = "/sys/kernel/config/tsm/report"
PROVIDER = "tdx_guest"
"""The name that the kernel gives to the source of TDX quotes."""
NO_FOLDER, NOT_ROOT, NO_REPORT, NOT_WRITTEN, NO_QUOTE = range(61, 66)
LARGEST_OUTPUT = 2 * LARGEST_QUOTE

SCRIPT = f"""
[ -d "$1" ] || exit {NO_FOLDER}
[ -w "$1" ] || exit {NOT_ROOT}
report=$1/$2
mkdir -- "$report" || exit {NO_REPORT}
trap 'rmdir -- "$report" 2>/dev/null' EXIT
printf %s "$3" | base64 -d >"$report/inblob" || exit {NOT_WRITTEN}
tries=0
# The quoting enclave on the host may be busy; then the kernel returns an error, or nothing.
until quote=$(head -c {LARGEST_QUOTE + 1} "$report/outblob" 2>/dev/null | base64) && [ -n "$quote" ]; do
  tries=$((tries + 1))
  [ $tries -lt 25 ] || exit {NO_QUOTE}
  sleep 0.2
done
head -c 100 "$report/provider" | head -n 1
printf '%s\\n' "$quote"
"""
"""$1: the folder of reports, $2: the name of the new report, $3: 64 bytes in base64. Prints provider and quote."""

_NOT_TDX = "Check in the guest that `/sys/firmware/tdx` or `dmesg | grep -i tdx` shows a TDX guest."
PROBLEMS = {
    NO_FOLDER: (
        "has no {folder}: it is not a TDX guest, its kernel is older than 6.7, or configfs is not mounted.",
        "Mount it in the guest: `mount -t configfs none /sys/kernel/config`, and load the module tdx_guest.",
    ),
    NOT_ROOT: (
        "lets only root make quotes, and the account of the lease is not root and may not use sudo.",
        "Lease the whole machine with an account that has sudo.",
    ),
    NO_REPORT: ("refused to make a report: {said}", _NOT_TDX),
    NOT_WRITTEN: ("refused the nonce: {said}", _NOT_TDX),
    NO_QUOTE: (
        "made no quote in time: the quoting service of its host does not answer.",
        "Try again; if it fails again, tell the provider of the machine.",
    ),
}
"""Maps exit codes of the script to the problem and to what can be done."""


def refused(exit_code: int, said: str) -> NoEvidence:
    """Return the error for an exit code of the script on a host, with what the script said."""
    problem, hint = PROBLEMS.get(exit_code, ("could not run the script that makes a quote: {said}", ""))
    said = "".join(one if one.isprintable() else " " for one in said.strip()[-200:]) or f"exit code {exit_code}."
    return NoEvidence(f"The host {problem.format(folder=FOLDER, said=said)}", hint=hint)


def read(output: str) -> tuple[str, bytes]:
    """Return provider and quote from what the script printed on a host. Raises NoEvidence."""
    provider, _, encoded = output.partition("\n")
    if provider.strip() != PROVIDER:
        raise NoEvidence(f"The quotes of the host do not come from {PROVIDER}.")
    try:
        quote = base64.b64decode("".join(encoded.split()), validate=True)
    except (ValueError, binascii.Error):
        quote = b""
    if not 0 < len(quote) <= LARGEST_QUOTE:
        raise NoEvidence("The host returned something else than a TDX quote.")
    return PROVIDER, quote
