"""Quotes of TPMs that do not exist: structures, keys and certificates of our own, which tests may tamper with."""

from __future__ import annotations

import datetime as dt
import hashlib
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec, padding, rsa, utils
from cryptography.hazmat.primitives.serialization import Encoding
from cryptography.x509.oid import NameOID

from drydock_client.attestation import TpmEvidence, qualifying, tpm

NOW = dt.datetime(2026, 6, 1, tzinfo=dt.UTC)
PCRS = {0: b"\x10" * 32, 2: b"\x12" * 32, 7: b"\x17" * 32}
AK = tpm.FIXED_TPM | tpm.FIXED_PARENT | tpm.ORIGIN | 1 << 6 | tpm.RESTRICTED | tpm.SIGN
EK = tpm.FIXED_TPM | tpm.FIXED_PARENT | tpm.ORIGIN | 1 << 7 | tpm.RESTRICTED | tpm.DECRYPT


def u16(number: int) -> bytes:
    return number.to_bytes(2, "big")


def sized(content: bytes) -> bytes:
    return u16(len(content)) + content


def ecc_public(key: ec.EllipticCurvePrivateKey, attributes: int = AK) -> bytes:
    """The public area of a P-256 key that signs by ECDSA with SHA-256."""
    numbers = key.public_key().public_numbers()
    return (
        u16(tpm.ECC) + u16(0x000B) + attributes.to_bytes(4, "big") + sized(b"") + u16(0x0010)
        + u16(tpm.ECDSA) + u16(0x000B) + u16(0x0003) + u16(0x0010)
        + sized(numbers.x.to_bytes(32, "big")) + sized(numbers.y.to_bytes(32, "big"))
    )  # fmt: skip


def rsa_public(key: rsa.RSAPrivateKey, attributes: int, *, scheme: int = 0x0010) -> bytes:
    """The public area of an RSA key: one that stores with AES 128 or, with a scheme, one that signs."""
    of = u16(0x0010) if attributes & tpm.SIGN else u16(0x0006) + u16(128) + u16(0x0043)
    said = u16(scheme) + (b"" if scheme == 0x0010 else u16(0x000B))
    modulus = key.public_key().public_numbers().n.to_bytes(256, "big")
    return (
        u16(tpm.RSA) + u16(0x000B) + attributes.to_bytes(4, "big") + sized(b"p" * 32) + of + said
        + u16(2048) + bytes(4) + sized(modulus)
    )  # fmt: skip


@dataclass(frozen=True)
class Authority:
    """A certificate authority, as vendors of TPMs have."""

    name: str
    key: ec.EllipticCurvePrivateKey = field(default_factory=lambda: ec.generate_private_key(ec.SECP256R1()))
    begins: dt.datetime = NOW - dt.timedelta(days=1)

    def certificate(self) -> x509.Certificate:
        return self._issue(self.name, self.key.public_key(), ca=True)

    def pem(self) -> bytes:
        return self.certificate().public_bytes(Encoding.PEM)

    def issue(self, key: Any) -> bytes:
        return self._issue("", key, ca=False).public_bytes(Encoding.DER)

    def _issue(self, subject: str, key: Any, *, ca: bool) -> x509.Certificate:
        usage = x509.KeyUsage(
            digital_signature=False, content_commitment=False, key_encipherment=not ca, data_encipherment=False,
            key_agreement=False, key_cert_sign=ca, crl_sign=ca, encipher_only=False, decipher_only=False,
        )  # fmt: skip
        builder = (
            x509.CertificateBuilder(_name(self.name), _name(subject), key, x509.random_serial_number())
            .not_valid_before(self.begins).not_valid_after(self.begins + dt.timedelta(days=365))
            .add_extension(x509.BasicConstraints(ca=ca, path_length=None), critical=True)
            .add_extension(usage, critical=True)
        )  # fmt: skip
        return builder.sign(self.key, hashes.SHA256())


def _name(text: str) -> x509.Name:
    return x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, text)] if text else [])


@dataclass(frozen=True)
class Tpm:
    """A TPM with its endorsement key and its attestation key."""

    authority: Authority = field(default_factory=lambda: Authority("TPM vendor"))
    ek_key: rsa.RSAPrivateKey = field(default_factory=lambda: rsa.generate_private_key(65537, 2048))
    ak_key: Any = field(default_factory=lambda: ec.generate_private_key(ec.SECP256R1()))
    ak: bytes = b""

    @property
    def ek(self) -> bytes:
        return rsa_public(self.ek_key, EK)

    def evidence(
        self, nonce: bytes, lease: int = 0, *, values: Mapping[int, bytes] = PCRS, magic: int = tpm.GENERATED,
        **changes: Any,
    ) -> TpmEvidence:  # fmt: skip
        """A quote for a nonce, with the rest of the evidence."""
        stated = TpmEvidence(quote=b"", signature=b"", ak=self.ak or ecc_public(self.ak_key), pcrs=values, ek=self.ek,
                             ek_certificate=self.authority.issue(self.ek_key.public_key()), nonce=nonce, lease=lease,
                             collected_at=NOW)  # fmt: skip
        message = quoted(qualifying(nonce, stated.context), values, magic=magic)
        return replace(stated, **{"quote": message, "signature": self.sign(message), **changes})

    def sign(self, message: bytes, *, pss: bool = False) -> bytes:
        if isinstance(self.ak_key, rsa.RSAPrivateKey):
            how = padding.PSS(padding.MGF1(hashes.SHA256()), 32) if pss else padding.PKCS1v15()
            made = self.ak_key.sign(message, how, hashes.SHA256())
            return u16(tpm.RSAPSS if pss else tpm.RSASSA) + u16(0x000B) + sized(made)
        r, s = utils.decode_dss_signature(self.ak_key.sign(message, ec.ECDSA(hashes.SHA256())))
        return u16(tpm.ECDSA) + u16(0x000B) + b"".join(sized(one.to_bytes(32, "big")) for one in (r, s))


def quoted(extra: bytes, values: Mapping[int, bytes], *, magic: int = tpm.GENERATED) -> bytes:
    """TPMS_ATTEST with the digest over PCR values."""
    bits = sum(1 << number for number in values).to_bytes(3, "little")
    digest = hashlib.sha256(b"".join(values[number] for number in sorted(values))).digest()
    return (
        magic.to_bytes(4, "big") + u16(0x8018) + sized(b"\0\x0b" + bytes(32)) + sized(extra)
        + bytes(8) + (3).to_bytes(4, "big") + bytes(5) + bytes(8)
        + (1).to_bytes(4, "big") + u16(0x000B) + b"\x03" + bits + sized(digest)
    )  # fmt: skip
