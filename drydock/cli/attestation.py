"""`drydock attest`: TDX and TPM quotes of leased machines, fetched, kept and verified."""

from __future__ import annotations

import base64
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated

import typer

from drydock.cli.toolkit import options as o
from drydock.cli.toolkit import output
from drydock.cli.toolkit.exits import FAILURE, guarded
from drydock.core import clock
from drydock.core.errors import InvalidRequest, NotFound

if TYPE_CHECKING:
    from drydock_client.attestation import Evidence, Verdict
    from drydock_client.values import CheckResult, EvidenceInfo

_OFFLINE = "With --verify"


def add_attest(app: typer.Typer) -> None:
    """Add `drydock attest`."""
    app.command("attest", rich_help_panel="Work")(attest)


@guarded
def attest(
    lease: Annotated[
        int | None, typer.Argument(metavar="[LEASE]", parser=o.lease_reference, help="The lease's number or name.")
    ] = None, *,
    kind: Annotated[
        str, typer.Option(metavar="KIND", help="tdx, or tpm for the TPM of an enrolled host.")
    ] = "tdx",
    nonce: Annotated[
        str, typer.Option(metavar="HEX", help="16 to 64 bytes that the quote must answer. Default: the server's.")
    ] = "",
    mrtd: Annotated[
        list[str] | None, typer.Option("--mrtd", metavar="HEX", help="Accepted value of MR_TD; repeatable.")
    ] = None,
    pcr: Annotated[
        list[str] | None, typer.Option(metavar="N=HEX", help="Expected value of a PCR; repeatable.")
    ] = None,
    fetch: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Save the newest evidence of the lease, and ask no machine.")
    ] = None,
    verify: Annotated[
        Path | None, typer.Option(metavar="FILE", help="Verify saved evidence, or a quote, without a server.")
    ] = None,
    root: Annotated[
        Path | None, typer.Option(metavar="PEM", help="Trust this root instead of Intel's.", rich_help_panel=_OFFLINE)
    ] = None,
    collateral: Annotated[
        Path | None,
        typer.Option(metavar="DIR", help="Folder with answers of Intel's service.", rich_help_panel=_OFFLINE),
    ] = None,
    accept: Annotated[
        list[str] | None,
        typer.Option(metavar="STATUS", help="Accept this TCB status beside UpToDate.", rich_help_panel=_OFFLINE),
    ] = None,
    ca: Annotated[
        Path | None,
        typer.Option(metavar="PEM", help="Authorities of endorsement keys of TPMs.", rich_help_panel=_OFFLINE),
    ] = None,
    ak: Annotated[
        Path | None,
        typer.Option(metavar="FILE", help="Expected attestation key, or its SHA-256.", rich_help_panel=_OFFLINE),
    ] = None,
    at: Annotated[
        str | None, typer.Option(metavar="TIME", help="Verify for this time, not now.", rich_help_panel=_OFFLINE)
    ] = None,
    as_json: o.AsJson = False,
) -> None:  # fmt: skip
    """Prove that the machine of a lease is a confidential virtual machine (Intel TDX), or what it started (TPM).

    The exit code is 1 if a check failed. The evidence stays with the lease.
    """
    if verify is not None:
        if lease is not None or fetch is not None:
            raise InvalidRequest("--verify takes no lease and no --fetch.", field="verify")
        if pcr or ca or ak:
            _refuse("a TPM", {"--mrtd": mrtd, "--root": root, "--collateral": collateral, "--accept": accept})
            return _verify_tpm(verify, nonce, pcr or [], ca, ak, at, as_json=as_json)
        return _verify(verify, nonce, mrtd or [], root, collateral, accept or [], at, as_json=as_json)
    if root or collateral or accept or at or ca or ak:
        raise InvalidRequest(
            "--root, --collateral, --accept, --ca, --ak and --at need --verify; the server has its own."
        )
    if lease is None:
        raise InvalidRequest("Give a lease, or --verify FILE.", field="lease")
    if fetch is not None:
        if nonce or mrtd or pcr:
            raise InvalidRequest(
                "--fetch saves what is kept; it takes no --nonce, no --mrtd and no --pcr.", field="fetch"
            )
        return _fetch(lease, fetch, as_json=as_json)
    found = o.client().attest(lease, nonce=nonce, mr_td=mrtd or [], kind=kind, pcr=pcr or [])
    return _show(found, as_json=as_json)


def _show(found: EvidenceInfo, *, as_json: bool) -> None:
    if as_json:
        output.emit(found)
    else:
        whose = "yours" if found.chosen else "chosen by the server"
        _print(found.message, found.checks, [
            ("MR_TD", found.mr_td), ("AK", found.ak), *_pcrs(found.pcrs),
            ("nonce", f"{found.nonce} ({whose})"), ("TCB status", found.tcb_status),
            ("advisories", list(found.advisories)),
        ])  # fmt: skip
    _exit(passed=found.passed)


def _print(message: str, checks: Sequence[CheckResult], facts: Sequence[tuple[str, object]]) -> None:
    output.pairs(message, facts)
    output.table(("check", "outcome", "message"), [(one.name, one.outcome, one.message) for one in checks])


def _exit(*, passed: bool) -> None:
    if not passed:
        raise typer.Exit(FAILURE)


def _fetch(lease: int, path: Path, *, as_json: bool) -> None:
    """Save the newest evidence of a lease for its owner only, replacing the file."""
    from drydock_client.attestation import Evidence, write_evidence

    kept = o.client().evidence(lease)
    if not kept:
        raise NotFound(
            f"Lease {lease} has no attestation evidence.", field="lease", hint=f"Collect it: drydock attest {lease}"
        )
    newest = kept[0]
    content = base64.b64decode(newest.quote)
    if newest.kind == "tdx":
        content = write_evidence(Evidence(
            quote=content, nonce=bytes.fromhex(newest.nonce), lease=newest.lease, provider=newest.provider,
            collected_at=newest.collected_at,
        ))  # fmt: skip
    try:
        with open(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC, 0o600), "wb") as opened:
            opened.write(content)
    except OSError as error:
        raise InvalidRequest(f"{path} cannot be written: {error.strerror}.", field="fetch") from None
    if as_json:
        output.emit({"file": str(path), "evidence": newest.id})
    else:
        known = " --ak FILE --ca FILE" if newest.kind == "tpm" else ""
        output.say(f"Evidence {newest.id} is in {path}. Verify it: drydock attest --verify {path}{known}")


def _verify(
    path: Path, nonce: str, mrtd: Sequence[str], root: Path | None, collateral: Path | None, accept: Sequence[str],
    at: str | None, *, as_json: bool,
) -> None:  # fmt: skip
    """Verify a file with nothing but the client package."""
    from drydock_client import attestation

    unknown = sorted(set(accept) - set(attestation.STATUSES))
    if unknown:
        raise InvalidRequest(
            f"{unknown[0]} is not a TCB status.",
            field="accept",
            hint=f"Choose from: {', '.join(attestation.STATUSES)}.",
        )
    expected = attestation.Expected(
        nonce=attestation.nonce_of(nonce) if nonce else b"", mr_tds=frozenset(map(attestation.mr_td_of, mrtd)),
        root=attestation.root_fingerprint(_read(root, "root")) if root else attestation.INTEL_ROOT,
        tcb_statuses=frozenset({attestation.UP_TO_DATE, *accept}),
        collateral=attestation.load_folder(collateral) if collateral else attestation.Collateral(),
    )  # fmt: skip
    content = _read(path, "verify")
    if attestation.is_tpm_evidence(content):
        _refuse("a TPM", {"--mrtd": mrtd, "--root": root, "--collateral": collateral, "--accept": accept})
        return _verify_tpm(path, nonce, [], None, None, at, as_json=as_json)
    evidence = attestation.read_evidence(content)
    verdict = attestation.verify_evidence(evidence, expected, o.moment(at) or clock.now())
    if as_json:
        output.emit({**vars(verdict), "passed": verdict.passed, "message": verdict.sentence, "lease": evidence.lease})
    else:
        _print(verdict.sentence, verdict.checks, _facts(evidence, verdict))
        if unused := expected.collateral.unused:
            output.say(f"Files in {collateral} that are not collateral: {', '.join(unused)}")
    _exit(passed=verdict.passed)


def _refuse(subject: str, given: Mapping[str, object]) -> None:
    """Refuse options that do not concern the evidence of `subject`."""
    if wrong := [name for name, value in given.items() if value]:
        raise InvalidRequest(f"{wrong[0]} does not concern evidence of {subject}.", field="verify")


def _verify_tpm(
    path: Path, nonce: str, pcr: Sequence[str], ca: Path | None, ak: Path | None, at: str | None, *, as_json: bool
) -> None:
    """Verify evidence of a TPM with nothing but the client package.

    Raises InvalidRequest without an attestation key: any program can make a key of its own and sign with it, and the
    certificate of an endorsement key says nothing about that key.
    """
    from drydock_client import attestation

    if ak is None:
        raise InvalidRequest(
            "Evidence of a TPM needs --ak, the attestation key that Drydock enrolled: without it, nothing ties the "
            "quote to a TPM.",
            field="ak",
            hint="`drydock resources show` shows its SHA-256 as ak_sha256 of the fact attestation. Write it to a file.",
        )
    expected = attestation.TpmExpected(
        nonce=attestation.nonce_of(nonce) if nonce else b"", authorities=_read(ca, "ca") if ca else b"",
        ak=attestation.ak_of(_read(ak, "ak")),
        pcrs={number: frozenset({value}) for number, value in map(attestation.pcr_of, pcr)},
    )  # fmt: skip
    evidence = attestation.read_tpm_evidence(_read(path, "verify"))
    verdict = attestation.verify_tpm(evidence, expected, o.moment(at) or clock.now())
    if as_json:
        output.emit({**vars(verdict), "passed": verdict.passed, "message": verdict.sentence, "lease": evidence.lease})
    else:
        _print(verdict.sentence, verdict.checks, [
            ("lease", evidence.lease or ""), ("collected", evidence.collected_at), ("AK", verdict.ak),
            ("issuer", verdict.issuer), *_pcrs(verdict.pcrs),
        ])  # fmt: skip
    _exit(passed=verdict.passed)


def _pcrs(values: Mapping[str, str]) -> list[tuple[str, object]]:
    return [(f"PCR {number}", value) for number, value in values.items()]


def _facts(evidence: Evidence, verdict: Verdict) -> list[tuple[str, object]]:
    return [
        ("lease", evidence.lease or ""), ("collected", evidence.collected_at), ("MR_TD", verdict.mr_td),
        ("TCB status", verdict.tcb_status), ("advisories", list(verdict.advisories)),
    ]  # fmt: skip


_LARGEST = 1 << 20


def _read(path: Path, field: str) -> bytes:
    try:
        with path.open("rb") as opened:
            return opened.read(_LARGEST)
    except OSError as error:
        raise InvalidRequest(f"{path} cannot be read: {error.strerror}.", field=field) from None
