"""Makes TDX quotes and Intel's statements about them, with a root, a platform CA and keys of its own.

Only what Intel would sign differs from a real quote: structure, extensions and statements are like
those of the captured ones.
"""

from __future__ import annotations

import base64
import datetime as dt
import hashlib
import json
import struct
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache, cached_property
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec, utils
from cryptography.x509.oid import NameOID

from drydock_client.attestation.certificates import fingerprint

Key = ec.EllipticCurvePrivateKey
Cert = x509.Certificate
AT = dt.datetime(2026, 3, 1, 12, tzinfo=dt.UTC)
"""A time at which everything that `Maker` makes is valid."""
FMSPC, MR_TD, MR_SIGNER = "90c06f000000", bytes(range(48)), hashlib.sha256(b"signer of the QE").digest()
SVNS = (4, 4, 2, 2, 4, 1, 0, 5, 0, 0, 0, 0, 0, 0, 0, 0)
DAYS = dt.timedelta(days=1)


def raw_signature(key: Key, message: bytes) -> bytes:
    r, s = utils.decode_dss_signature(key.sign(message, ec.ECDSA(hashes.SHA256())))
    return r.to_bytes(32, "big") + s.to_bytes(32, "big")


def point(key: Key) -> bytes:
    form = serialization.PublicFormat.UncompressedPoint
    return key.public_key().public_bytes(serialization.Encoding.X962, form)[1:]


def pem(*certificates: Cert) -> bytes:
    return b"".join(one.public_bytes(serialization.Encoding.PEM) for one in certificates)


def der(tag: int, *parts: bytes) -> bytes:
    content = b"".join(parts)
    length = len(content)
    head = bytes([length]) if length < 0x80 else bytes([0x82, length >> 8, length & 0xFF])
    return bytes([tag]) + head + content


SGX = bytes.fromhex("2a864886f84d010d01")


def pair(number: Sequence[int], value: bytes) -> bytes:
    return der(0x30, der(0x06, SGX + bytes(number)), value)


def sgx_extension(svns: Sequence[int] = SVNS, fmspc: str = FMSPC) -> bytes:
    numbers = [pair((2, n), der(0x02, bytes([svn]))) for n, svn in enumerate((*svns, 13), start=1)]
    return der(
        0x30, pair((1,), der(0x04, bytes(16))), pair((2,), der(0x30, *numbers, pair((2, 18), der(0x04, bytes(16))))),
        pair((3,), der(0x04, bytes(2))), pair((4,), der(0x04, bytes.fromhex(fmspc))), pair((5,), der(0x0A, b"\1")),
    )  # fmt: skip


@dataclass(frozen=True)
class Maker:
    """One set of keys and certificates."""

    fmspc: str = FMSPC
    made: dt.datetime = AT - 30 * DAYS
    until: dt.datetime = AT + 3650 * DAYS
    keys: Mapping[str, Key] = field(
        default_factory=lambda: {
            name: ec.generate_private_key(ec.SECP256R1()) for name in ("root", "platform", "pck", "signer", "quote")
        }
    )

    def _certificate(self, name: str, subject: str, issuer: str, *, signer: str, depth: int | None = None) -> Cert:
        usage = dict.fromkeys(
            ("content_commitment", "key_encipherment", "data_encipherment", "key_agreement", "encipher_only",
             "decipher_only"), False,
        )  # fmt: skip
        authority = depth is not None
        made = (
            x509.CertificateBuilder().subject_name(self._name(subject)).issuer_name(self._name(issuer))
            .public_key(self.keys[name].public_key()).serial_number(x509.random_serial_number())
            .not_valid_before(self.made).not_valid_after(self.until)
            .add_extension(x509.BasicConstraints(ca=authority, path_length=depth), critical=True)
            .add_extension(x509.KeyUsage(digital_signature=not authority, key_cert_sign=authority, crl_sign=authority,
                                         **usage), critical=True)
        )  # fmt: skip
        if name == "pck":
            oid = x509.ObjectIdentifier("1.2.840.113741.1.13.1")
            made = made.add_extension(x509.UnrecognizedExtension(oid, sgx_extension(fmspc=self.fmspc)), critical=False)
        return made.sign(self.keys[signer], hashes.SHA256())

    @staticmethod
    def _name(common: str) -> x509.Name:
        return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, common)])

    @cached_property
    def root(self) -> Cert:
        return self._certificate("root", "Test SGX Root CA", "Test SGX Root CA", signer="root", depth=1)

    @cached_property
    def platform(self) -> Cert:
        return self._certificate("platform", "Test PCK Platform CA", "Test SGX Root CA", signer="root", depth=0)

    @cached_property
    def pck(self) -> Cert:
        return self._certificate("pck", "Test PCK Certificate", "Test PCK Platform CA", signer="platform")

    @cached_property
    def signer(self) -> Cert:
        return self._certificate("signer", "Intel SGX TCB Signing", "Test SGX Root CA", signer="root")

    @property
    def fingerprint(self) -> str:
        return fingerprint(self.root)

    def quote(
        self, report_data: bytes = bytes(64), *, mr_td: bytes = MR_TD, version: int = 4, debug: bool = False,
        svn: Sequence[int] = (11, 1, 4), qe_svn: int = 7, qe_debug: bool = False, chain: bytes | None = None,
        rest: bytes = b"",
    ) -> bytes:  # fmt: skip
        """Return a quote. `version` 5 has the body of TDX 1.5."""
        body = bytes([*svn, *bytes(16 - len(svn))]) + bytes(48 + 48 + 8) + bytes([debug]) + bytes(7) + bytes(8)
        body += mr_td + bytes(48 * 3 + 48 * 4) + report_data
        header = struct.pack("<HHIHH", version, 2, 0x81, 0, 0)
        header += bytes.fromhex("939a7233f79c4ca9940a0db3957f0607") + bytes(20)
        if version == 5:
            body += bytes(64)
            header += struct.pack("<HI", 3, len(body))
        assert len(body) == (648 if version == 5 else 584)
        data = self._signature_data(header + body, qe_svn, qe_debug, chain)
        return header + body + struct.pack("<I", len(data)) + data + rest

    def _signature_data(self, signed: bytes, qe_svn: int, qe_debug: bool, chain: bytes | None) -> bytes:
        key, auth = point(self.keys["quote"]), bytes(range(32))
        bound = hashlib.sha256(key + auth).digest() + bytes(32)
        report = bytes(16 + 4 + 28) + bytes([0x15 | 2 * qe_debug]) + bytes(15) + bytes(32 + 32) + MR_SIGNER + bytes(96)
        report += struct.pack("<HH", 2, qe_svn) + bytes(60) + bound
        assert len(report) == 384
        certificates = pem(self.pck, self.platform, self.root) if chain is None else chain
        inner = report + raw_signature(self.keys["pck"], report) + struct.pack("<H", len(auth)) + auth
        inner += struct.pack("<HI", 5, len(certificates)) + certificates
        return raw_signature(self.keys["quote"], signed) + key + struct.pack("<HI", 6, len(inner)) + inner

    def revocation_list(self, issuer: str, *revoked: Cert, at: dt.datetime = AT) -> bytes:
        """Return a list of `root` or `platform` in DER."""
        made = (
            x509.CertificateRevocationListBuilder().issuer_name(getattr(self, issuer).subject)
            .last_update(at - DAYS).next_update(at + 29 * DAYS)
        )  # fmt: skip
        for one in revoked:
            entry = x509.RevokedCertificateBuilder().serial_number(one.serial_number).revocation_date(at - DAYS)
            made = made.add_revoked_certificate(entry.build())
        return made.sign(self.keys[issuer], hashes.SHA256()).public_bytes(serialization.Encoding.DER)

    def statement(self, kind: str, content: Mapping[str, Any]) -> bytes:
        inner = json.dumps(content, separators=(",", ":")).encode()
        return b'{"%s":%s,"signature":"%s"}' % (
            kind.encode(), inner, raw_signature(self.keys["signer"], inner).hex().encode(),
        )  # fmt: skip

    def tcb_info(self, *, at: dt.datetime = AT, status: str = "UpToDate", **changed: Any) -> bytes:
        return self.statement("tcbInfo", {**tcb_info(self.fmspc, at, status), **changed})

    def qe_identity(self, *, at: dt.datetime = AT, status: str = "UpToDate", **changed: Any) -> bytes:
        return self.statement("enclaveIdentity", {**qe_identity(at, status), **changed})

    def files(self, at: dt.datetime = AT, **instead: bytes | None) -> dict[str, bytes]:
        """Return a complete folder of collateral. `None` leaves a file out."""
        all_ = {
            "tcb": self.tcb_info(at=at), "identity": self.qe_identity(at=at), "chain": pem(self.signer, self.root),
            "rootcrl": self.revocation_list("root", at=at), "pckcrl": self.revocation_list("platform", at=at),
        }  # fmt: skip
        return {name: content for name, content in {**all_, **instead}.items() if content is not None}

    def valid_from(self, at: dt.datetime) -> Maker:
        """Return a maker with the same keys whose certificates are valid at a time."""
        return replace(self, made=at - 30 * DAYS, until=at + 3650 * DAYS)


def _times(at: dt.datetime) -> dict[str, str]:
    return {
        "issueDate": f"{at - DAYS:%Y-%m-%dT%H:%M:%SZ}", "nextUpdate": f"{at + 29 * DAYS:%Y-%m-%dT%H:%M:%SZ}",
    }  # fmt: skip


def tcb_info(fmspc: str, at: dt.datetime, status: str) -> dict[str, Any]:
    def level(sgx: Sequence[int], tdx: Sequence[int], status: str) -> dict[str, Any]:
        components = [[{"svn": svn} for svn in (*svns, *(0,) * (16 - len(svns)))] for svns in (sgx, tdx)]
        tcb = {"sgxtcbcomponents": components[0], "pcesvn": 11, "tdxtcbcomponents": components[1]}
        return {"tcb": tcb, "tcbDate": "2024-11-13T00:00:00Z", "tcbStatus": status}

    module = {"mrsigner": "00" * 48, "attributes": "00" * 8, "attributesMask": "FF" * 8}
    modules = [
        {"tcb": {"isvsvn": 6}, "tcbStatus": "UpToDate"},
        {"tcb": {"isvsvn": 2}, "tcbStatus": "OutOfDate", "advisoryIDs": ["INTEL-SA-01036"]},
    ]
    return {
        "id": "TDX", "version": 3, **_times(at), "fmspc": fmspc, "pceId": "0000", "tcbType": 0,
        "tdxModule": module, "tdxModuleIdentities": [{"id": "TDX_01", **module, "tcbLevels": modules}],
        "tcbLevels": [
            level((4, 4, 2, 2, 4, 1, 0, 5), (5, 0, 4), status),
            {**level((2,), (5, 0, 2), "OutOfDate"), "advisoryIDs": ["INTEL-SA-01079"]},
        ],
    }  # fmt: skip


def qe_identity(at: dt.datetime, status: str) -> dict[str, Any]:
    return {
        "id": "TD_QE", "version": 2, **_times(at), "miscselect": "00000000", "miscselectMask": "FFFFFFFF",
        "attributes": "11000000000000000000000000000000", "attributesMask": "FBFFFFFFFFFFFFFF0000000000000000",
        "mrsigner": MR_SIGNER.hex().upper(), "isvprodid": 2,
        "tcbLevels": [
            {"tcb": {"isvsvn": 6}, "tcbStatus": status},
            {"tcb": {"isvsvn": 4}, "tcbStatus": "OutOfDate", "advisoryIDs": ["INTEL-SA-01099"]},
        ],
    }  # fmt: skip


@cache
def maker() -> Maker:
    """Return the maker that tests of one process share."""
    return Maker()


def encoded(content: bytes) -> str:
    return base64.b64encode(content).decode()
