"""Intel's statements about TCBs and quoting enclaves, and revocation lists, as an operator saved them in a folder.

A folder contains answers of Intel's provisioning certification service (PCS, API version 4) as they came, under any
names: the bodies of `tcb` and `qe/identity`, the header `TCB-Info-Issuer-Chain` (PEM, also URL-encoded), and the
revocation lists `pckcrl` and `rootcacrl`. What a file is follows from its content.
"""

from __future__ import annotations

import datetime as dt
import hashlib
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote_to_bytes

from drydock_client.attestation import certificates
from drydock_client.attestation.quote import AttestationError

if TYPE_CHECKING:
    from cryptography.x509 import Certificate, CertificateRevocationList

_MOST_FILES, _LARGEST_FILE = 64, 4 << 20
_SIGNER = "Intel SGX TCB Signing"
_KINDS = {"tcbInfo": ("TDX", 3), "enclaveIdentity": ("TD_QE", 2)}
"""Maps the member of a statement to the id and the version that it must have."""
_MEMBER = re.compile(r'\s*\{\s*"(tcbInfo|enclaveIdentity)"\s*:\s*')
"""Matches the beginning of an answer, up to the statement that is signed."""
_DAYS = "%Y-%m-%dT%H:%M:%SZ"


@dataclass(frozen=True, kw_only=True)
class Statement:
    """A signed statement of Intel: TCB information or the identity of the quoting enclave."""

    kind: str
    """`tcbInfo` or `enclaveIdentity`."""
    content: Mapping[str, Any]
    signed: bytes
    signature: bytes
    issued_at: dt.datetime
    next_update: dt.datetime
    source: str


@dataclass(frozen=True, kw_only=True)
class Collateral:
    """Everything with which a quote is compared."""

    statements: tuple[Statement, ...] = ()
    signer_chain: tuple[Certificate, ...] = ()
    """The certificate that signs statements, and the root."""
    revocation_lists: tuple[CertificateRevocationList, ...] = ()
    digest: str = ""
    """SHA-256 over the SHA-256 of each file in ascending order. Empty if there are no files."""
    unused: tuple[str, ...] = field(default=())
    """Names of files that are none of these."""

    def statements_of(self, kind: str) -> list[Statement]:
        """Return the statements of a kind, the newest first."""
        return sorted((one for one in self.statements if one.kind == kind), key=lambda one: one.issued_at, reverse=True)

    def problem_of(self, statement: Statement, root: str, at: dt.datetime) -> str:
        """Return why a statement cannot be trusted at a time, or an empty string if it can."""
        if said := self._signer_problem(root, at):
            return said
        if not certificates.signed_by(self.signer_chain[0], statement.signature, statement.signed):
            return f"{statement.source} was not signed by {_SIGNER}."
        if at < statement.issued_at:
            return f"{statement.source} was issued on {statement.issued_at:%Y-%m-%d}, after {at:%Y-%m-%d}."
        if at > statement.next_update:
            return f"{statement.source} was to be replaced by {statement.next_update:%Y-%m-%d}; it is out of date."
        return ""

    def _signer_problem(self, root: str, at: dt.datetime) -> str:
        if not self.signer_chain:
            return f"The certificate of {_SIGNER} is missing from the collateral."
        if (name := certificates.name_of(self.signer_chain[0])) != _SIGNER:
            return f"The collateral was signed by {name}, not by {_SIGNER}."
        if said := certificates.chain_problem(self.signer_chain, root):
            return f"The chain of the collateral is not good. {said}"
        revoked, _ = certificates.revocation_problem(self.signer_chain, self.revocation_lists, at)
        return revoked or certificates.validity_problem(self.signer_chain, at)


def load_folder(folder: Path) -> Collateral:
    """Read the files of a folder, without its subfolders.

    Raises AttestationError if the folder cannot be read, or if a file is cut off, damaged or too large.
    """
    where = f"collateral {folder}"
    try:
        names = sorted(path for path in folder.iterdir() if path.is_file() and not path.name.startswith("."))
        if len(names) > _MOST_FILES:
            raise AttestationError(where, f"There are {len(names)} files; at most {_MOST_FILES} are read.")
        files = {path.name: _read(path) for path in names}
    except OSError as error:
        raise AttestationError(where, f"It cannot be read: {error.strerror or error}.") from None
    return load_files(files)


def _read(path: Path) -> bytes:
    with path.open("rb") as opened:
        content = opened.read(_LARGEST_FILE + 1)
    if len(content) > _LARGEST_FILE:
        raise AttestationError(f"collateral {path}", f"The file is larger than {_LARGEST_FILE >> 20} MiB.")
    return content


def load_files(files: Mapping[str, bytes]) -> Collateral:
    """Read collateral from the contents of files by name. Raises AttestationError for a damaged file."""
    certificates.available()
    statements: list[Statement] = []
    lists: list[CertificateRevocationList] = []
    chain: tuple[Certificate, ...] = ()
    unused = []
    for name, content in sorted(files.items()):
        if content.lstrip().startswith(b"{"):
            statements.append(_statement(content, name))
        elif content.startswith(b"\x30") or b"BEGIN X509 CRL" in content:
            lists.append(certificates.load_revocation_list(content, name))
        elif b"BEGIN" in content and b"CERTIFICATE" in content:
            chain = _signer_chain(content, name) or chain
        else:
            unused.append(name)
    return Collateral(
        statements=tuple(statements), signer_chain=chain, revocation_lists=tuple(lists), digest=_digest(files.values()),
        unused=tuple(unused),
    )  # fmt: skip


def _digest(contents: Iterable[bytes]) -> str:
    each = sorted(hashlib.sha256(content).digest() for content in contents)
    return hashlib.sha256(b"".join(each)).hexdigest() if each else ""


def _signer_chain(content: bytes, name: str) -> tuple[Certificate, ...]:
    """Return the chain of the signer of statements, or nothing if the file has another chain, as of a PCK list."""
    found = certificates.load_certificates(unquote_to_bytes(content) if b"%20" in content else content, name)
    return found if certificates.name_of(found[0]) == _SIGNER else ()


def _statement(content: bytes, name: str) -> Statement:
    """Read `{"tcbInfo": ..., "signature": ...}` or the same with `enclaveIdentity`.

    The signature is over the bytes of the member as they stand in the answer. Only these are read, so that nothing
    beside them, such as a second member of the same name, is believed.
    """
    try:
        text = content.decode()
        found = _MEMBER.match(text)
        kind, start = (found[1], found.end()) if found else ("", 0)
        inner, end = json.JSONDecoder().raw_decode(text, start)
        signature = bytes.fromhex(json.loads(text)["signature"])
        given = (inner["id"], inner["version"])
        issued_at, next_update = (_time(inner[one]) for one in ("issueDate", "nextUpdate"))
        wanted = _KINDS[kind]
    except (ValueError, KeyError, TypeError, RecursionError):
        raise AttestationError(name, "It is neither TCB information nor the identity of a quoting enclave.") from None
    if given != wanted:
        raise AttestationError(name, f"{kind} has the id and version {given}; {wanted} is expected.")
    if len(signature) != 64:
        raise AttestationError(name, f"The signature has {len(signature)} bytes, not 64.")
    return Statement(
        kind=kind, content=inner, signed=text[start:end].encode(), signature=signature, issued_at=issued_at,
        next_update=next_update, source=name,
    )  # fmt: skip


def _time(given: str) -> dt.datetime:
    return dt.datetime.strptime(given, _DAYS).replace(tzinfo=dt.UTC)


def numbers(components: Any, where: str) -> tuple[int, ...]:
    """Return the SVNs of 16 components. Raises AttestationError if they are anything else."""
    try:
        found = tuple(one["svn"] for one in components)
    except (TypeError, KeyError):
        found = ()
    if len(found) != 16 or not all(isinstance(one, int) for one in found):
        raise AttestationError(where, "A TCB level does not have 16 components with an SVN each.")
    return found


def levels(content: Mapping[str, Any], where: str) -> Sequence[Mapping[str, Any]]:
    """Return the TCB levels of a statement or of an identity in it. Raises AttestationError if they are malformed."""
    found = content.get("tcbLevels")
    good = isinstance(found, list) and all(
        isinstance(one, dict) and isinstance(one.get("tcb"), dict) and isinstance(one.get("tcbStatus"), str)
        for one in found
    )
    if not good:
        raise AttestationError(where, "The TCB levels are malformed.")
    assert isinstance(found, list)
    return found
