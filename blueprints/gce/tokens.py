"""Who signs our requests.

With a service account's key we sign each token ourselves, for the service that is asked as its audience
(google.aip.dev/auth/4111), and ask no token service. google-auth's own classes would do the same, but (seen in 2.62)
they also ask iamcredentials.googleapis.com for a "regional access boundary" in the background, with our token and
whatever the endpoint is: a call that nobody sees, without a deadline of ours.
"""

from __future__ import annotations

import datetime as dt
import time
from collections.abc import Sequence
from typing import Any

import google.auth
from google.auth import crypt, jwt
from google.auth.credentials import Credentials
from google.oauth2 import service_account

from blueprints.cloud.faults import CloudError, Meaning
from blueprints.gce.config import Credential

SCOPES = ("https://www.googleapis.com/auth/compute",)
AUDIENCE = "https://compute.googleapis.com/"
READ_SCOPES = ("https://www.googleapis.com/auth/cloud-platform.read-only",)
"""The least that Cloud Resource Manager takes (its discovery document, projects.testIamPermissions)."""
LIFE = 3600
"""Seconds; Google takes no more."""


class Signed(Credentials):
    """Tokens signed by a key that we have."""

    def __init__(self, signer: Any, email: str, audience: str) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._signer, self._email, self._audience = signer, email, audience

    def refresh(self, request: Any) -> None:
        """A new token; `request` is not used."""
        now = int(time.time())
        said = {"iss": self._email, "sub": self._email, "aud": self._audience, "iat": now, "exp": now + LIFE}
        self.token = jwt.encode(self._signer, said).decode()  # type: ignore[no-untyped-call]
        # google-auth compares with a naive time in UTC.
        self.expiry = dt.datetime.fromtimestamp(now + LIFE, dt.UTC).replace(tzinfo=None)


def token(credential: Credential, audience: str = AUDIENCE, scopes: Sequence[str] = SCOPES) -> Any:
    """What the SDK takes, for the service that is the audience, or that takes one of the scopes. Raises CloudError
    CREDENTIALS, or what google-auth raises where there is nothing."""
    if credential.environment:
        found, _ = google.auth.default(scopes=scopes)
        if isinstance(found, service_account.Credentials):
            return Signed(found.signer, found.service_account_email, audience)
        return found
    key = credential.key()
    try:
        signer = crypt.RSASigner.from_service_account_info(key)  # type: ignore[no-untyped-call]
    except ValueError:
        text = "The service account's private key cannot be read."
        raise CloudError(Meaning.CREDENTIALS, text, provider_code="badKey") from None
    return Signed(signer, key["client_email"], audience)
