"""Types for the numbers and flags of a query string. They are parsed strictly, although they are text."""

from __future__ import annotations

import re
from typing import Annotated, Any

from pydantic import BeforeValidator


def _whole(given: Any) -> Any:
    """Return the value. Raises ValueError for text that is not an integer in the notation of JSON."""
    if isinstance(given, str) and not re.fullmatch(r"-?(0|[1-9][0-9]{0,20})", given):
        raise ValueError("it is not a whole number")
    return given


def _number(given: Any) -> Any:
    if isinstance(given, str) and not re.fullmatch(r"-?[0-9]{1,20}(\.[0-9]{1,20})?([eE][-+]?[0-9]{1,3})?", given):
        raise ValueError("it is not a number")
    return given


def _flag(given: Any) -> Any:
    if isinstance(given, str):
        if given not in ("true", "false"):
            raise ValueError("it is neither `true` nor `false`")
        return given == "true"
    return given


Whole = Annotated[int, BeforeValidator(_whole)]

Number = Annotated[float, BeforeValidator(_number)]

Flag = Annotated[bool, BeforeValidator(_flag)]
