"""Types for the fields of requests, which are parsed strictly. Their JSON Schema describes what is accepted."""

from __future__ import annotations

import datetime as dt
import re
from collections.abc import Callable
from typing import Annotated, Any, NamedTuple

from pydantic import AfterValidator, BeforeValidator, Field, Strict, WithJsonSchema

from drydock.core import clock
from drydock.core.characters import NOT_TAKEN, UNSAFE, first_unsafe
from drydock.core.errors import DrydockError
from drydock.core.units import duration, in_words, mebibytes

BIGGEST = 1 << 40

FARTHEST = dt.timedelta(days=3650)

"""The longest time ahead that is accepted: no lease lasts longer, and it does not exceed the calendar of Python."""

_SPAN = r"^(([0-9]+(\.[0-9]+)?[smhdw])+|[0-9]{1,10}(\.[0-9]+)?)$"

_SIZE = r"^[0-9]{1,13} ?([MGTmgt]([iI]?[bB])?)?$"

_PLAIN = f"^[^{UNSAFE}]*$"

_LONGEST = 63

"""The maximum length of a size or time span as text, in characters."""

_MOMENT = re.compile(
    r"\d{4}-\d\d-\d\d[Tt ]\d\d:\d\d(:\d\d(\.\d{1,9})?)?([Zz]|[+-]\d\d:?\d\d)?", re.ASCII
)  # fmt: skip

NULL = {"type": "null"}

SPAN_TEXT = {"type": "string", "pattern": _SPAN, "maxLength": 63}

SPAN_SCHEMA = {"anyOf": [SPAN_TEXT, {"type": "number", "exclusiveMinimum": 0, "maximum": 315_360_000}, NULL]}

SIZES = [{"type": "integer", "minimum": 0, "maximum": BIGGEST}, {"type": "string", "pattern": _SIZE}]

VCPUS_SCHEMA = {"type": "number", "minimum": 0, "maximum": BIGGEST // 1000}

MOMENT_SCHEMA = {"anyOf": [{"type": "string", "format": "date-time"}, NULL]}


def clean(text: str, *, allowed: str = "") -> str:
    """Return the text. Raises ValueError if it contains characters that control a terminal or the text direction."""
    if odd := first_unsafe(text, allowed=allowed):
        raise ValueError(f"it contains the character U+{ord(odd):04X}; {NOT_TAKEN}")
    return text


def _read(read: Callable[[Any], Any], value: Any) -> Any:
    """Parse a value with `read`. Drydock's own errors become ValueErrors, to which pydantic adds the field."""
    if isinstance(value, str) and len(value) > _LONGEST:
        raise ValueError(f"it has {len(value)} characters; at most {_LONGEST} are allowed")
    try:
        return read(value)
    except DrydockError as error:
        raise ValueError(f"{error.message} {error.hint}".strip().removesuffix(".")) from None


def _span(value: Any) -> Any:
    if value is not None and not _one_of(value, str, int, float, dt.timedelta):
        raise ValueError('it is not a valid duration; write it like "90s", "2h" or "1h30m"')
    return None if value is None else _read(duration, value)


def _one_of(value: Any, *kinds: type) -> bool:
    return isinstance(value, kinds) and not isinstance(value, bool)


def _mib(value: Any) -> Any:
    if not _one_of(value, str, int):
        raise ValueError('it is not a valid size; write it like "512MiB" or "4GiB"')
    return _read(mebibytes, value)


class Vcpus(NamedTuple):
    """A number of vCPUs as the caller wrote it, before it becomes an amount."""

    written: Any


def _millicores(value: Any) -> Any:
    if not isinstance(value, Vcpus):
        return value
    given = value.written
    if not _one_of(given, int, float) or not 0 <= given <= BIGGEST:
        raise ValueError(f"{str(given)[:100]!r} is not a valid number of processors")
    return round(given * 1000)


def _moment(value: Any) -> Any:
    """Return the value if it is None or a date with a time. Raises ValueError for any other value, such as a number."""
    if value is None or isinstance(value, dt.datetime):
        return value
    if not isinstance(value, str) or not _MOMENT.fullmatch(value):
        raise ValueError("it is not a valid time; write it like 2030-01-31T18:00:00+01:00")
    return value


def _near(moment: dt.datetime | None) -> dt.datetime | None:
    if moment is None:
        return None
    if moment.tzinfo is None:
        raise ValueError("it needs a time zone, such as 2030-01-31T18:00+01:00")
    if moment - clock.now() > FARTHEST:
        raise ValueError(f"it is more than {in_words(FARTHEST)} away")
    return moment


Text = Annotated[str, Field(max_length=255, pattern=_PLAIN), AfterValidator(clean)]

LONGEST_NOTE = 2000


Note = Annotated[str, Field(max_length=LONGEST_NOTE), AfterValidator(lambda text: clean(text, allowed="\n\t"))]
"""Text that may have several lines."""

Word = Annotated[str, Field(max_length=63, pattern=r"^[A-Za-z0-9][A-Za-z0-9._:/-]*$")]

Key = Annotated[str, Field(min_length=1, max_length=255, pattern=_PLAIN), AfterValidator(clean)]

PublicKey = Annotated[str, Field(max_length=2000, pattern=_PLAIN), AfterValidator(clean)]

Span = Annotated[dt.timedelta | None, BeforeValidator(_span), WithJsonSchema(SPAN_SCHEMA)]

Moment = Annotated[dt.datetime | None, BeforeValidator(_moment), AfterValidator(_near), WithJsonSchema(MOMENT_SCHEMA)]

Count = Annotated[int, Strict(), Field(ge=0, le=BIGGEST)]

Mib = Annotated[int, BeforeValidator(_mib), Field(ge=0, le=BIGGEST), WithJsonSchema({"anyOf": SIZES})]

Millicores = Annotated[Count, BeforeValidator(_millicores)]

Flag = Annotated[bool, Strict()]
