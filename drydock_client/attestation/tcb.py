"""The status of a TCB, from Intel's signed statements.

The algorithm is the one that Intel publishes with `GET /tdx/certification/v4/tcb` and with its quote verification
library: a level applies if no SVN of the platform is below it, and the first level that applies decides.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from drydock_client.attestation.certificates import Platform
from drydock_client.attestation.collateral import Statement, levels, numbers
from drydock_client.attestation.quote import AttestationError, QeReport, TdReport

UP_TO_DATE = "UpToDate"
STATUSES = (
    UP_TO_DATE, "SWHardeningNeeded", "ConfigurationNeeded", "ConfigurationAndSWHardeningNeeded", "OutOfDate",
    "OutOfDateConfigurationNeeded", "Revoked",
)  # fmt: skip
"""Every status that Intel gives to a TCB level."""

_WITH_OLD_PART = {
    UP_TO_DATE: "OutOfDate", "SWHardeningNeeded": "OutOfDate", "ConfigurationNeeded": "OutOfDateConfigurationNeeded",
    "ConfigurationAndSWHardeningNeeded": "OutOfDateConfigurationNeeded",
}  # fmt: skip
"""Maps the status of a platform to its status if its TDX module or quoting enclave is out of date."""


@dataclass(frozen=True, kw_only=True)
class Level:
    """The TCB level that applies. `problem` says why none does; then the status is empty."""

    status: str = ""
    advisories: tuple[str, ...] = ()
    problem: str = ""


def platform_level(statement: Statement, platform: Platform, report: TdReport) -> Level:
    """Return the level of processor and TDX module. Raises AttestationError if the statement is malformed."""
    info = statement.content
    for name, given, theirs in (
        ("FMSPC", info.get("fmspc"), platform.fmspc), ("PCE-ID", info.get("pceId"), platform.pce_id),
    ):  # fmt: skip
        if not isinstance(given, str) or given.lower() != theirs:
            return Level(problem=f"{statement.source} is about the {name} {given}; the processor has {theirs}.")
    module = _module_level(statement, report)
    if module.problem:
        return module
    found = _processor_level(statement, platform, report)
    return found if found.problem else converged(found, module)


def _processor_level(statement: Statement, platform: Platform, report: TdReport) -> Level:
    """Return the first level with no SVN above the platform's.

    The first two TDX components are those of the TDX module, which has an identity of its own from version 1 on.
    """
    where, skipped = statement.source, 2 if report.tee_tcb_svn[1] else 0
    for one in levels(statement.content, where):
        tcb = one["tcb"]
        sgx = numbers(tcb.get("sgxtcbcomponents"), where)
        tdx = numbers(tcb.get("tdxtcbcomponents"), where)
        pce = tcb.get("pcesvn")
        if not isinstance(pce, int):
            raise AttestationError(where, "A TCB level has no pcesvn.")
        if (
            all(has >= least for has, least in zip(platform.components, sgx, strict=True))
            and platform.pce_svn >= pce
            and all(has >= least for has, least in zip(report.tee_tcb_svn[skipped:], tdx[skipped:], strict=True))
        ):
            return _level(one)
    return Level(problem=f"The SVNs of the processor are below every level in {where}.")


def _level(found: Mapping[str, Any]) -> Level:
    status, advisories = found["tcbStatus"], found.get("advisoryIDs")
    if status not in STATUSES:
        return Level(problem=f"The TCB status {status} is not known.")
    named = advisories if isinstance(advisories, list) else []
    return Level(status=status, advisories=tuple(one for one in named if isinstance(one, str)))


def _module_level(statement: Statement, report: TdReport) -> Level:
    """Return the level of the TDX module, by its identity for its major version, which Intel signed."""
    svn, version = report.tee_tcb_svn[0], report.tee_tcb_svn[1]
    if version == 0:
        module = statement.content.get("tdxModule")
        problem = _module_problem(module, report, statement.source)
        return Level(problem=problem) if problem else Level(status=UP_TO_DATE)
    name = f"TDX_{version:02X}"
    known = statement.content.get("tdxModuleIdentities", [])
    if not isinstance(known, list):
        raise AttestationError(statement.source, "tdxModuleIdentities is not a list.")
    identity = next((one for one in known if isinstance(one, dict) and str(one.get("id")).upper() == name), None)
    if identity is None:
        return Level(problem=f"{statement.source} does not know the TDX module {name}.")
    if problem := _module_problem(identity, report, statement.source):
        return Level(problem=problem)
    return _enclave_level(identity, svn, f"the TDX module {name}", statement.source)


def _module_problem(identity: Any, report: TdReport, where: str) -> str:
    if not isinstance(identity, dict):
        raise AttestationError(where, "The identity of the TDX module is missing.")
    if _hex(identity, "mrsigner", 48, where) != report.mr_signer_seam:
        return "The TDX module was signed by another key than Intel names."
    mask = _hex(identity, "attributesMask", 8, where)
    if _masked(report.seam_attributes, mask) != _hex(identity, "attributes", 8, where):
        return "The attributes of the TDX module are not those that Intel names."
    return ""


def enclave_level(statement: Statement, qe: QeReport) -> Level:
    """Return the level of the quoting enclave. Raises AttestationError if the statement is malformed."""
    identity, where = statement.content, statement.source
    comparisons = (
        ("MRSIGNER", qe.mr_signer, _hex(identity, "mrsigner", 32, where)),
        ("MISCSELECT", _masked(qe.misc_select, _little(identity, "miscselectMask", where)),
         _little(identity, "miscselect", where)),
        ("attributes", _masked(qe.attributes, _hex(identity, "attributesMask", 16, where)),
         _hex(identity, "attributes", 16, where)),
        ("product id", qe.product, identity.get("isvprodid")),
    )  # fmt: skip
    for name, has, wanted in comparisons:
        if has != wanted:
            return Level(problem=f"The {name} of the quoting enclave differs from {where}.")
    return _enclave_level(identity, qe.svn, "the quoting enclave", where)


def _little(identity: Mapping[str, Any], name: str, where: str) -> bytes:
    """Return a 32-bit number, which Intel writes with its most significant digit first, as the report has it."""
    return _hex(identity, name, 4, where)[::-1]


def _enclave_level(identity: Mapping[str, Any], svn: int, what: str, where: str) -> Level:
    for one in levels(identity, where):
        least = one["tcb"].get("isvsvn")
        if not isinstance(least, int):
            raise AttestationError(where, "A TCB level has no isvsvn.")
        if svn >= least:
            return _level(one)
    return Level(problem=f"The SVN {svn} of {what} is below every level in {where}.")


def converged(platform: Level, part: Level) -> Level:
    """Return the level of a platform together with that of its TDX module or its quoting enclave."""
    advisories = tuple(dict.fromkeys((*platform.advisories, *part.advisories)))
    status = platform.status
    if "Revoked" in (platform.status, part.status):
        status = "Revoked"
    elif part.status != UP_TO_DATE:
        status = _WITH_OLD_PART.get(platform.status, platform.status)
    return Level(status=status, advisories=advisories)


def _hex(content: Mapping[str, Any], name: str, size: int, where: str) -> bytes:
    try:
        found = bytes.fromhex(content[name])
    except (KeyError, TypeError, ValueError):
        found = b""
    if len(found) != size:
        raise AttestationError(where, f"{name} is not {size} bytes in hexadecimal digits.")
    return found


def _masked(content: bytes, mask: bytes) -> bytes:
    return bytes(one & keep for one, keep in zip(content, mask, strict=True))
