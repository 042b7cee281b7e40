"""The offers of providers. Operators see all offers, other callers those of accounts that their blueprints use."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from pydantic import ValidationError

from blueprints.amounts import Amounts
from blueprints.cloud.values import countries_of
from blueprints.offers import Sought
from drydock.core.errors import InvalidRequest
from drydock_client.values import InstanceTypeInfo, LocationInfo, OfferInfo, PriceInfo
from leases.operations.callers import Caller
from leases.reports import offers as offer_search
from leases.reports.offers import Place, Search
from leases.validation import input_checks
from leases.validation.offer_query import OfferFilter, OfferSearch
from leases.validation.requests import invalid

MOST = 1000
"""The maximum number of offers in one result."""
Filter = TypeVar("Filter", bound=OfferFilter)


@dataclass(frozen=True, kw_only=True)
class Found:
    """A page of offers, in the requested order. `next` is the position of the next page, or None on the last page."""

    offers: list[OfferInfo]
    next: str | None


def search(who: Caller, wanted: Mapping[str, Any] | OfferSearch, *, limit: int = 50, after: str = "") -> Found:
    """Return the first offers that meet a query, or those after the position `after` (`next` of the previous page).

    Raises InvalidRequest with the field.
    """
    asked = _read(OfferSearch, wanted)
    _check(limit)
    place = _place(after, asked.sort) if after else None
    rows = offer_search.offers(_search(who, asked), sort=asked.sort, after=place, limit=limit)
    found = [OfferInfo(**{**row, "confidential": tuple(row["confidential"])}) for row, _ in rows]
    return Found(offers=found, next=_written(rows[-1][1]) if len(rows) == limit else None)


def types(
    who: Caller, wanted: Mapping[str, Any] | OfferFilter, *, limit: int = 50, after: int = 0
) -> list[InstanceTypeInfo]:
    """Return offers grouped by instance type and location, ordered by id, starting after id `after`.

    Raises InvalidRequest with the field.
    """
    asked = _read(OfferFilter, wanted)
    _check(limit)
    input_checks.check("after", after)
    return [_type(row) for row in offer_search.types(_search(who, asked), after=after, limit=limit)]


def _type(row: dict[str, Any]) -> InstanceTypeInfo:
    prices = tuple(PriceInfo(**one) for one in row["prices"])
    return InstanceTypeInfo(**{**row, "confidential": tuple(row["confidential"]), "prices": prices})


def places(who: Caller) -> list[LocationInfo]:
    """Return the places where accounts are polled, each with the time of its last poll.

    Only operators see why a poll failed.
    """
    found = [
        LocationInfo(**{**row, "zones": tuple(row["zones"])})
        for row in offer_search.places(None if who.operator else who.id)
    ]
    return found if who.operator else [replace(one, message="") for one in found]


def _read(model: type[Filter], wanted: Mapping[str, Any] | OfferFilter) -> Filter:
    if isinstance(wanted, model):
        return wanted
    if not isinstance(wanted, Mapping):
        raise InvalidRequest("The filter must be a mapping of names to values.")
    try:
        return model.model_validate(dict(wanted))
    except ValidationError as error:
        raise invalid(error) from None


def _check(limit: int) -> None:
    if not 1 <= limit <= MOST:
        raise InvalidRequest(f"The limit must be from 1 to {MOST}.", field="limit")


def _search(who: Caller, asked: OfferFilter) -> Search:
    return Search(
        sought=_sought(asked), kind=asked.kind, max_boot=asked.max_boot, gone=asked.all,
        owner_id=None if who.operator else who.id,
    )  # fmt: skip


def _sought(asked: OfferFilter) -> Sought:
    return Sought(
        account=asked.credential,
        locations=tuple(asked.region or ()),
        zones=tuple(asked.zone or ()),
        countries=countries_of(tuple(asked.continent)) if asked.continent else (),
        types=tuple(asked.type or ()),
        markets=(asked.market,) if asked.market else (),
        arch=asked.arch,
        amounts=Amounts(cpu_millicores=1000 * asked.vcpus, ram_mib=asked.ram_mib),
        gpu_maker=asked.gpu_maker.lower(),
        gpu_model=asked.gpu.lower(),
        gpu_count=asked.gpus,
        gpu_memory_mib=asked.gpu_memory_mib,
        confidential=tuple(asked.confidential or ()),
        max_price=asked.max_price,
    )


def _written(place: Place) -> str:
    """Return a position in a list as a single word, in which unknown parts are empty."""
    return "_".join(["" if one is None else repr(one) for one in place.by] + [str(place.id)])


def _place(written: str, sort: str) -> Place:
    """Parse a position. Raises InvalidRequest if it is malformed or belongs to a list in another order."""
    *by, number = written.split("_")
    try:
        place = Place(by=tuple(float(one) if one else None for one in by), id=int(number))
    except ValueError:
        raise InvalidRequest("The cursor must be the value of `next` from an earlier answer.", field="cursor") from None
    if by and len(by) != offer_search.orders()[sort]:
        raise InvalidRequest(
            f"The cursor is from a list with another order than {sort!r}. Omit the cursor to begin again.",
            field="cursor",
        )
    return place
