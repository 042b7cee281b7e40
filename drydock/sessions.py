"""Sessions of the console in the database, found by a digest of their key.

The key in a browser's cookie opens the console as its user. With Django's own store it stands in the row as it is, so
that whoever reads the table, or a backup, can use it. Here the row has its SHA-256, from which no key follows.
"""

from __future__ import annotations

import hashlib
from typing import Any

from asgiref.sync import sync_to_async
from django.contrib.sessions.backends import db
from django.utils import timezone

_LENGTH = 40
"""The column's. 160 bits of the digest: as many as a key has."""


def digest(session_key: str) -> str:
    """What stands in the row for a key."""
    return hashlib.sha256(session_key.encode()).hexdigest()[:_LENGTH]


class SessionStore(db.SessionStore):
    """Django's store in the database, with the digest where it has the key."""

    def _get_session_from_db(self) -> Any:
        key = self.session_key
        found = key and self.model.objects.filter(session_key=digest(key), expire_date__gt=timezone.now()).first()
        if not found:
            self._session_key = None
        return found or None

    def exists(self, session_key: str) -> bool:
        """Whether there is a session of this key."""
        return super().exists(digest(session_key))

    def create_model_instance(self, data: Any) -> Any:
        """The row to be written."""
        row = super().create_model_instance(data)
        row.session_key = digest(row.session_key)
        return row

    def delete(self, session_key: str | None = None) -> None:
        """Remove a session, this one when no key is given."""
        if key := session_key or self.session_key:
            super().delete(digest(key))

    async def _aget_session_from_db(self) -> Any:
        return await sync_to_async(self._get_session_from_db)()

    async def aexists(self, session_key: str) -> bool:
        """As `exists`."""
        return await super().aexists(digest(session_key))

    async def acreate_model_instance(self, data: Any) -> Any:
        """As `create_model_instance`."""
        row = await super().acreate_model_instance(data)
        row.session_key = digest(row.session_key)
        return row

    async def adelete(self, session_key: str | None = None) -> None:
        """As `delete`."""
        await sync_to_async(self.delete)(session_key)
