"""Encryption of stored secrets: Fernet with a list of keys, of which the first encrypts and all decrypt."""

from __future__ import annotations

import functools

from cryptography.fernet import Fernet, InvalidToken, MultiFernet
from django.conf import settings

from drydock.core.errors import DrydockError


class BadKey(DrydockError):
    """An encryption key cannot be used."""

    code = "bad_key"


class Undecryptable(DrydockError):
    """A stored secret cannot be decrypted with the configured keys."""

    code = "undecryptable"


class Ciphertext(str):
    """An encrypted value as stored. Printing it shows the ciphertext, never the secret."""

    __slots__ = ()


def encrypt(plain: str) -> Ciphertext:
    """Encrypt a text with the first key."""
    return Ciphertext(_cipher().encrypt(plain.encode()).decode())


def decrypt(sealed: str) -> str:
    """Decrypt a text with the matching key. Raises Undecryptable if none matches."""
    try:
        return _cipher().decrypt(sealed.encode()).decode()
    except InvalidToken as error:
        raise Undecryptable(
            "A stored secret cannot be decrypted with the configured keys.",
            hint="Add the key that encrypted it to the end of DRYDOCK_ENCRYPTION_KEYS, or store the secret again.",
        ) from error


def rotate(sealed: str) -> Ciphertext:
    """Encrypt the same secret with the first key. Raises Undecryptable."""
    return encrypt(decrypt(sealed))


def is_current(sealed: str) -> bool:
    """Return whether a secret is encrypted with the first key."""
    try:
        _cipher_for((settings.DRYDOCK_ENCRYPTION_KEYS[0],)).decrypt(sealed.encode())
    except InvalidToken:
        return False
    return True


def looks_sealed(text: str) -> bool:
    """Return whether a text looks like a Fernet token."""
    return text.startswith("gAAAAA")


def _cipher() -> MultiFernet:
    return _cipher_for(tuple(settings.DRYDOCK_ENCRYPTION_KEYS))


@functools.lru_cache(maxsize=8)
def _cipher_for(keys: tuple[str, ...]) -> MultiFernet:
    try:
        return MultiFernet([Fernet(key) for key in keys])
    except ValueError as error:
        raise BadKey(
            "DRYDOCK_ENCRYPTION_KEYS must be Fernet keys (32 bytes in URL-safe base64), comma separated.",
            hint="`python -m drydock.keys` prints a new one.",
        ) from error
