"""Steps that inspect a host in the ramdisk, and write the image of a lease to its disk."""

from __future__ import annotations

import base64
import json

from blueprints.accounts.access import control_key, owner_keys, shell
from blueprints.accounts.registration import capacity
from blueprints.answers import Answer, Failed, Json, Ready, Scope, Wait
from blueprints.baremetal import disks, hardware, ramdisk_agent
from blueprints.baremetal.config import Config
from blueprints.baremetal.images import Image
from blueprints.baremetal.ramdisk import BOOTING, abandoned
from blueprints.baremetal.ramdisk_agent import FACT, AgentRefused, follow
from blueprints.baremetal.registration import registration_of
from blueprints.baremetal.sessions import bmc_told, since
from blueprints.hosts import lease_of, observed
from blueprints.hostshell import NeedsOperator
from blueprints.media import iso_image
from blueprints.specs import LeaseView, Spec
from blueprints.userdata import FIRST_BOOT, user_data
from drydock.core import clock
from drydock.core.errors import InvalidRequest
from interfaces.errors import HostKeyMismatch
from interfaces.keys import KeyPair, new_key_pair, public_line

MEASURED = ("arch", "vcpus", "ram_mib")
"""Facts about the machine itself. Others that a shell in the ramdisk finds are about the ramdisk."""
_LOOK = 1.5  # as in `power`: less than the interval of the sweep
_SEED = "cidata"


@bmc_told
def inspect(spec: Spec, memo: Json) -> Answer:
    """Read processors, memory and disks in the ramdisk, and compare serial number and UUID with those by the BMC."""
    there = ramdisk_agent.shell(spec.resource, spec.deadline)
    try:
        measured = {name: value for name, value in there.look("/").items() if name in MEASURED}
        compared = hardware.compared(spec, there.run(hardware.IN_BAND))
        listed = disks.read(spec)
    except AgentRefused as error:
        return abandoned(spec, Failed(scope=Scope.OPERATOR, code=error.code, message=error.message))
    except NeedsOperator as error:
        return abandoned(spec, Failed(scope=Scope.OPERATOR, code=error.code, message=str(error)))
    sizes = [one.get("size_bytes") for one in disks.fixed(listed)]
    found = {**measured, "disk_mib": sum(size for size in sizes if isinstance(size, int)) >> 20}
    given = spec.resource.facts.get("given", [])
    return Ready(
        facts={**found, **compared, **listed}, attributes=observed(measured),
        capacity=capacity(spec.resource.capacity, given, found), log="\n".join(compared["differences"]),
    )  # fmt: skip


def choose(spec: Spec, memo: Json) -> Answer:
    """Choose the image for the lease, and make the host key that it will have."""
    lease, config = lease_of(spec), spec.config
    if lease.facts.get("deployed_on") == spec.resource.key:
        return Ready()
    asked = lease.asked.requirements
    name = asked.image or config.image_name
    if config.image(name) is None:
        message = f"The blueprint has no image {name!r}. It has: {', '.join(config.images)}."
        return Failed(scope=Scope.OPERATOR, code="no_image", message=message)
    if asked.user_data and not config.marks_host:
        message = "user_data is run as root, and leases of this blueprint may not become root (lease_sudo)."
        return Failed(scope=Scope.OPERATOR, code="user_data", message=message)
    pair = new_key_pair("host")
    about = {
        "deployed_on": spec.resource.key,
        "image": name,
        "deployed_host_key": pair.public,
        "owner_keys": owner_keys(lease)[0],
    }
    try:
        _user_data(spec, pair)
    except InvalidRequest as error:
        return Failed(scope=Scope.OPERATOR, code=error.code, message=str(error))
    return Ready(facts=about, secrets={"host_private": pair.private})


@bmc_told
def write(spec: Spec, memo: Json) -> Answer:
    """Write the image with its seed to the disk that its root device hints select, and read it back."""
    lease = lease_of(spec)
    image = _image_of(spec.config, lease)
    job = f"write-{lease.key}-{spec.resource.facts[FACT]['boot']}"
    try:
        found = follow(spec, memo, job, lambda: _start(spec, job, image), f"{lease.facts['image']} is being written.")
    except AgentRefused as error:
        return abandoned(spec, Failed(scope=Scope.OPERATOR, code=error.code, message=error.message))
    if not isinstance(found, dict):
        return abandoned(spec, found) if isinstance(found, Failed) else found
    told = found.get("disk")
    disk: Json = told if isinstance(told, dict) else {}
    if str(found.get("sha256", "")).lower() != image.sha256.lower():
        message = f"The ramdisk wrote an image with SHA-256 {found.get('sha256')}, and not {image.sha256}."
        return abandoned(spec, Failed(scope=Scope.OPERATOR, code="wrong_hash", message=message))
    facts = {"image_disk": str(disk.get("serial") or disk.get("name") or "")[:255]}
    return Ready(facts=facts, log=f"{lease.facts['image']} was written to {disk.get('name')} and read back.")


def _start(spec: Spec, job: str, image: Image) -> None:
    request = {
        "url": image.url, "sha256": image.sha256, "format": image.format, "disk": image.hints, "ca": image.ca,
        "seed": base64.b64encode(_seed(spec)).decode(),
    }  # fmt: skip
    ramdisk_agent.call(spec.resource, "disks", "write", "--job", job, request=request)


def _image_of(config: Config, lease: LeaseView) -> Image:
    """Return the image that was chosen for the lease. Raises NeedsOperator if it was removed meanwhile."""
    found = config.image(lease.facts["image"])
    if found is None:
        raise NeedsOperator(f"The image {lease.facts['image']} was removed from the blueprint.")
    return found


def _user_data(spec: Spec, host_key: KeyPair) -> str:
    config: Config = spec.config
    return user_data(
        user=spec.resource.facts["user"], public_key=public_line(control_key(spec.resource)), host_key=host_key,
        also=config.user_data, asked=lease_of(spec).asked.requirements.user_data,
    )  # fmt: skip


def _seed(spec: Spec) -> bytes:
    """Return the image from which cloud-init reads who it is (data source NoCloud)."""
    lease = lease_of(spec)
    pair = KeyPair(private=lease.secrets["host_private"], public=lease.facts["deployed_host_key"])
    meta = {"instance-id": lease.key, "local-hostname": spec.resource.key}
    files = {"user-data": _user_data(spec, pair), "meta-data": json.dumps(meta)}
    if network := _network(spec):
        files["network-config"] = json.dumps(network)
    return iso_image(_SEED, {name: text.encode() for name, text in files.items()})


def _network(spec: Spec) -> Json | None:
    """Return the network of the deployed host, if it is the static one of the ramdisk. Otherwise the image decides."""
    given = registration_of(spec.resource)
    static = given.ramdisk_network
    if static is None or static.ip != given.address:
        return None
    port: Json = {"match": {"macaddress": static.mac} if static.mac else {"name": "e*"}, "addresses": [static.address]}
    if static.gateway:
        port["routes"] = [{"to": "::/0" if ":" in static.gateway else "0.0.0.0/0", "via": static.gateway}]
    if static.dns:
        port["nameservers"] = {"addresses": list(static.dns)}
    return {"version": 2, "ethernets": {"drydock0": port}}


def pin(spec: Spec, memo: Json) -> Answer:
    """Pin the host key of the deployed system, before it boots for the first time."""
    lease = lease_of(spec)
    key = " ".join(lease.facts["deployed_host_key"].split()[:2])
    return Ready(resource_facts={"host_keys": [key], "image": lease.facts["image"]})


@bmc_told
def first_boot(spec: Spec, memo: Json) -> Answer:
    """Wait until the deployed system accepts our login with its pinned key, and its first boot has finished."""
    image = _image_of(spec.config, lease_of(spec))
    begun = memo.get("on_at") or clock.now().isoformat()
    try:
        there = shell(spec, at_most=10.0)
        said, _, further = there.run("echo done" if image.ready_by == "ssh" else FIRST_BOOT).strip().partition("\n")
    except HostKeyMismatch:
        said, further = "other", "Another system answers at its address, so it did not boot from the disk."
    except BOOTING as error:
        said, further = "silent", error.message
    if said == "done":
        return Ready(log="The deployed system is ready.")
    if said in ("absent", "error"):
        return _not_ready(said, further)
    waited, limit = since(begun), spec.config.boot_timeout
    if waited >= limit:
        message = f"The deployed system was not ready within {limit:.0f} s: {further or 'its first boot goes on.'}"
        return Failed(scope=Scope.OPERATOR, code="first_boot", message=message[:2000])
    sentence = f"The deployed system boots for the first time. {further}".strip()[:500]
    return Wait(after=_LOOK, memo={"on_at": begun}, percent=min(99, int(100 * waited / limit)), sentence=sentence)


def _not_ready(said: str, further: str) -> Failed:
    if said == "absent":
        message = "The image does not have cloud-init. Set ready_by: ssh for the image, or choose another one."
        return Failed(scope=Scope.OPERATOR, code="no_cloud_init", message=message)
    return Failed(scope=Scope.OPERATOR, code="cloud_init", message=f"cloud-init failed: {further}"[:2000])
