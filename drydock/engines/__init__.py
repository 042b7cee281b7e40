"""The private PostgreSQL and broker, used if DATABASE_URL or BROKER_URL is not set.

They start at the first connection of any process and stop with the last process that uses them. Each user keeps a
connection open to a small detached *keeper*, the parent of both engines. The kernel closes that connection however a
process ends, so the keeper always knows its users. Nothing here imports Django, except the database backend in
`postgresql`.
"""

from drydock.engines.client import ensure, leave, wait_until_stopped
from drydock.engines.errors import EngineError
from drydock.engines.layout import BROKER, POSTGRESQL, Config, Layout

__all__ = [
    "BROKER",
    "POSTGRESQL",
    "Config",
    "EngineError",
    "Layout",
    "ensure",
    "leave",
    "wait_until_stopped",
]
