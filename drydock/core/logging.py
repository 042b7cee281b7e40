"""Logs as lines or JSON, with the ids of the objects that they are about. Secrets are never printed.

Secrets are recognized in three ways: values under secret-sounding names, passwords in URLs, and the exact values that
`hidden` is given while they are in use.
"""

from __future__ import annotations

import contextlib
import datetime as dt
import json
import logging
import re
from collections.abc import Iterable, Iterator, Mapping
from contextvars import ContextVar
from types import MappingProxyType
from typing import Any

_SECRET = re.compile(
    r"(?P<name>(?:password|passwd|secret|token|api[_-]?key|private[_-]?key|authorization)[\"']?\s*[=:]\s*)"
    r"(?P<value>\"[^\"]*\"|'[^']*'|(?:Bearer\s+|Basic\s+)?[^\s,;)}\]]+)",
    re.IGNORECASE,
)
_URL_PASSWORD = re.compile(r"(?P<head>://[^\s:/@]*:)[^\s@/]+@")
"""Matches a URL's password. The pattern does not include the scheme, because a search that tries every letter as its
beginning takes time quadratic in the length of the text."""
_PRIVATE_KEY = re.compile(r"-----BEGIN [A-Z ]*PRIVATE KEY-----.*?(?:-----END [A-Z ]*PRIVATE KEY-----|\Z)", re.DOTALL)
BLOT = "***"
LONGEST = 1 << 18
"""Maximum number of characters of a text that are searched. The rest is left out, because it could contain anything."""
_EDGE = 2000
"""Number of characters before a cut that are left out as well, because half a secret would not be recognized."""
_SHORTEST = 6
"""Minimum length of a value to hide. Shorter values also occur as words of ordinary text."""

_about: ContextVar[Mapping[str, Any]] = ContextVar("about", default=MappingProxyType({}))
_hidden: ContextVar[frozenset[str]] = ContextVar("hidden", default=frozenset())
_always: set[str] = set()


@contextlib.contextmanager
def about(**ids: Any) -> Iterator[None]:
    """Add these ids to every log line within the block, except those that are None."""
    before = _about.set({**_about.get(), **{name: value for name, value in ids.items() if value is not None}})
    try:
        yield
    finally:
        _about.reset(before)


@contextlib.contextmanager
def hidden(*kept: Any) -> Iterator[None]:
    """Redact every text in these values (mappings, sequences, texts) within the block."""
    before = _hidden.set(_hidden.get() | frozenset(_texts(kept)))
    try:
        yield
    finally:
        _hidden.reset(before)


def hide_always(*kept: Any) -> None:
    """Redact these values for the rest of this process, such as the keys of the installation."""
    _always.update(_texts(kept))


def _texts(kept: Any) -> Iterator[str]:
    if isinstance(kept, str):
        # A key of several lines may be printed line by line.
        yield from (part for part in {kept, *kept.splitlines()} if len(part.strip()) >= _SHORTEST)
    elif isinstance(kept, dict):
        yield from _texts(list(kept.values()))
    elif isinstance(kept, Iterable) and not isinstance(kept, bytes):
        for one in kept:
            yield from _texts(one)


def redact(text: str) -> str:
    """Return a text with passwords, tokens and keys redacted, in linear time; cut at `LONGEST`."""
    for value in sorted(_hidden.get() | _always, key=len, reverse=True):
        text = text.replace(value, BLOT)
    long = len(text) > LONGEST
    text = _PRIVATE_KEY.sub(BLOT, text[:LONGEST])
    text = _URL_PASSWORD.sub(rf"\g<head>{BLOT}@", _SECRET.sub(rf"\g<name>{BLOT}", text))
    return f"{text[:-_EDGE]} ... (too long)" if long else text


class AboutFilter(logging.Filter):
    """Adds the ids of the context to each record, in the thread that logs it."""

    def filter(self, record: logging.LogRecord) -> bool:
        """Return True for every record."""
        record.about = _about.get()
        return True


class RedactingFormatter(logging.Formatter):
    """Formats a record, including its traceback, with its ids at the end of the first line, and redacts secrets."""

    def formatMessage(self, record: logging.LogRecord) -> str:
        """Return the line before a traceback, with the ids."""
        ids = " ".join(f"{name}={value}" for name, value in getattr(record, "about", {}).items())
        return super().formatMessage(record) + (f" [{ids}]" if ids else "")

    def format(self, record: logging.LogRecord) -> str:
        """Return the formatted record with secrets redacted."""
        return redact(super().format(record))


class JsonFormatter(logging.Formatter):
    """Formats a record as one line of JSON: at, level, logger, message, ids and traceback. Redacts secrets."""

    def format(self, record: logging.LogRecord) -> str:
        """Return the formatted record with secrets redacted."""
        said = {
            "at": dt.datetime.fromtimestamp(record.created, dt.UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname,
            "logger": record.name,
            "message": redact(record.getMessage()),
            "process": record.process,
            **{name: redact(str(value)) if isinstance(value, str) else value
               for name, value in getattr(record, "about", {}).items()},
        }  # fmt: skip
        if record.exc_info:
            said["traceback"] = redact(self.formatException(record.exc_info))
        if record.stack_info:
            said["stack"] = redact(self.formatStack(record.stack_info))
        return json.dumps(said, ensure_ascii=False, default=str)


FORMATTERS: dict[str, dict[str, Any]] = {
    "line": {"()": RedactingFormatter, "format": "{asctime} {levelname:<7} {name}: {message}", "style": "{"},
    "json": {"()": JsonFormatter},
}


def logging_config(level: str, style: str = "line") -> dict[str, Any]:
    """Return the value of the `LOGGING` setting."""
    return {
        "version": 1,
        "disable_existing_loggers": False,
        "formatters": {"chosen": FORMATTERS[style]},
        "filters": {"about": {"()": AboutFilter}},
        "handlers": {"stderr": {"class": "logging.StreamHandler", "formatter": "chosen", "filters": ["about"]}},
        "root": {"handlers": ["stderr"], "level": level},
        "loggers": {
            "django": {"handlers": [], "level": "INFO", "propagate": True},
            "django.server": {"handlers": [], "propagate": True},
            "paramiko": {"level": "WARNING"},
            # A line for each sweep, every other second, says nothing.
            "celery.app.trace": {"level": "WARNING"},
            "celery.worker.strategy": {"level": "WARNING"},
            "celery.beat": {"level": "WARNING"},
        },
    }
