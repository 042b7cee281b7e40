"""The service account of the double, and the tokens signed with its key.

google-auth signs a token itself (RS256, no token service asked); Google checks signature, issuer, subject, scope or
audience, and times.
"""

from __future__ import annotations

import base64
import json
import time
from functools import cache
from typing import Any

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import padding, rsa

SCOPES = {"https://www.googleapis.com/auth/compute", "https://www.googleapis.com/auth/cloud-platform"}
AUDIENCE = "https://compute.googleapis.com/"
MANAGER_SCOPES = {
    "https://www.googleapis.com/auth/cloud-platform", "https://www.googleapis.com/auth/cloud-platform.read-only",
}  # fmt: skip
MANAGER_AUDIENCE = "https://cloudresourcemanager.googleapis.com/"


@cache
def _key() -> rsa.RSAPrivateKey:
    return rsa.generate_private_key(public_exponent=65537, key_size=2048)


def service_account(project: str, key: rsa.RSAPrivateKey | None = None) -> dict[str, str]:
    """The JSON key, as Google gives it to be downloaded. Another `key`: one that does not fit."""
    pem = (key or _key()).private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return {
        "type": "service_account",
        "project_id": project,
        "private_key_id": "0123456789abcdef0123456789abcdef01234567",
        "private_key": pem.decode(),
        "client_email": f"drydock@{project}.iam.gserviceaccount.com",
        "client_id": "100000000000000000001",
        "token_uri": "https://oauth2.googleapis.com/token",
    }


def problem(authorization: str, project: str, *, manager: bool = False) -> str:
    """What is wrong with a request's Authorization; empty: nothing. `manager`: at Cloud Resource Manager."""
    scheme, _, token = authorization.partition(" ")
    if scheme != "Bearer" or token.count(".") != 2:
        return "Request is missing required authentication credential."
    signed, _, signature = token.rpartition(".")
    try:
        _key().public_key().verify(_bytes(signature), signed.encode(), padding.PKCS1v15(), hashes.SHA256())
        header, claims = (json.loads(_bytes(part)) for part in signed.split("."))
    except (InvalidSignature, ValueError):
        return "Invalid signature."
    scopes, audience = (MANAGER_SCOPES, MANAGER_AUDIENCE) if manager else (SCOPES, AUDIENCE)
    if not (set(str(claims.get("scope", "")).split()) & scopes or claims.get("aud") == audience):
        return "Invalid scope or audience."
    return _wrong_claims(header, claims, f"drydock@{project}.iam.gserviceaccount.com")


def _wrong_claims(header: dict[str, Any], claims: dict[str, Any], who: str) -> str:
    now = time.time()
    if header.get("alg") != "RS256":
        return "Invalid algorithm."
    if claims.get("iss") != who or claims.get("sub") != who:
        return "Invalid issuer or subject."
    if not claims.get("iat", now + 600) - 60 <= now < claims.get("exp", 0) <= now + 3700:
        return "Expired or not yet valid."
    return ""


def _bytes(text: str) -> bytes:
    return base64.urlsafe_b64decode(text + "=" * (-len(text) % 4))
