"""What is watched of a lease: its workload, and what it uses of its host."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class WorkloadInfo:
    """What a lease does by itself. `state`: `waiting` for its beginning, `running`, or `over`.

    `outcome`, once it is over: `exited` (`exit_code`), `signal`, `no_image` (it could not be pulled), `no_podman`,
    `lost`, `cancelled`, `cut` (the lease ended first) or `never` (it had not begun by then).
    """

    state: str
    outcome: str = ""
    message: str = ""
    """How it ended, as a sentence."""
    exit_code: int | None = None
    signal: int = 0
    """The signal that ended it; 0 for none."""
    job: int | None = None
    """Its job, whose output can be read also after the end of the lease."""
    command: Sequence[str] | str | None = None
    image: str = ""
    cwd: str = ""
    variables: Sequence[str] = ()
    """The names in its environment; their values are shown nowhere."""
    started_at: dt.datetime | None = None
    ended_at: dt.datetime | None = None
    output_size: int | None = None
    """Bytes that it said, as far as its host counted them; None until they are kept."""
    output_kept: int | None = None
    """Bytes that are kept: of the beginning and of the end."""


@dataclass(frozen=True, kw_only=True)
class MetricsInfo:
    """What a lease uses of its host. `scope`: what is counted there: the whole `machine` that it holds alone, its own
    control group (`cgroup`), or its `processes`. None: its host does not count it."""

    scope: str
    cpu_core_seconds: float | None
    """One processor busy for one second is 1."""
    memory_mib_seconds: float | None
    """1 MiB held for one second is 1; between two looks the mean of both counts."""
    network_in_bytes: int | None
    network_out_bytes: int | None
    wall_seconds: float
    """From the first look to the last."""
    sampled_at: dt.datetime | None
    """When it was looked at last."""
    complete: bool
    """The last look was at its end, before it was cleaned."""
