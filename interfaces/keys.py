"""SSH keys: generates a pair for each lease, and validates the public keys of owners."""

from __future__ import annotations

import base64
import binascii
import hashlib
import re
from dataclasses import dataclass, field
from typing import Self

from cryptography.exceptions import UnsupportedAlgorithm
from cryptography.hazmat.primitives import serialization
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey

from drydock.core.errors import InvalidRequest

_COMMENT = re.compile(r"[A-Za-z0-9@._:+/=, -]{0,200}")


@dataclass(frozen=True, kw_only=True)
class PublicKey:
    """A public key: `kind` ("ssh-ed25519"), `body` (base64) and a comment."""

    kind: str
    body: str
    comment: str = ""

    @classmethod
    def parse(cls, line: str) -> Self:
        """Parse one line of an `authorized_keys` file, without options. Raises InvalidRequest."""
        parts = line.strip().split(None, 2)
        if "\n" in line.strip() or len(parts) < 2:
            raise InvalidRequest("A public key must be a single line.", field="public_key")
        kind, body = parts[:2]
        comment = parts[2] if len(parts) > 2 else ""
        if not _COMMENT.fullmatch(comment):
            raise InvalidRequest("The comment of the key contains characters that are not allowed.", field="public_key")
        try:
            serialization.load_ssh_public_key(f"{kind} {body}".encode())
            base64.b64decode(body, validate=True)
        except (ValueError, UnsupportedAlgorithm, binascii.Error) as error:
            raise InvalidRequest("This is not a valid SSH public key.", field="public_key") from error
        return cls(kind=kind, body=body, comment=comment)

    @property
    def line(self) -> str:
        """The key without its comment, in the form in which it is pinned and compared."""
        return f"{self.kind} {self.body}"

    @property
    def fingerprint(self) -> str:
        """The fingerprint as `ssh-keygen -l` prints it: "SHA256:..."."""
        digest = hashlib.sha256(base64.b64decode(self.body)).digest()
        return "SHA256:" + base64.b64encode(digest).decode().rstrip("=")


@dataclass(frozen=True, kw_only=True)
class KeyPair:
    """A key pair: the private key as OpenSSH text, to be encrypted before it is stored, and the public line."""

    private: str = field(repr=False)
    public: str


def public_line(private: str) -> str:
    """Return the public key of an OpenSSH private key without a passphrase, as a line. Raises InvalidRequest."""
    try:
        key = serialization.load_ssh_private_key(private.encode(), password=None)
    except (ValueError, TypeError, UnsupportedAlgorithm) as error:
        raise InvalidRequest("This is not an OpenSSH private key without a passphrase.", field="private_key") from error
    public = key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    return public.decode()


def new_key_pair(comment: str = "drydock") -> KeyPair:
    """Generate an ed25519 key pair. Raises InvalidRequest for a comment that contains invalid characters."""
    if not _COMMENT.fullmatch(comment):
        raise InvalidRequest("The comment of the key contains characters that are not allowed.", field="comment")
    key = Ed25519PrivateKey.generate()
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.OpenSSH, serialization.NoEncryption()
    )
    public = key.public_key().public_bytes(serialization.Encoding.OpenSSH, serialization.PublicFormat.OpenSSH)
    return KeyPair(private=private.decode(), public=f"{public.decode()} {comment}".strip())
