"""Sessions of the console in the database, found by a digest of their key.

The session key in a browser's cookie gives access to the console as its user. Django's own store keeps the key itself
in the row, so that anyone who reads the table, or a backup, can use it. Here the row has a digest of the key (SHA-256),
from which the key cannot be derived.
"""

from __future__ import annotations

import hashlib
from typing import Any

from asgiref.sync import sync_to_async
from django.contrib.sessions.backends import db
from django.utils import timezone

_LENGTH = 40
"""Number of hex digits in a stored digest, which is the length of the column. They are 160 bits, as many as a key
has."""


def digest(session_key: str) -> str:
    """Return the digest of a session key, as the row stores it."""
    return hashlib.sha256(session_key.encode()).hexdigest()[:_LENGTH]


class SessionStore(db.SessionStore):
    """Django's database session store, with a digest in place of the key."""

    def _get_session_from_db(self) -> Any:
        key = self.session_key
        found = key and self.model.objects.filter(session_key=digest(key), expire_date__gt=timezone.now()).first()
        if not found:
            self._session_key = None
        return found or None

    def exists(self, session_key: str) -> bool:
        """Return whether a session with this key exists."""
        return super().exists(digest(session_key))

    def create_model_instance(self, data: Any) -> Any:
        """Return the row in which these session data are stored."""
        row = super().create_model_instance(data)
        row.session_key = digest(row.session_key)
        return row

    def delete(self, session_key: str | None = None) -> None:
        """Delete the session with this key, or the current session if no key is given."""
        if key := session_key or self.session_key:
            super().delete(digest(key))

    async def _aget_session_from_db(self) -> Any:
        return await sync_to_async(self._get_session_from_db)()

    async def aexists(self, session_key: str) -> bool:
        """Return whether a session with this key exists."""
        return await super().aexists(digest(session_key))

    async def acreate_model_instance(self, data: Any) -> Any:
        """Return the row in which these session data are stored."""
        row = await super().acreate_model_instance(data)
        row.session_key = digest(row.session_key)
        return row

    async def adelete(self, session_key: str | None = None) -> None:
        """Delete the session with this key, or the current session if no key is given."""
        await sync_to_async(self.delete)(session_key)
