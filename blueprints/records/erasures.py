"""The erasure of one disk, as a step reports it. This module depends on no database, queue or provider."""

from __future__ import annotations

import datetime as dt
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class Erasure:
    """An attempt to erase one disk, which the engine keeps as a record that is never changed.

    The engine cuts long texts. The same disk with the same `started_at` is recorded once for each resource, however
    often it is reported, so a step that is repeated must report the time at which the erasure really began.
    """

    disk: str
    """Name of the disk in the machine, such as `nvme0n1`."""
    serial: str = ""
    wwn: str = ""
    """World Wide Name of the disk, as its kernel or controller spells it."""
    model: str = ""
    size_bytes: int = 0
    method: str = ""
    """The method that erased the disk, such as `nvme_sanitize_crypto` or `overwrite`; empty if none did."""
    bytes: int = 0
    """Bytes that were erased, or overwritten."""
    started_at: dt.datetime
    """When the erasure began, by the clock of the machine, with a time zone."""
    ended_at: dt.datetime
    verified: bool
    """Whether the disk was read afterwards and nothing was left on it."""
    problem: str = ""
    """A sentence for people that says why the disk is not erased; needed unless it is verified."""

    def __post_init__(self) -> None:
        if not self.disk:
            raise ValueError("an erasure needs the name of its disk")
        if self.started_at.tzinfo is None or self.ended_at.tzinfo is None:
            raise ValueError("the times of an erasure need a time zone")
