"""Parses untrusted bodies and queries at a limited cost, with strict validation and precise error messages."""

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
from leases.rest.problems import BodyTooLarge, NoLength
from leases.validation import requests
from leases.validation.requests import LeaseRequest, invalid

Model = TypeVar("Model", bound=BaseModel)

DEEPEST = 32
"""The maximum nesting depth of a document. No valid request needs more."""
MOST_FIELDS = 1000
PATHS = frozenset({"path"})
"""Parameters whose values may contain any byte except NUL."""


def check_length(environ: dict[str, Any], limit: int, *, chunks: bool = False) -> None:
    """Check the announced length of a body before the body is read.

    If `chunks` is true, a body without a length is accepted, and is counted while it is read. Raises BodyTooLarge,
    or NoLength if a length is required.
    """
    length = environ.get("CONTENT_LENGTH") or "0"
    if environ.get("HTTP_TRANSFER_ENCODING") and length == "0" and not chunks:
        raise NoLength()
    if not length.isdigit():
        raise InvalidRequest("Content-Length is not a number.")
    if int(length) > limit:
        raise BodyTooLarge(f"The body has {length} bytes, but at most {limit} are accepted.")


class StrictJSON(BaseParser):
    """A parser of strict RFC 8259 JSON.

    It accepts only UTF-8, no NaN, no duplicate names, no NUL, and at most `DEEPEST` levels of nesting.
    """

    media_type = "application/json"

    def parse(self, stream: IO[bytes], media_type: str | None = None, parser_context: Any = None) -> Any:
        """Return the parsed document. Raises InvalidRequest."""
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
    """A parser that accepts any content type and reads nothing, because the view reads the body in parts."""

    media_type = "*/*"

    def parse(self, stream: IO[bytes], media_type: str | None = None, parser_context: Any = None) -> Any:
        """Leave the body unread and return None."""
        return None


def _no_constant(name: str) -> NoReturn:
    raise ValueError(f"{name} is not a number")


def _finite(text: str) -> float:
    if math.isinf(found := float(text)):
        raise ValueError(f"{text[:20]} is too large")
    return found


def _object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    found = dict(pairs)
    if len(found) != len(pairs):
        raise ValueError("a name is given twice in an object")
    return found


def check_value(value: Any, field: str = "", depth: int = 0) -> None:
    """Raise InvalidRequest with the field if the database cannot store a value.

    It cannot store NULs, lone surrogates or excessive nesting.
    """
    if depth > DEEPEST:
        raise InvalidRequest(f"The value is nested more than {DEEPEST} levels deep.", field=field.split(".")[0])
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
    """Raise InvalidRequest with the field if a text contains NULs or lone surrogates."""
    if "\0" in text:
        raise InvalidRequest("NUL characters are not allowed.", field=field)
    try:
        text.encode()
    except UnicodeEncodeError:
        raise InvalidRequest("Lone surrogates (half characters) are not allowed.", field=field) from None


def body(model: type[Model], given: Any, *, keyed: bool = False) -> Model:
    """Validate a body with its model, and return the model. Raises InvalidRequest with the field.

    `keyed` is true if the request has an idempotency key.
    """
    if not isinstance(given, dict):
        raise InvalidRequest("The body must be a JSON object.")
    if issubclass(model, LeaseRequest):
        return requests.parse(given, keyed=keyed)  # type: ignore[return-value]
    try:
        return model.model_validate(given, context={"keyed": keyed})
    except ValidationError as error:
        raise invalid(error, model=model) from None


def query(model: type[Model], line: str) -> Model:
    """Validate a query string with its model, and return the model. Raises InvalidRequest with the field.

    A parameter may be repeated if its field is a list. Bytes of a path that are not UTF-8 become lone surrogates,
    as with `os.fsdecode`. In other parameters they are refused.
    """
    found: dict[str, Any] = {}
    for name, values in _pairs(line).items():
        check_text(name)
        for value in values:
            check_text(os.fsencode(value).decode("latin-1") if name in PATHS else value, name)
        many = name in model.model_fields and "list" in str(model.model_fields[name].annotation)
        if not many and len(values) > 1:
            raise InvalidRequest("This parameter is given more than once.", field=name)
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
    """Return the idempotency key from its header, or None if the header is empty.

    Raises InvalidRequest if the key is too long or not printable.
    """
    if len(header) > 255 or not header.isprintable():
        raise InvalidRequest("A key must be 1 to 255 printable characters.", field="Idempotency-Key")
    return header or None
