"""The proof that two keys are in the same TPM: a credential that only that TPM can open.

`make_credential` encrypts a secret for an endorsement key (EK), bound to the name of an attestation key (AK). A TPM
returns the secret (TPM2_ActivateCredential) only if it has the private halves of both. Source: "Trusted Platform Module
Library, Part 1: Architecture", credential protection and the appendices on RSA and ECC.
"""

from __future__ import annotations

import hashlib
import hmac
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from drydock_client.attestation import tpm
from drydock_client.attestation.quote import AttestationError
from drydock_client.attestation.tpm import Public

if TYPE_CHECKING:
    from cryptography.hazmat.primitives.asymmetric.ec import EllipticCurvePublicKey
    from cryptography.hazmat.primitives.asymmetric.rsa import RSAPublicKey

_EK = tpm.FIXED_TPM | tpm.FIXED_PARENT | tpm.ORIGIN | tpm.RESTRICTED | tpm.DECRYPT
_FILE = bytes.fromhex("badcc0de00000001")
"""Magic number and version of a file with a credential, as tpm2-tools reads it."""


@dataclass(frozen=True, kw_only=True)
class Credential:
    """A secret that only one TPM can open."""

    secret: bytes
    blob: bytes
    """The content of the file that `tpm2_activatecredential` reads."""


def public_key(key: Public) -> RSAPublicKey | EllipticCurvePublicKey:
    """Return the key of a public area. Raises AttestationError if it is not a point on its curve."""
    from cryptography.hazmat.primitives.asymmetric import ec, rsa

    try:
        if key.algorithm == tpm.RSA:
            return rsa.RSAPublicNumbers(key.exponent, key.modulus).public_key()
        x, y = int.from_bytes(key.x, "big"), int.from_bytes(key.y, "big")
        return ec.EllipticCurvePublicNumbers(x, y, curve_of(key.curve)).public_key()
    except ValueError as error:
        raise AttestationError("public area", f"The key cannot be used: {error}.") from None


def curve_of(name: str) -> Any:
    """Return the curve with a name."""
    from cryptography.hazmat.primitives.asymmetric import ec

    return {"secp256r1": ec.SECP256R1(), "secp384r1": ec.SECP384R1(), "secp521r1": ec.SECP521R1()}[name]


def problem_of_ek(key: Public) -> str:
    """Return why a key cannot be an endorsement key, or an empty string."""
    if lacking := key.lacks(_EK):
        return f"The endorsement key lacks the attributes {lacking}."
    if key.attributes & tpm.SIGN or not key.symmetric_bits:
        return "The endorsement key is not a storage key."
    return ""


def make_credential(ek: Public, ak: Public) -> Credential:
    """Return a new secret for the TPM that has both keys. Raises AttestationError if `ek` is no endorsement key."""
    if problem := problem_of_ek(ek):
        raise AttestationError("endorsement key", problem)
    secret, used = os.urandom(32), ek.name_hash
    seed, wrapped = (_rsa_seed if ek.algorithm == tpm.RSA else _ecc_seed)(ek)
    key = kdf_a(used, seed, "STORAGE", ak.name, ek.symmetric_bits)
    identity = _encrypt(key, _sized(secret))
    bits = 8 * hashlib.new(used).digest_size
    tag = hmac.digest(kdf_a(used, seed, "INTEGRITY", b"", bits), identity + ak.name, used)
    return Credential(secret=secret, blob=_FILE + _sized(_sized(tag) + identity) + _sized(wrapped))


def _sized(content: bytes) -> bytes:
    return len(content).to_bytes(2, "big") + content


def _rsa_seed(ek: Public) -> tuple[bytes, bytes]:
    from cryptography.hazmat.primitives import hashes
    from cryptography.hazmat.primitives.asymmetric import padding

    made = {"sha256": hashes.SHA256(), "sha384": hashes.SHA384(), "sha512": hashes.SHA512()}[ek.name_hash]
    seed, key = os.urandom(made.digest_size), public_key(ek)
    how = padding.OAEP(mgf=padding.MGF1(made), algorithm=made, label=b"IDENTITY\0")
    return seed, key.encrypt(seed, how)  # type: ignore[union-attr]


def _ecc_seed(ek: Public) -> tuple[bytes, bytes]:
    from cryptography.hazmat.primitives.asymmetric import ec

    ours = ec.generate_private_key(curve_of(ek.curve))
    size = (ours.key_size + 7) // 8
    shared = ours.exchange(ec.ECDH(), public_key(ek))  # type: ignore[arg-type]
    numbers = ours.public_key().public_numbers()
    x, y = (one.to_bytes(size, "big") for one in (numbers.x, numbers.y))
    seed = _kdf_e(ek.name_hash, shared, "IDENTITY", x, ek.x.rjust(size, b"\0"))
    return seed, _sized(x) + _sized(y)


def kdf_a(used: str, key: bytes, label: str, context: bytes, bits: int) -> bytes:
    """Return a key of so many bits by KDFa, the function of SP 800-108 in counter mode that TPMs use."""
    found, counter = b"", 0
    while 8 * len(found) < bits:
        counter += 1
        rest = label.encode() + b"\0" + context + bits.to_bytes(4, "big")
        found += hmac.digest(key, counter.to_bytes(4, "big") + rest, used)
    return found[: bits // 8]


def _kdf_e(used: str, shared: bytes, label: str, ours: bytes, theirs: bytes) -> bytes:
    """Return a seed by KDFe, which has the size of one hash."""
    content = (1).to_bytes(4, "big") + shared + label.encode() + b"\0" + ours + theirs
    return hashlib.new(used, content).digest()


def _encrypt(key: bytes, content: bytes) -> bytes:
    from cryptography.hazmat.decrepit.ciphers.modes import CFB
    from cryptography.hazmat.primitives.ciphers import Cipher, algorithms

    made = Cipher(algorithms.AES(key), CFB(bytes(16))).encryptor()
    return made.update(content) + made.finalize()
