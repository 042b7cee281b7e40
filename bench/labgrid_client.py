"""Cycles by one labgrid client; runs in labgrid's own environment. ADDRESS PLACES COUNT PID; prints rates and the
milliseconds of CPU of a cycle, of this client and the coordinator PID, as JSON."""

from __future__ import annotations

import asyncio
import json
import os
import sys
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import grpc  # type: ignore[import-not-found,unused-ignore]
from labgrid.remote.generated import labgrid_coordinator_pb2 as pb  # type: ignore[import-not-found,unused-ignore]
from labgrid.remote.generated import labgrid_coordinator_pb2_grpc as pb_grpc  # type: ignore[import-not-found,unused-ignore]

ADDRESS, PLACES, COUNT, COORDINATOR = sys.argv[1], *(int(word) for word in sys.argv[2:5])


def cpu() -> float:
    """CPU seconds of the coordinator and of this process so far."""
    fields = Path(f"/proc/{COORDINATOR}/stat").read_text().rpartition(")")[2].split()
    return time.process_time() + (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


async def measure(cycle: Callable[[int], Awaitable[None]]) -> tuple[float, float]:
    """Cycles a second, and milliseconds of CPU for one, after three that do not count."""
    for n in range(3):
        await cycle(n)
    began, used = time.perf_counter(), cpu()
    for n in range(COUNT):
        await cycle(n)
    return COUNT / (time.perf_counter() - began), (cpu() - used) / COUNT * 1000


async def main() -> None:
    async with grpc.aio.insecure_channel(ADDRESS) as channel:
        await channel.channel_ready()
        stub = pb_grpc.CoordinatorStub(channel)
        leaving = asyncio.Event()
        stream = stub.ClientStream(hello(leaving))
        await stream.read()
        for n in range(PLACES):
            await stub.AddPlace(pb.AddPlaceRequest(name=f"place-{n}"))
            await stub.SetPlaceTags(pb.SetPlaceTagsRequest(placename=f"place-{n}", tags={"pool": "bench"}))
        print(json.dumps(await measured(stub)))
        leaving.set()


async def hello(leaving: asyncio.Event) -> Any:
    """What opens a session, and keeps it open until we leave."""
    yield pb.ClientInMessage(startup=pb.StartupDone(version="bench", name="bench/bench"))
    yield pb.ClientInMessage(sync=pb.Sync(id=1))
    await leaving.wait()


async def measured(stub: Any) -> dict[str, tuple[float, float]]:
    """Rate and CPU of both ways to get a place."""

    async def acquire(n: int) -> None:
        name = f"place-{n % PLACES}"
        await stub.AcquirePlace(pb.AcquirePlaceRequest(placename=name))
        await stub.ReleasePlace(pb.ReleasePlaceRequest(placename=name))

    async def reserve(n: int) -> None:
        wanted = {"main": pb.Reservation.Filter(filter={"pool": "bench"})}
        made = (await stub.CreateReservation(pb.CreateReservationRequest(filters=wanted, prio=0.0))).reservation
        while not made.allocations:
            made = (await stub.PollReservation(pb.PollReservationRequest(token=made.token))).reservation
        name = next(iter(made.allocations.values()))
        await stub.AcquirePlace(pb.AcquirePlaceRequest(placename=name))
        await stub.ReleasePlace(pb.ReleasePlaceRequest(placename=name))
        await stub.CancelReservation(pb.CancelReservationRequest(token=made.token))

    return {"acquire and release": await measure(acquire), "reserve, acquire, release, cancel": await measure(reserve)}


asyncio.run(main())
