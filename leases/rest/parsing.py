"""Bodies and queries as they come from strangers: bounded, strict, and clear about what is wrong."""

from __future__ import annotations

import json
import math
import os
from typing import IO, Any, NoReturn, TypeVar
from urllib.parse import parse_qs

from django.conf import settings
from pydantic import BaseModel, ValidationError
from rest_framework.parsers import BaseParser

from drydock.core.errors import InvalidRequest
from leases import requests
from leases.requests import LeaseRequest, invalid
from leases.rest.problems import BodyTooLarge, NoLength

Model = TypeVar("Model", bound=BaseModel)

DEEPEST = 32
"""Levels of a document; nothing that we are asked needs more."""
MOST_FIELDS = 1000
PATHS = frozenset({"path"})
"""Parameters that may hold any byte but NUL."""


def check_length(environ: dict[str, Any], limit: int, *, chunks: bool = False) -> None:
    """Refuse a body by its announced length, before any of it is read. `chunks`: one without a length is taken and
    counted while it is read. Raises BodyTooLarge, NoLength."""
    length = environ.get("CONTENT_LENGTH") or "0"
    if environ.get("HTTP_TRANSFER_ENCODING") and length == "0" and not chunks:
        raise NoLength()
    if not length.isdigit():
        raise InvalidRequest("Content-Length is not a number.")
    if int(length) > limit:
        raise BodyTooLarge(f"The body has {length} bytes, and {limit} are taken here.")


class StrictJSON(BaseParser):
    """JSON as RFC 8259 has it: UTF-8, no NaN, no name twice, no NUL, not deeper than `DEEPEST`."""

    media_type = "application/json"

    def parse(self, stream: IO[bytes], media_type: str | None = None, parser_context: Any = None) -> Any:
        """The document. Raises InvalidRequest."""
        content = stream.read(settings.DRYDOCK.body_limit_bytes + 1)
        try:
            found = json.loads(
                content.decode("utf-8"), parse_constant=_no_constant, parse_float=_finite, object_pairs_hook=_object
            )
        except UnicodeDecodeError:
            raise InvalidRequest("The body is not UTF-8.") from None
        except RecursionError:
            raise InvalidRequest("The body is nested too deeply.") from None
        except ValueError as error:
            raise InvalidRequest(f"The body is not valid JSON: {str(error)[:200]}.") from None
        check_value(found)
        return found


class AnyBytes(BaseParser):
    """Bytes of whatever type: views read them from the stream, part by part."""

    media_type = "*/*"

    def parse(self, stream: IO[bytes], media_type: str | None = None, parser_context: Any = None) -> Any:
        """Nothing is read here."""
        return None


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a number")


def _finite(text: str) -> float:
    if math.isinf(found := float(text)):
        raise ValueError(f"{text[:20]} is beyond all numbers")
    return found


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name is given twice in an object")
    return found


def check_value(value: Any, field: str = "", depth: int = 0) -> None:
    """Refuse what no database keeps: NULs, half characters, endless nesting. Raises InvalidRequest with the field."""
    if depth > DEEPEST:
        raise InvalidRequest(f"More than {DEEPEST} levels of nesting.", field=field.split(".")[0])
    if isinstance(value, str):
        check_text(value, field)
    elif isinstance(value, dict):
        for key, one in value.items():
            check_text(key, field)
            check_value(one, f"{field}.{key}" if field else key, depth + 1)
    elif isinstance(value, list):
        for number, one in enumerate(value):
            check_value(one, f"{field}.{number}", depth + 1)


def check_text(text: str, field: str = "") -> None:
    """Raises InvalidRequest for a NUL or half a character."""
    if "\0" in text:
        raise InvalidRequest("NUL characters are not allowed.", field=field)
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InvalidRequest("Half a character (a lone surrogate) is not allowed.", field=field) from None


def body(model: type[Model], given: Any, *, keyed: bool = False) -> Model:
    """The body as the model reads it; `keyed`: under an idempotency key. Raises InvalidRequest with the field."""
    if not isinstance(given, dict):
        raise InvalidRequest("The body must be a JSON object.")
    if issubclass(model, LeaseRequest):
        return requests.parse(given, keyed=keyed)  # type: ignore[return-value]
    try:
        return model.model_validate(given, context={"keyed": keyed})
    except ValidationError as error:
        raise invalid(error, model=model) from None


def query(model: type[Model], line: str) -> Model:
    """The query as the model reads it; a list where the model has one. Raises InvalidRequest with the field.

    Bytes of a path that are no UTF-8 become half characters, as in `os.fsdecode`; elsewhere they are refused.
    """
    found: dict[str, Any] = {}
    for name, values in _pairs(line).items():
        check_text(name)
        for value in values:
            check_text(os.fsencode(value).decode("latin-1") if name in PATHS else value, name)
        many = name in model.model_fields and "list" in str(model.model_fields[name].annotation)
        if not many and len(values) > 1:
            raise InvalidRequest("Given more than once.", field=name)
        found[name] = values if many else values[0]
    try:
        return model.model_validate(found)
    except ValidationError as error:
        raise invalid(error, model=model) from None


def _pairs(line: str) -> dict[str, list[str]]:
    try:
        return parse_qs(line, keep_blank_values=True, errors="surrogateescape", max_num_fields=MOST_FIELDS)
    except ValueError:
        raise InvalidRequest(f"The query has more than {MOST_FIELDS} parameters.") from None


def key(header: str) -> str | None:
    """An idempotency key; None where there is none. Raises InvalidRequest."""
    if len(header) > 255 or not header.isprintable():
        raise InvalidRequest("A key is at most 255 printable characters.", field="Idempotency-Key")
    return header or None
