"""The structures of TPM 2.0 that attestation needs: public areas, quotes and signatures.

Nothing here verifies anything or needs a package: these functions read fields one after the other, and refuse bytes
that do not have them, or that have more. Source: "Trusted Platform Module Library, Part 2: Structures".
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Mapping
from dataclasses import dataclass

from drydock_client.attestation.quote import AttestationError

LARGEST = 4096
"""The most bytes that a public area, a quote or a signature may have. Those of RSA 4096 have about 1,100."""
PCRS = 24
"""The number of PCRs of a bank in a PC or server."""

GENERATED = 0xFF544347
"""The magic number of what only the TPM itself makes (TPM_GENERATED)."""
_QUOTE = 0x8018
RSA, ECC = 0x0001, 0x0023
_NULL = 0x0010
RSASSA, RSAPSS, ECDSA = 0x0014, 0x0016, 0x0018
_WITHOUT_HASH = {_NULL, 0x0015}
"""The schemes without a hash: none at all, and RSAES."""
_ECDAA = 0x001A
HASHES = {0x000B: "sha256", 0x000C: "sha384", 0x000D: "sha512"}
"""Maps the identifier of a hash to its name. SHA-1 is refused."""
CURVES = {0x0003: "secp256r1", 0x0004: "secp384r1", 0x0005: "secp521r1"}

FIXED_TPM, FIXED_PARENT, ORIGIN = 1 << 1, 1 << 4, 1 << 5
RESTRICTED, DECRYPT, SIGN = 1 << 16, 1 << 17, 1 << 18
_ATTRIBUTES = {
    FIXED_TPM: "fixedTPM", FIXED_PARENT: "fixedParent", ORIGIN: "sensitiveDataOrigin", RESTRICTED: "restricted",
    DECRYPT: "decrypt", SIGN: "sign",
}  # fmt: skip


@dataclass(frozen=True, kw_only=True)
class Public:
    """The public area of a key (TPMT_PUBLIC)."""

    content: bytes
    algorithm: int
    name_hash: str
    """The hash of the key's name, such as `sha256`."""
    attributes: int
    symmetric_bits: int
    """The bits of the AES key with which a storage key protects others; 0 if it does not."""
    scheme: int
    """The scheme with which it signs, or `_NULL`."""
    modulus: int = 0
    exponent: int = 0
    curve: str = ""
    x: bytes = b""
    y: bytes = b""

    @property
    def name(self) -> bytes:
        """The name of the key: the identifier of a hash, and the hash of the public area."""
        return self.content[2:4] + hashlib.new(self.name_hash, self.content).digest()

    def lacks(self, wanted: int) -> str:
        """Return the names of the attributes in `wanted` that the key does not have, or an empty string."""
        return ", ".join(name for bit, name in _ATTRIBUTES.items() if wanted & bit and not self.attributes & bit)


@dataclass(frozen=True, kw_only=True)
class Quoted:
    """A quote (TPMS_ATTEST of the type quote)."""

    magic: int
    nonce: bytes
    """The data that the caller gave (extraData)."""
    selected: Mapping[str, frozenset[int]]
    """The PCRs that were quoted, by bank."""
    digest: bytes
    """The hash over their values."""
    resets: int
    """How often the TPM was reset."""
    firmware: int
    """The version of the TPM's firmware, in the vendor's own way of counting."""


@dataclass(frozen=True, kw_only=True)
class Signature:
    """A signature (TPMT_SIGNATURE)."""

    scheme: int
    hash: str
    rsa: bytes = b""
    r: int = 0
    s: int = 0


class _Reader:
    """Reads big-endian fields one after the other."""

    def __init__(self, content: bytes, where: str) -> None:
        if len(content) > LARGEST:
            raise AttestationError(where, f"It has {len(content)} bytes; at most {LARGEST} are read.")
        self._content, self._where, self._at = content, where, 0

    def wrong(self, what: str) -> AttestationError:
        return AttestationError(self._where, what)

    def take(self, size: int, what: str) -> bytes:
        found = self._content[self._at : self._at + size]
        if len(found) < size:
            raise self.wrong(f"It ends at byte {len(self._content)}, within {what}.")
        self._at += size
        return found

    def number(self, size: int, what: str) -> int:
        return int.from_bytes(self.take(size, what), "big")

    def sized(self, what: str, most: int = 1024) -> bytes:
        """Read a TPM2B: two bytes of length, and as many bytes."""
        size = self.number(2, what)
        if size > most:
            raise self.wrong(f"The length of {what} is {size}; at most {most} are read.")
        return self.take(size, what)

    def hash(self, what: str) -> str:
        number = self.number(2, what)
        if number not in HASHES:
            raise self.wrong(f"The hash of {what} is 0x{number:04x}; only SHA-256, SHA-384 and SHA-512 are read.")
        return HASHES[number]

    def end(self) -> None:
        if self._at != len(self._content):
            raise self.wrong(f"{len(self._content) - self._at} bytes follow its end.")


def unsized(content: bytes, where: str) -> bytes:
    """Return the bytes of a TPM2B, which tools write in place of the structure in it. Raises AttestationError."""
    reader = _Reader(content, where)
    found = reader.sized("the structure", LARGEST)
    reader.end()
    return found


def parse_public(content: bytes, where: str = "public area") -> Public:
    """Read the public area of an RSA or ECC key. Raises AttestationError."""
    reader = _Reader(content, where)
    algorithm = reader.number(2, "the algorithm")
    if algorithm not in (RSA, ECC):
        raise reader.wrong(f"The algorithm of the key is 0x{algorithm:04x}; only RSA and ECC are read.")
    name_hash, attributes = reader.hash("the name"), reader.number(4, "the attributes")
    reader.sized("the policy", 64)
    bits, scheme = _symmetric(reader), _scheme(reader)
    common = {"content": content, "algorithm": algorithm, "name_hash": name_hash, "attributes": attributes}
    read = _rsa if algorithm == RSA else _ecc
    found = Public(**common, symmetric_bits=bits, scheme=scheme, **read(reader))  # type: ignore[arg-type]
    reader.end()
    return found


def _symmetric(reader: _Reader) -> int:
    """Read TPMT_SYM_DEF_OBJECT. Return the bits of its key; 0 if there is none."""
    algorithm = reader.number(2, "the symmetric algorithm")
    if algorithm == _NULL:
        return 0
    bits, mode = reader.number(2, "the symmetric key"), reader.number(2, "the symmetric mode")
    if (algorithm, mode) != (0x0006, 0x0043) or bits not in (128, 192, 256):
        raise reader.wrong("The symmetric algorithm of the key is not AES in the mode CFB.")
    return bits


def _scheme(reader: _Reader) -> int:
    found = reader.number(2, "the scheme")
    if found not in _WITHOUT_HASH:
        reader.number(2, "the hash of the scheme")
    if found == _ECDAA:
        reader.number(2, "the count of the scheme")
    return found


def _rsa(reader: _Reader) -> dict[str, object]:
    bits, exponent = reader.number(2, "the size of the key"), reader.number(4, "the exponent")
    modulus = reader.sized("the modulus", 512)
    if bits not in (2048, 3072, 4096) or 8 * len(modulus) != bits or not modulus[0] & 0x80:
        raise reader.wrong(f"The RSA key has {bits} bits and a modulus of {len(modulus)} bytes; "
                           "only keys of 2048, 3072 and 4096 bits are read.")  # fmt: skip
    exponent = exponent or 65537
    if exponent < 65537 or not exponent % 2:
        raise reader.wrong(f"The exponent of the RSA key is {exponent}.")
    return {"modulus": int.from_bytes(modulus, "big"), "exponent": exponent}


def _ecc(reader: _Reader) -> dict[str, object]:
    curve = reader.number(2, "the curve")
    if curve not in CURVES:
        raise reader.wrong(f"The curve of the key is 0x{curve:04x}; only P-256, P-384 and P-521 are read.")
    if reader.number(2, "the key derivation") != _NULL:
        reader.number(2, "the hash of the key derivation")
    return {"curve": CURVES[curve], "x": reader.sized("x", 66), "y": reader.sized("y", 66)}


def parse_quoted(content: bytes) -> Quoted:
    """Read a quote. Raises AttestationError, also if the TPM attests something else than PCRs."""
    reader = _Reader(content, "quote")
    magic, kind = reader.number(4, "the magic number"), reader.number(2, "the type")
    if kind != _QUOTE:
        raise reader.wrong(f"Its type is 0x{kind:04x}, not that of a quote (0x{_QUOTE:04x}).")
    reader.sized("the name of the signer", 68)
    nonce = reader.sized("the nonce", 66)
    reader.take(8, "the clock")
    resets = reader.number(4, "the count of resets")
    reader.take(5, "the count of restarts")
    firmware = reader.number(8, "the version of the firmware")
    found = Quoted(
        magic=magic, nonce=nonce, resets=resets, firmware=firmware, selected=_selection(reader),
        digest=reader.sized("the digest of the PCRs", 64),
    )  # fmt: skip
    reader.end()
    return found


def _selection(reader: _Reader) -> dict[str, frozenset[int]]:
    count = reader.number(4, "the number of banks")
    if count > 16:
        raise reader.wrong(f"It has {count} banks of PCRs; at most 16 are read.")
    found: dict[str, frozenset[int]] = {}
    for _ in range(count):
        bank, size = reader.hash("a bank of PCRs"), reader.number(1, "the size of a selection")
        if size > 4 or bank in found:
            raise reader.wrong("The selection of PCRs is malformed.")
        bits = int.from_bytes(reader.take(size, "the selection of PCRs"), "little")
        found[bank] = frozenset(n for n in range(8 * size) if bits >> n & 1)
    return found


def parse_signature(content: bytes) -> Signature:
    """Read a signature by RSASSA, RSAPSS or ECDSA. Raises AttestationError."""
    reader = _Reader(content, "signature")
    scheme = reader.number(2, "the scheme")
    if scheme not in (RSASSA, RSAPSS, ECDSA):
        raise reader.wrong(f"Its scheme is 0x{scheme:04x}; only RSASSA, RSAPSS and ECDSA are read.")
    used = reader.hash("the signature")
    if scheme == ECDSA:
        r, s = (int.from_bytes(reader.sized(name, 66), "big") for name in ("r", "s"))
        found = Signature(scheme=scheme, hash=used, r=r, s=s)
    else:
        found = Signature(scheme=scheme, hash=used, rsa=reader.sized("the signature", 512))
    reader.end()
    return found


def pcr_digest(values: Mapping[int, bytes], used: str) -> bytes:
    """Return the hash over PCR values in the order of their numbers, as a TPM computes it."""
    return hashlib.new(used, b"".join(values[number] for number in sorted(values))).digest()


def pcr_values(content: bytes, bank: str, numbers: Iterable[int]) -> dict[int, bytes]:
    """Split the values of PCRs that follow one another in the order of their numbers. Raises AttestationError."""
    wanted, size = sorted(numbers), hashlib.new(bank).digest_size
    if len(content) != size * len(wanted):
        raise AttestationError("PCR values", f"There are {len(content)} bytes; {len(wanted)} PCRs of {bank} have "
                               f"{size * len(wanted)}.")  # fmt: skip
    return {number: content[at * size : (at + 1) * size] for at, number in enumerate(wanted)}
