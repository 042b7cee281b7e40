"""The workload of a lease, and how much of its host the lease uses."""

from __future__ import annotations

import datetime as dt
from collections.abc import Sequence
from dataclasses import dataclass


@dataclass(frozen=True, kw_only=True)
class WorkloadInfo:
    """The workload of a lease. `state` is `waiting` to start, `running`, or `over`.

    `outcome` is empty until the workload is over. Then it is `exited` (see `exit_code`), `signal`, `no_image` (the
    image could not be pulled), `bad_archive`, `no_podman`, `no_units` (its ports or archive need a host that can run
    units), `lost`, `cancelled`, `cut` (the lease ended first) or `never` (the lease ended before the workload started).
    """

    state: str
    outcome: str = ""
    message: str = ""
    """A sentence that says how the workload ended."""
    exit_code: int | None = None
    signal: int = 0
    """The number of the signal that ended the workload; 0 if none did."""
    job: int | None = None
    """The id of the workload's job. The job's output can be read even after the lease has ended."""
    command: Sequence[str] | str | None = None
    image: str = ""
    archive: str = ""
    """SHA-256 of the archive with the image, if it was not pulled by name."""
    ports: Sequence[str] = ()
    """Ports of the host that are open to it, such as `8080/tcp`."""
    unit: bool = False
    """Whether it runs as a systemd unit of the host; otherwise it is a job of the lease's account."""
    cwd: str = ""
    variables: Sequence[str] = ()
    """The names of its environment variables; their values are never shown."""
    started_at: dt.datetime | None = None
    ended_at: dt.datetime | None = None
    output_size: int | None = None
    """Size of the whole output in bytes; None until the output has been stored."""
    output_kept: int | None = None
    """Number of stored bytes, from the beginning and the end of the output."""


@dataclass(frozen=True, kw_only=True)
class MetricsInfo:
    """A lease's usage of its host. A value is None if the host does not measure it.

    `scope` says what is measured: the whole `machine` of an exclusive lease, the lease's own control group (`cgroup`),
    or its `processes`.
    """

    scope: str
    cpu_core_seconds: float | None
    """Processor time in core-seconds: one processor busy for one second is 1."""
    memory_mib_seconds: float | None
    """Memory in MiB-seconds: 1 MiB held for one second is 1. For the time between two samples, the mean of both
    counts."""
    network_in_bytes: int | None
    network_out_bytes: int | None
    wall_seconds: float
    """Seconds from the first sample to the last."""
    sampled_at: dt.datetime | None
    """The time of the last sample."""
    complete: bool
    """Whether the last sample was taken at the end of the lease, before it was cleaned."""
    memory_peak_mib: int | None = None
    """The most memory at a time in MiB, of a workload that is a unit; None if the host does not count it."""
