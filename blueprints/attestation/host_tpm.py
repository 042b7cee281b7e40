"""Asking the TPM of a host, by tpm2-tools that a script runs there as root.

The attestation key is a primary key of the endorsement hierarchy. The TPM derives it from its seed, so it is the same
each time, also after the TPM was cleared, and nothing is stored on the host.
"""

from __future__ import annotations

import base64
import binascii
from collections.abc import Mapping
from dataclasses import dataclass

from drydock.core.errors import DrydockError
from drydock_client import attestation
from drydock_client.attestation import AttestationError

LARGEST_OUTPUT = 64 << 10
"""The most bytes that a script may print."""
NO_TOOLS, NO_FOLDER, NO_TPM, NO_KEY, NO_QUOTE, NOT_OPENED = range(61, 67)

_BEGIN = f"""
for tool in createprimary createek readpublic nvread activatecredential quote; do
  command -v "tpm2_$tool" >/dev/null 2>&1 || exit {NO_TOOLS}
done
TPM2TOOLS_TCTI=$1
export TPM2TOOLS_TCTI
folder=$(mktemp -d) && cd "$folder" || exit {NO_FOLDER}
trap 'cd /; rm -rf -- "$folder"' EXIT
# A TPM without a resource manager has room for three keys.
quiet() {{ "$@" >/dev/null && tpm2_flushcontext -t >/dev/null 2>&1; }}
tell() {{ printf '%s=%s\\n' "$1" "$(head -c 8192 "$2" 2>/dev/null | base64 | tr -d '\\n')"; }}
tpm2_getcap properties-fixed >/dev/null || exit {NO_TPM}
quiet tpm2_createprimary -C e -g sha256 -G ecc256:ecdsa-sha256:null -c ak.ctx \\
  -a 'fixedtpm|fixedparent|sensitivedataorigin|userwithauth|restricted|sign|noda' || exit {NO_KEY}
quiet tpm2_readpublic -c ak.ctx -o ak || exit {NO_KEY}
endorsement() {{
  ek=0x81010001
  quiet tpm2_readpublic -c $ek -o ek 2>/dev/null && return 0
  ek=ek.ctx
  quiet tpm2_createek -G rsa -c ek.ctx -u ek
}}
"""
"""$1: how to reach the TPM. Firmware often keeps the endorsement key, which takes long to derive."""

IDENTIFY = f"""{_BEGIN}
endorsement || exit {NO_KEY}
quiet tpm2_nvread 0x1c00002 -o certificate 2>/dev/null
for each in ak ek certificate; do tell $each $each; done
"""
"""Prints the public areas of both keys, and the certificate of the endorsement key if there is one."""

QUOTE = f"""{_BEGIN}
if [ -n "$4" ]; then
  endorsement || exit {NO_KEY}
  printf %s "$4" | base64 -d >credential || exit {NO_KEY}
  tpm2_startauthsession --policy-session -S session >/dev/null || exit {NO_KEY}
  tpm2_policysecret -S session -c e >/dev/null || exit {NO_KEY}
  tpm2_activatecredential -c ak.ctx -C $ek -i credential -o secret -P session:session >/dev/null 2>&1
  opened=$?
  tpm2_flushcontext session >/dev/null 2>&1
  tpm2_flushcontext -t >/dev/null 2>&1
  [ $opened = 0 ] || : >secret
  tell secret secret
fi
quiet tpm2_quote -c ak.ctx -l "$2" -q "$3" -g sha256 -m quote -s signature -o pcrs -F values || exit {NO_QUOTE}
for each in ak quote signature pcrs; do tell $each $each; done
"""
"""$2: the PCRs, $3: the bytes to sign in hexadecimal digits, $4: a credential in base64, or nothing. Prints the secret
of the credential (empty if the TPM did not open it), the attestation key, the quote, its signature and the PCRs."""

PROBLEMS = {
    NO_TOOLS: ("lacks tpm2-tools.", "Install them on the host (Debian: tpm2-tools)."),
    NO_FOLDER: ("has no room for temporary files.", "Free space in its /tmp."),
    NO_TPM: ("has no TPM 2.0 that answers: {said}", "Switch the TPM on in the firmware of the host."),
    NO_KEY: ("has a TPM that makes no attestation key: {said}", "Remove the password of its endorsement hierarchy."),
    NO_QUOTE: ("has a TPM that made no quote: {said}", "Check that its TPM has the bank of PCRs that is asked for."),
}
"""Maps exit codes of the scripts to the problem and to what can be done."""


class NoEvidence(DrydockError):
    """The host could not give evidence, or gave something that cannot be read."""

    code = "no_evidence"


@dataclass(frozen=True, kw_only=True)
class TpmIdentity:
    """The keys of a TPM as its host returned them. Nothing of it is trusted."""

    ak: bytes
    ek: bytes
    certificate: bytes


@dataclass(frozen=True, kw_only=True)
class TpmQuote:
    """A quote as a host returned it. Nothing of it is trusted."""

    ak: bytes
    quote: bytes
    signature: bytes
    values: bytes
    secret: bytes


def refused(exit_code: int, said: str) -> NoEvidence:
    """Return the error for an exit code of a script, with what the script said."""
    problem, hint = PROBLEMS.get(exit_code, ("could not run the script that asks its TPM: {said}", ""))
    said = "".join(one if one.isprintable() else " " for one in said.strip()[-300:]) or f"exit code {exit_code}"
    return NoEvidence(f"The host {problem.format(said=said.rstrip('.') + '.')}", hint=hint)


def read_identity(output: str) -> TpmIdentity:
    """Read what `IDENTIFY` printed. Raises NoEvidence."""
    found = _fields(output)
    return TpmIdentity(ak=_area(found, "ak"), ek=_area(found, "ek"), certificate=found.get("certificate", b""))


def read_quote(output: str) -> TpmQuote:
    """Read what `QUOTE` printed. Raises NoEvidence."""
    found = _fields(output)
    return TpmQuote(
        ak=_area(found, "ak"), quote=found.get("quote", b""), signature=found.get("signature", b""),
        values=found.get("pcrs", b""), secret=found.get("secret", b""),
    )  # fmt: skip


def _fields(output: str) -> Mapping[str, bytes]:
    if len(output) > LARGEST_OUTPUT:
        raise NoEvidence(f"The host returned more than {LARGEST_OUTPUT} bytes instead of evidence.")
    found = {}
    for line in output.splitlines():
        name, _, value = line.partition("=")
        try:
            found[name] = base64.b64decode(value, validate=True)
        except (ValueError, binascii.Error):
            raise NoEvidence("The host returned something else than evidence of a TPM.") from None
    return found


def _area(found: Mapping[str, bytes], name: str) -> bytes:
    try:
        return attestation.unsized(found.get(name, b""), name)
    except AttestationError as error:
        raise NoEvidence(f"The host returned a key that cannot be read. {error}") from None
