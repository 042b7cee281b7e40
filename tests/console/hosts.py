"""Many hosts with devices, written as rows: what an installation with accelerators has."""

from __future__ import annotations

import gzip
import json
from typing import Any

from django.db import connection

from blueprints.models import Blueprint
from drydock_agent import CpuFacts, Device, Hardware, Host, Link, Readiness, ScanWarning
from drydock_agent.facts import Health
from leases.models import Resource, Sync

UNBOUND = "No kernel driver is bound to the device."
_HARDWARE = """
    INSERT INTO leases_reportedhardware (sync_id, digest, content, size, counts, unready)
    SELECT id, '', %(content)s, %(size)s, %(counts)s::jsonb, %(unready)s
    FROM leases_sync WHERE blueprint_id = %(made)s ORDER BY id"""
_SYNCS = """
    INSERT INTO leases_sync (blueprint_id, place, source, seen_at, applied_at)
    SELECT %(made)s, id, 'read', now(), now() FROM leases_resource WHERE type = 'host' ORDER BY id"""
_HOSTS = """
    INSERT INTO leases_resource (blueprint_id, type, name, state, origin, identity, generation, total_slots)
    SELECT %(pool)s, 'host', 'host-' || n, 'active', 'built', 'host-' || n, 1, 8
    FROM generate_series(0, %(hosts)s - 1) n ORDER BY n"""
_DEVICES = """
    INSERT INTO leases_resource (blueprint_id, type, name, state, origin, identity, generation, total_slots, part_of_id,
        facts)
    SELECT %(made)s, 'accelerator', 'gpu ' || d, 'active', 'discovered', h.id || '/' || d, 1, 1, h.id,
        jsonb_build_object('host', h.id, 'device', jsonb_build_object('id', d))
    FROM leases_resource h CROSS JOIN unnest(%(ready)s::text[]) d WHERE h.type = 'host'"""
_FINDINGS = """
    INSERT INTO leases_finding (resource_id, sync_id, draft)
    SELECT r.id, s.id, '{}' FROM leases_resource r JOIN leases_sync s ON s.place = r.part_of_id::text
    WHERE r.type = 'accelerator'"""
_CAPACITY = """
    INSERT INTO leases_capacity (resource_id, name, total) SELECT id, 'gpu', 1 FROM leases_resource
    WHERE type = 'accelerator'"""


def gpu(number: int, **about: Any) -> Device:
    """A GPU. Of four, one has no driver and one has failed."""
    given: dict[str, Any] = {
        "id": f"0000:{number // 32 + 1:02x}:{number % 32:02x}.0", "kind": "gpu", "device_class": "gpu",
        "role": "lease_candidate", "name": "NVIDIA A100-SXM4-80GB", "driver": "nvidia", "vendor_id": "10de",
        "readiness": Readiness.READY, "numa_node": number % 2, "iommu_group": number, "memory_mib": 81920,
        "link": Link(width=16, max_width=16, speed=16.0, max_speed=16.0),
    }  # fmt: skip
    if number % 4 == 2:
        given |= {"readiness": Readiness.SETUP_REQUIRED, "reason": UNBOUND, "driver": ""}
    if number % 4 == 3:
        given |= {"health": Health.FAILED, "problems": ("It fell off the bus.",)}
    return Device(**given | about)


def hosts(number: int, each: int, *more: Device) -> None:
    """Make `number` hosts with `each` GPUs, and the same further devices. Every second GPU is a resource."""
    pool = Blueprint.objects.create(name="metal", kind="fake", resource_type="host", audience="everyone")
    made = Blueprint.objects.create(
        name="cards", kind="accelerators", resource_type="accelerator", audience="everyone", config={}
    )
    devices = (*map(gpu, range(each)), *more)
    hardware = Hardware(
        host=Host(cpu=CpuFacts(model="EPYC 7763", sockets=2, cores=128, threads=256), memory_mib=1 << 20),
        devices=devices, warnings=(ScanWarning(subject="nvidia-smi", message="It did not end in 20 s."),),
    )  # fmt: skip
    text = json.dumps(hardware.to_json()).encode()
    ready = [one.id for one in devices[:each] if one.readiness == "ready" and not one.health]
    counts = {"gpu": {"ready": len(ready), "setup_required": each // 4, "failed": each - len(ready) - each // 4}}
    given = {
        "pool": pool.pk, "made": made.pk, "hosts": number, "ready": ready, "content": gzip.compress(text),
        "size": len(text), "counts": json.dumps(counts if each else {}), "unready": each - len(ready),
    }  # fmt: skip
    with connection.cursor() as cursor:
        for statement in (_HOSTS, _SYNCS, _HARDWARE, _DEVICES, _FINDINGS, _CAPACITY) if number else ():
            cursor.execute(statement, given)
        cursor.execute("ANALYZE")
    assert Resource.objects.filter(type="host").count() == number == Sync.objects.filter(blueprint=made).count()
