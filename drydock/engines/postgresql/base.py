"""The database backend: `ENGINE = "drydock.engines.postgresql"`.

With `"DRYDOCK_ENGINES": Config(...)` in the database's settings, a connection first makes sure that the private
PostgreSQL runs; without it, this is Django's own backend. In both cases the server must be PostgreSQL 15 or later.
"""

from __future__ import annotations

from typing import Any

from django.db.backends.postgresql import base, features

from drydock.engines.client import ensure
from drydock.engines.errors import EngineError
from drydock.engines.layout import POSTGRESQL, Config


class DatabaseFeatures(features.DatabaseFeatures):
    """The features that the server must have."""

    minimum_database_version = (15,)


class DatabaseWrapper(base.DatabaseWrapper):
    """A connection that starts the private server if need be."""

    features_class = DatabaseFeatures

    def get_new_connection(self, conn_params: dict[str, Any]) -> Any:
        """Connect. A private engine that has died in the meantime is started again, once."""
        config: Config | None = self.settings_dict.get("DRYDOCK_ENGINES")
        if config is None:
            return super().get_new_connection(conn_params)
        self._ensure(config)
        try:
            return super().get_new_connection(conn_params)
        except self.Database.OperationalError:
            self._ensure(config, again=True)
            return super().get_new_connection(conn_params)

    def _ensure(self, config: Config, again: bool = False) -> None:
        """Make sure that the private engine runs.

        Raises OperationalError if it cannot start, as Django and its callers expect.
        """
        try:
            ensure(config, POSTGRESQL, again=again)
        except EngineError as error:
            raise self.Database.OperationalError(str(error)) from error
