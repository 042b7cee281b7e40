"""The structure of Intel TDX quotes, versions 4 and 5.

Nothing here verifies anything or needs a package: these functions read fields at their offsets, and refuse a quote that
does not have them. Source of all offsets: "Intel TDX DCAP Quoting Library API", appendix A.3 and A.4.
"""

from __future__ import annotations

import struct
from dataclasses import dataclass

from drydock_client.errors import InvalidRequest

LARGEST_QUOTE = 32_768
"""The most bytes that a quote may have. Linux stores at most as many (`TSM_REPORT_OUTBLOB_MAX`)."""

_HEADER, _ECDSA_P256, _TDX = 48, 2, 0x81
_TD10_BODY, _TD15_BODY, _QE_REPORT = 584, 648, 384
_BODIES = {2: _TD10_BODY, 3: _TD15_BODY}
"""Maps the body types of version 5 that belong to a TD to their sizes: TDX 1.0 and TDX 1.5."""
_QE_CERTIFICATION, _PCK_CHAIN = 6, 5


class AttestationError(InvalidRequest):
    """The evidence, or what it is to be compared with, cannot be read. Says where and what is wrong.

    Evidence that can be read and is not trustworthy raises nothing: its verdict says so.
    """

    def __init__(self, where: str, what: str) -> None:
        super().__init__(what, field=where)

    @property
    def where(self) -> str:
        """The part or the file that cannot be read."""
        return self.field

    @property
    def what(self) -> str:
        """The error as one sentence."""
        return self.message


@dataclass(frozen=True, kw_only=True)
class TdReport:
    """The report of the TDX module about a trust domain (TD), a confidential virtual machine."""

    tee_tcb_svn: bytes
    """Security versions (SVNs) of the TDX module and the processor, 16 bytes. The second byte is the module's major
    version."""
    mr_seam: bytes
    """SHA-384 of the TDX module."""
    mr_signer_seam: bytes
    """SHA-384 of the key that signed the TDX module. Zero if Intel signed it."""
    seam_attributes: bytes
    td_attributes: bytes
    xfam: bytes
    mr_td: bytes
    """SHA-384 of the TD as it was built: its firmware and first memory."""
    mr_config_id: bytes
    mr_owner: bytes
    mr_owner_config: bytes
    rtmrs: tuple[bytes, ...]
    """The four registers that firmware and operating system extend while they start."""
    report_data: bytes
    """The 64 bytes that the TD gave."""
    tee_tcb_svn_2: bytes = b""
    """The SVNs of the TDX module that runs now, which may be newer than at the start of the TD. Only in TDX 1.5."""

    @property
    def debug(self) -> bool:
        """Whether the host may read and change the memory of the TD: bit 0 of its attributes."""
        return bool(self.td_attributes[0] & 1)


@dataclass(frozen=True, kw_only=True)
class QeReport:
    """The report of the processor about the quoting enclave (QE), which signed the quote."""

    cpu_svn: bytes
    misc_select: bytes
    attributes: bytes
    mr_enclave: bytes
    mr_signer: bytes
    product: int
    svn: int
    report_data: bytes

    @property
    def debug(self) -> bool:
        """Whether the enclave can be debugged: bit 1 of its attributes."""
        return bool(self.attributes[0] & 2)


@dataclass(frozen=True, kw_only=True)
class Quote:
    """A quote with its parts. `signed` is what `signature` signs with `attestation_key`."""

    version: int
    qe_vendor: bytes
    """The id of the vendor of the quoting enclave, which is not compared: the chain decides."""
    report: TdReport
    signed: bytes
    signature: bytes
    """r and s, 32 bytes each, of ECDSA with SHA-256 on the curve P-256."""
    attestation_key: bytes
    """x and y, 32 bytes each."""
    qe: QeReport
    qe_signed: bytes
    qe_signature: bytes
    qe_authentication: bytes
    pck_chain: bytes
    """Certificates in PEM format, beginning with the provisioning certification key (PCK) of the processor."""
    unsigned_rest: int
    """The number of bytes after the signature data, which nothing protects and nothing here reads."""


class _Reader:
    """Reads fields one after the other, and raises AttestationError instead of reading beyond the end."""

    def __init__(self, content: bytes, where: str) -> None:
        self._content, self._where, self.at = content, where, 0

    def take(self, count: int, what: str) -> bytes:
        there = len(self._content) - self.at
        if count > there:
            raise AttestationError(
                self._where, f"{what} needs {count} bytes at offset {self.at}, and {there} are left."
            )
        self.at += count
        return self._content[self.at - count : self.at]

    def number(self, size: int, what: str) -> int:
        return int.from_bytes(self.take(size, what), "little")

    def over(self, what: str) -> None:
        if left := len(self._content) - self.at:
            raise AttestationError(self._where, f"{what} is followed by {left} bytes that do not belong there.")


def parse_quote(content: bytes) -> Quote:
    """Read a TDX quote of version 4 or 5. Raises AttestationError if it is anything else, cut off or too long."""
    if len(content) > LARGEST_QUOTE:
        raise AttestationError("quote", f"It has {len(content)} bytes; at most {LARGEST_QUOTE} are read.")
    reader = _Reader(content, "quote")
    version, vendor = _header(reader.take(_HEADER, "the header"))
    body = reader.take(_body_size(reader, version), "the report of the TD")
    signed = content[: reader.at]
    signature_data = reader.take(reader.number(4, "the length of the signature data"), "the signature data")
    return _signature_data(
        signature_data, version=version, qe_vendor=vendor, report=_td_report(body), signed=signed,
        unsigned_rest=len(content) - reader.at,
    )  # fmt: skip


def _header(header: bytes) -> tuple[int, bytes]:
    version, key_type, tee, _, _, vendor, _ = struct.unpack("<HHIHH16s20s", header)
    if version not in (4, 5):
        raise AttestationError("quote header", f"Version {version} cannot be read; TDX quotes have version 4 or 5.")
    if key_type != _ECDSA_P256:
        raise AttestationError("quote header", f"Key type {key_type} cannot be read; {_ECDSA_P256} is ECDSA P-256.")
    if tee != _TDX:
        raise AttestationError("quote header", f"The quote is of a TEE of type {tee:#x}; TDX is {_TDX:#x}.")
    return version, vendor


def _body_size(reader: _Reader, version: int) -> int:
    """Return the size of the body. In version 5 its type and size precede it."""
    if version == 4:
        return _TD10_BODY
    kind, size = reader.number(2, "the type of the body"), reader.number(4, "the size of the body")
    if kind not in _BODIES:
        raise AttestationError("quote body", f"Type {kind} is not a report of a TD; 2 is TDX 1.0 and 3 is TDX 1.5.")
    if size != _BODIES[kind]:
        raise AttestationError("quote body", f"A body of type {kind} has {_BODIES[kind]} bytes, not {size}.")
    return size


def _td_report(body: bytes) -> TdReport:
    reader = _Reader(body, "report of the TD")

    def take(count: int) -> bytes:
        return reader.take(count, "a field")

    return TdReport(
        tee_tcb_svn=take(16), mr_seam=take(48), mr_signer_seam=take(48), seam_attributes=take(8), td_attributes=take(8),
        xfam=take(8), mr_td=take(48), mr_config_id=take(48), mr_owner=take(48), mr_owner_config=take(48),
        rtmrs=tuple(take(48) for _ in range(4)), report_data=take(64),
        tee_tcb_svn_2=take(16) if len(body) == _TD15_BODY else b"",
    )  # fmt: skip


def _signature_data(content: bytes, **parts: object) -> Quote:
    """Read the signature, the attestation key, and the certification data of type 6 that is nested behind them."""
    reader = _Reader(content, "signature data")
    signature, key = reader.take(64, "the signature"), reader.take(64, "the attestation key")
    kind, inner = _certification(reader)
    if kind != _QE_CERTIFICATION:
        raise AttestationError("signature data", f"Certification data of type {kind} cannot be read; 6 is expected.")
    reader.over("the certification data")
    return _qe_certification(inner, signature=signature, attestation_key=key, **parts)


def _certification(reader: _Reader) -> tuple[int, bytes]:
    kind = reader.number(2, "the type of the certification data")
    size = reader.number(4, "the size of the certification data")
    return kind, reader.take(size, "the certification data")


def _qe_certification(content: bytes, **parts: object) -> Quote:
    """Read the report of the quoting enclave, its signature, and the chain of the key that made it."""
    reader = _Reader(content, "certification data")
    report, signature = reader.take(_QE_REPORT, "the QE report"), reader.take(64, "the signature of the QE report")
    authentication = reader.take(reader.number(2, "the length of the authentication data"), "the authentication data")
    kind, chain = _certification(reader)
    if kind != _PCK_CHAIN:
        raise AttestationError(
            "certification data", f"Type {kind} cannot be read; 5, the certificates of the PCK, is expected."
        )
    reader.over("the chain of certificates")
    given: dict[str, object] = {
        "qe": _qe_report(report), "qe_signed": report, "qe_signature": signature, "qe_authentication": authentication,
        "pck_chain": chain.rstrip(b"\0"), **parts,
    }  # fmt: skip
    return Quote(**given)  # type: ignore[arg-type]


def _qe_report(content: bytes) -> QeReport:
    """Read an SGX enclave report (Intel Software Developer's Manual, volume 3D, table "Layout of REPORT")."""
    product, svn = struct.unpack_from("<HH", content, 256)
    return QeReport(
        cpu_svn=content[:16], misc_select=content[16:20], attributes=content[48:64], mr_enclave=content[64:96],
        mr_signer=content[128:160], product=product, svn=svn, report_data=content[320:384],
    )  # fmt: skip
