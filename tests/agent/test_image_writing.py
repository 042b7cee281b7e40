"""Images are downloaded, checked, written and read back; a bad one leaves a disk that cannot be booted."""

from __future__ import annotations

import json
import os
import time

import pytest

from drydock_agent.disks.download import Download
from drydock_agent.disks.errors import DiskError
from drydock_agent.disks.machine import Machine
from drydock_agent.disks.sinks import FileSink, ZstdSink, no_memory
from tests.agent import disk_images
from tests.agent.disk_images import MIB
from tests.agent.disk_machine import DiskMachine
from tests.agent.image_server import ImageServer
from tests.peers import require


@pytest.fixture
def machine(tmp_path):
    one = DiskMachine(tmp_path / "machine")
    yield one
    one.stop_all()


@pytest.fixture
def server():
    one = ImageServer()
    yield one
    one.close()


def table(disk) -> dict:
    return json.loads(disk_images.run(require("sfdisk"), "--json", disk))["partitiontable"]


def test_a_raw_image_is_on_the_disk_afterwards(machine, server, tmp_path):
    disk = machine.virtio(mib=16)
    image = disk_images.raw(tmp_path)
    state = machine.write_image(**server.add("/image.raw", image), format="raw")
    assert state["state"] == "done", state
    result = state["result"]
    assert (result["bytes"], result["virtual_size_bytes"], result["disk"]["name"]) == (6 * MIB, 6 * MIB, "vda")
    assert disk.read_bytes()[MIB : 2 * MIB] == image[MIB : 2 * MIB]
    assert disk_images.run(require("sfdisk"), "--verify", disk) is not None
    assert disk.read_bytes()[-512:-504] == b"EFI PART"
    assert disk.stat().st_size == 16 * MIB


@pytest.mark.parametrize("format", ["raw", "qcow2", "raw.zst", "qcow2.zst"])
@pytest.mark.parametrize("label", ["gpt", "dos"])
def test_every_format_is_written_with_its_seed(machine, server, tmp_path, format, label):
    disk = machine.virtio(mib=16)
    image = disk_images.raw(tmp_path, label)
    content = disk_images.qcow2(tmp_path, image) if format.startswith("qcow2") else image
    content = disk_images.zst(content) if format.endswith("zst") else content
    seed = disk_images.seed()
    state = machine.write_image(**server.add("/image", content), format=format, seed=seed)
    assert state["state"] == "done", state
    assert state["result"]["virtual_size_bytes"] == 6 * MIB
    written = disk.read_bytes()
    assert written[MIB : 2 * MIB] == image[MIB : 2 * MIB]
    first, last = table(disk)["partitions"]
    assert (first["start"], first["size"]) == (2048, 2048)
    at = last["start"] * 512
    assert written[at : at + len(seed)] == seed
    shown = disk_images.run("/sbin/blkid", "-p", "-o", "export", "-O", str(at), "-S", str(last["size"] * 512), disk)
    assert b"LABEL=cidata" in shown
    assert not (machine.root / "run/drydock-agent/images").exists()


# What is wrong with an image or its server


def failed(machine, code: str, part: str, **request) -> dict:
    state = machine.write_image(**request)
    assert (state["state"], state["error"]["code"]) == ("failed", code), state
    assert part in state["error"]["message"]
    assert state["sentence"] == state["error"]["message"]
    assert not (machine.root / "run/drydock-agent/images").exists()
    return state


def is_bootable(disk) -> bool:
    content = disk.read_bytes()
    return any(content[:MIB]) or any(content[-MIB:])


@pytest.mark.parametrize("format", ["raw", "qcow2", "raw.zst"])
def test_another_hash_leaves_a_disk_that_cannot_be_booted(machine, server, tmp_path, format):
    disk = machine.virtio(mib=16)
    image = disk_images.raw(tmp_path)
    content = {"raw": lambda: image, "qcow2": lambda: disk_images.qcow2(tmp_path, image)}.get(
        format, lambda: disk_images.zst(image)
    )()
    request = server.add("/image", content) | {"sha256": "ab" * 32}
    failed(machine, "wrong_hash", f"and not {'ab' * 32}", format=format, **request)
    assert not is_bootable(disk)


def test_an_address_that_does_not_exist_leaves_the_disk_alone(machine, server):
    disk = machine.virtio()
    before = disk.read_bytes()
    request = server.add("/image", b"x") | {"url": f"{server.url}/other?signature=secret"}
    state = failed(machine, "download", "/other: the server answered 404 Not Found.", format="raw", **request)
    assert disk.read_bytes() == before
    assert "secret" not in json.dumps(state)


def test_fewer_bytes_than_announced_are_noticed(machine, server, tmp_path):
    disk = machine.virtio(mib=16)
    image = disk_images.raw(tmp_path)
    request = server.add("/image", image)
    server.partial("/image", image[: 3 * MIB], announced=6 * MIB)
    failed(machine, "too_short", "the server sent 3145728 of 6291456 announced bytes", format="raw", **request)
    assert not is_bootable(disk)


def test_an_empty_image_is_refused(machine, server):
    machine.virtio()
    failed(machine, "too_short", "The image has no bytes.", format="raw", **server.add("/image", b""))


@pytest.mark.parametrize("format", ["raw", "qcow2"])
def test_an_image_that_is_larger_than_the_disk_is_refused(machine, server, tmp_path, format):
    disk = machine.virtio(mib=5)
    image = disk_images.raw(tmp_path)
    content = disk_images.qcow2(tmp_path, image) if format == "qcow2" else image
    failed(machine, "too_large", "larger than the 5242880 bytes", format=format, **server.add("/image", content))
    assert disk.read_bytes()[MIB : 2 * MIB] != image[MIB : 2 * MIB]


@pytest.mark.parametrize("format", ["raw.zst", "qcow2.zst"])
def test_a_bomb_is_stopped(machine, server, format):
    disk = machine.virtio(mib=8)
    bomb = disk_images.zst(bytes(128 * MIB))
    assert len(bomb) < MIB
    limit = 8 * MIB if format == "raw.zst" else 73 * MIB
    failed(machine, "too_large", f"larger than the {limit} bytes", format=format, **server.add("/image", bomb))
    assert not is_bootable(disk)
    assert disk.stat().st_size == 8 * MIB


def test_no_more_is_stored_than_there_is_room_for(tmp_path):
    unpacking = ZstdSink(Machine(str(tmp_path)), FileSink(tmp_path / "image", 10, no_memory))
    unpacking.write(disk_images.zst(bytes(MIB)))
    with pytest.raises(DiskError, match="larger than the 10 bytes that this machine can keep"):
        unpacking.finish()
    unpacking.abort()
    assert (tmp_path / "image").stat().st_size == 0


@pytest.mark.parametrize("cut", [100, -4])
def test_a_damaged_stream_is_an_error(machine, server, tmp_path, cut):
    machine.virtio(mib=16)
    content = disk_images.zst(disk_images.raw(tmp_path))[:cut]
    failed(machine, "image", "cannot be decompressed by zstd", format="raw.zst", **server.add("/image", content))


def test_what_is_no_stream_of_zstd_is_an_error(machine, server, tmp_path):
    machine.virtio(mib=16)
    request = server.add("/image", disk_images.raw(tmp_path))
    failed(machine, "image", "cannot be decompressed by zstd", format="raw.zst", **request)


def patched(content: bytes, offset: int, change: bytes) -> bytes:
    return content[:offset] + change + content[offset + len(change) :]


def of_qcow2(folder, kind: str) -> bytes:
    image = disk_images.raw(folder)
    if kind == "backing file":
        (folder / "base.raw").write_bytes(image)
        path = folder / "top.qcow2"
        disk_images.run(
            require("qemu-img"), "create", "-q", "-f", "qcow2", "-F", "raw", "-b", folder / "base.raw", path
        )
        return path.read_bytes()
    if kind == "data-file":
        path = folder / "external.qcow2"
        option = f"data_file={folder / 'data.raw'}"
        disk_images.run(require("qemu-img"), "create", "-q", "-f", "qcow2", "-o", option, path, "6M")
        return path.read_bytes()
    content = disk_images.qcow2(folder, image)
    return {
        "not closed": lambda: patched(content, 79, b"\1"), "encrypted": lambda: patched(content, 35, b"\1"),
        "version 9": lambda: patched(content, 7, b"\x09"), "cannot read": lambda: patched(content, 20, b"\xff" * 4),
        "not an image": lambda: b"#!/bin/sh\n" + image,
    }[kind]()  # fmt: skip


@pytest.mark.parametrize(
    "kind", ["backing file", "data-file", "not closed", "encrypted", "version 9", "cannot read", "not an image"]
)
def test_images_that_refer_to_other_files_or_are_damaged_are_refused(machine, server, tmp_path, kind):
    disk = machine.virtio(mib=16)
    failed(machine, "image", kind, format="qcow2", **server.add("/image", of_qcow2(tmp_path, kind)))
    assert not is_bootable(disk)


@pytest.mark.parametrize("target", ["file:///etc/passwd", "ftp://127.0.0.1/image", "https://127.0.0.1/image"])
def test_redirects_to_another_scheme_are_not_followed(machine, server, target):
    machine.virtio()
    server.redirect("/image", target)
    state = machine.write_image(format="raw", url=f"{server.url}/image", sha256="0" * 64)
    assert state["error"]["code"] == "download"
    assert server.asked == ["/image"]


def test_redirects_within_the_scheme_are_followed_but_not_for_ever(machine, server, tmp_path):
    machine.virtio(mib=16)
    request = server.add("/image", disk_images.raw(tmp_path))
    server.redirect("/latest", "/image")
    assert machine.write_image(**request | {"url": f"{server.url}/latest"}, format="raw")["state"] == "done"
    server.redirect("/loop", "/loop")
    request |= {"url": f"{server.url}/loop"}
    failed(machine, "download", "the server answered 302", job="write-2", format="raw", **request)
    assert server.asked.count("/loop") <= 6


def test_a_silent_server_does_not_hold_a_download_for_ever(server):
    server.partial("/image", b"x" * 100, announced=1000, waits=True)
    download = Download(f"{server.url}/image", silence=0.2)
    assert download.read() == b"x" * 100
    with pytest.raises(DiskError, match="/image: no byte came for 0 seconds"):
        download.read()
    download.close()


def test_a_download_that_hangs_can_be_stopped_and_the_disk_cannot_be_booted(machine, server, tmp_path):
    disk = machine.virtio(mib=16)
    image = disk_images.raw(tmp_path)
    server.partial("/image", image[: 4 * MIB], announced=len(image), waits=True)
    request = {"url": f"{server.url}/image", "sha256": "0" * 64, "format": "raw", "disk": {"name": "vda"}}
    machine.run("disks", "write", "--job", "w-1", given=request)
    until = time.monotonic() + 60
    while machine.show("w-1")["percent"] == 0:
        assert time.monotonic() < until
        time.sleep(0.02)
    assert machine.show("w-1")["sentence"] == "Downloading vda."
    assert machine.run("jobs", "stop", "w-1") == {"id": "w-1", "stopped": True}
    assert machine.show("w-1")["error"]["code"] == "stopped"
    assert not is_bootable(disk)


def test_a_certificate_must_be_trusted(machine, tmp_path):
    server, ca = ImageServer(), tmp_path / "ca.pem"
    try:
        server.use_tls(ca)
        machine.virtio(mib=16)
        request = server.add("/image", disk_images.raw(tmp_path))
        failed(machine, "download", "the certificate is not trusted", format="raw", **request)
        assert machine.write_image(**request, job="write-2", format="raw", ca=ca.read_text())["state"] == "done"
        failed(machine, "bad_request", "ca: ", job="write-3", format="raw", ca="none", **request)
    finally:
        server.close()


def test_what_a_disk_does_not_keep_is_noticed(machine, server, tmp_path):
    """A program beside it changes the disk after it was written, as a failing disk would."""
    disk = machine.virtio(mib=16)
    content = disk_images.qcow2(tmp_path, disk_images.raw(tmp_path))
    real = require("qemu-img")
    machine.install("qemu-img", f"""#!/bin/sh
"{real}" "$@" || exit
[ "$1" != convert ] || printf x | dd of="{disk}" bs=1 seek=1500000 conv=notrunc status=none
""")  # fmt: skip
    failed(machine, "verification", "does not hold what was written", format="qcow2", **server.add("/image", content))
    assert not is_bootable(disk)


def test_a_seed_needs_a_partition_table_and_room(machine, server, tmp_path):
    machine.virtio(mib=16)
    seed = disk_images.seed()
    plain = server.add("/plain", os.urandom(4 * MIB))
    failed(machine, "image", "The image has no partition table", format="raw", seed=seed, **plain)
    full = server.add("/full", disk_images.raw(tmp_path, mib=15))
    failed(machine, "too_large", "larger than", job="write-2", format="raw", seed=seed, **full)
    crowded = server.add("/crowded", disk_images.raw(tmp_path, "dos", mib=8, partitions=4))
    failed(machine, "partitions", "it has 4 partitions", job="write-3", format="raw", seed=seed, **crowded)
    assert machine.write_image(**plain, job="write-4", format="raw")["state"] == "done"


def test_a_table_for_other_sectors_is_refused(machine, server, tmp_path):
    machine.virtio(mib=16)
    machine.write("sys/block/vda/queue/logical_block_size", "4096\n")
    request = server.add("/image", disk_images.raw(tmp_path))
    failed(machine, "image", "made for sectors of 512 bytes; vda has sectors of 4096", format="raw", **request)


def test_the_size_can_be_limited(machine, server, tmp_path):
    machine.virtio(mib=16)
    request = server.add("/image", disk_images.raw(tmp_path))
    failed(machine, "too_large", "larger than the 1048576 bytes", format="raw", max_size_bytes=MIB, **request)


def test_a_disk_that_no_hint_selects_starts_no_job(machine, server):
    machine.virtio()
    request = server.add("/image", b"x") | {"format": "raw", "disk": {"serial": "other"}}
    refusal = machine.refusal("disks", "write", "--job", "w-1", given=request)
    assert refusal["code"] == "no_disk"
    assert "vda: its serial is 'disk-1', and not 'other'." in refusal["message"]
    assert server.asked == []
