"""Step actions that program an FPGA with an image of its blueprint, and blank it after a lease.

The file of an image is copied or downloaded to a folder that only root can enter, and its SHA-256 is computed there, so
that nobody can exchange it before it is programmed. Each FPGA has copies of its own: a download for another one, which
may get something else, would otherwise write to a file that was verified. Afterwards the FPGA is read again.
"""

from __future__ import annotations

import base64
import binascii
from contextlib import suppress
from dataclasses import replace

from blueprints.accelerators import bitstreams
from blueprints.accelerators.bitstreams import BadImage, Image
from blueprints.accelerators.host import ScanFailed, hardware_of, pci_function, shell
from blueprints.accelerators.nodes import known_of
from blueprints.answers import Answer, Failed, Json, Ready, Scope, Wait
from blueprints.contract import DeclaredAct, Fields, Step
from blueprints.hosts import lease_of
from blueprints.hostshell import CannotBecomeRoot, HostShell, told
from blueprints.specs import Spec
from drydock.core.errors import InvalidRequest
from drydock_agent import Device
from interfaces.errors import CommandFailed, DeadlineExceeded

_LARGEST = 1 << 30
_HEAD = 1 << 16
_FOLDER = "/var/lib/drydock-images"

_WRONG_SUM, _NO_FILE, _NO_TOOL, _TOO_LARGE, _OUT_OF_TIME = 65, 66, 69, 73, (124, 137)
"""Exit codes of the scripts; the last ones are those of `timeout`."""
_LOOKS = 5

_FETCH = rf"""
name=$1 sum=$2 path=$3 url=$4 seconds=$5
umask 077
mkdir -p {_FOLDER} && [ ! -L {_FOLDER} ] && chown 0:0 {_FOLDER} && chmod 700 {_FOLDER} || exit 1
file={_FOLDER}/$name part={_FOLDER}/$name.part
summed() {{ said=$(sha256sum <"$1") && echo "${{said%% *}}"; }}
# A server that never ends, or says nothing about the size, must not fill the disk.
bounded() (ulimit -c 0; ulimit -f $(({_LARGEST} / 512 + 1)) && exec timeout -s KILL "$seconds" "$@")
sized() {{ [ ! -f "$part" ] || [ "$(wc -c <"$part")" -le {_LARGEST} ] || {{ rm -f "$part"; exit {_TOO_LARGE}; }}; }}
# The host may have stopped while it was written.
[ ! -f "$file" ] || [ "$(summed "$file")" = "$sum" ] || rm -f "$file"
if [ ! -f "$file" ]; then
  if [ -n "$path" ]; then
    [ -f "$path" ] || {{ echo "it does not exist" >&2; exit {_NO_FILE}; }}
    bounded head -c {_LARGEST + 1} -- "$path" >"$part" || exit
  elif command -v curl >/dev/null 2>&1; then
    bounded curl -fsSL --proto =http,https --proto-redir =http,https --max-filesize {_LARGEST} -C - -o "$part" -- "$url"
    code=$?
    sized
    case $code in
      0) ;; 124|137) exit $code;;
      # The server cannot continue a download that was begun.
      33|36) rm -f "$part"; exit 124;;
      63) exit {_TOO_LARGE};;
      22) echo "the server refused it" >&2; rm -f "$part"; exit {_NO_FILE};; *) exit {_NO_FILE};;
    esac
  elif command -v wget >/dev/null 2>&1; then
    bounded wget -q -c -t 1 -O "$part" -- "$url" || {{
      code=$?; sized
      [ $code = 124 ] || [ $code = 137 ] || {{ echo "wget failed with exit code $code" >&2; code={_NO_FILE}; }}
      exit $code
    }}
  else
    echo "the host has neither curl nor wget" >&2; exit {_NO_FILE}
  fi
  sized
  found=$(summed "$part") || exit 1
  [ "$found" = "$sum" ] || {{ rm -f "$part"; echo "$found"; exit {_WRONG_SUM}; }}
  mv "$part" "$file"
fi
head -c {_HEAD} "$file" | base64
"""
"""Puts an image into the folder for images, and prints its beginning.

$1: its name there, $2: SHA-256, $3: path or $4: URL, $5: seconds.
"""

_PROGRAM = rf"""
tools=$1 file={_FOLDER}/$2 sum=$3 seconds=$4; shift 4
PATH=${{tools:+$tools:}}$PATH; export PATH
[ -f "$file" ] || exit {_NO_FILE}
found=$(sha256sum <"$file") && [ "${{found%% *}}" = "$sum" ] || {{ rm -f "$file"; exit {_NO_FILE}; }}
if command -v fpgaconf >/dev/null 2>&1; then
  timeout -s KILL "$seconds" fpgaconf "$@" "$file" </dev/null
  code=$?
else
  code={_NO_TOOL}
fi
rm -f "$file"; rmdir {_FOLDER} 2>/dev/null
exit $code
"""
"""Programs an FPGA, and removes the copy of the image.

$1: folder with fpgaconf, $2: name of the copy, $3: SHA-256, $4: seconds, then options that name the device.
"""


_REMOVE = rf"""
for name do rm -f "{_FOLDER}/$name" "{_FOLDER}/$name.part"; done
rmdir {_FOLDER} 2>/dev/null || true
"""
"""Removes the copies of images that are not programmed. Arguments: their names."""


class Program(Fields):
    """Arguments of the act `program`."""

    image: str
    """Name of an image of the blueprint."""


UNDEFINED = "undefined"
"""Value of the fact `programming` of an FPGA that an operator's act has left half-programmed."""


def program_act() -> DeclaredAct:
    """Return the act that programs an FPGA for operators."""
    return DeclaredAct(
        name="program", summary="Program an FPGA with an image of its blueprint.", Arguments=Program, dangerous=True,
        plan=lambda: (Step(name="image", act=program_for_operator, interruptible=False, deadline=600.0),),
    )  # fmt: skip


@told
def program_for_operator(spec: Spec, memo: Json) -> Answer:
    """Program the image that an operator names. If that fails half-way, the FPGA serves no leases."""
    answer = _programmed(spec, memo, spec.arguments.image)
    half = isinstance(answer, Failed) and memo.get("stage") in ("program", "verify")
    if isinstance(answer, Failed):
        return replace(answer, facts={"programming": UNDEFINED}) if half else answer
    return replace(answer, facts=answer.facts | {"programming": "done"}) if isinstance(answer, Ready) else answer


@told
def program_for_lease(spec: Spec, memo: Json) -> Answer:
    """Program the image that the lease asks for, if any, before its account gets the device."""
    name = _asked(spec)
    return _programmed(spec, memo, name) if name else Ready()


@told
def blank(spec: Spec, memo: Json) -> Answer:
    """Program the blank image after a lease, unless the FPGA reports it already, and prove it."""
    images, asked = spec.config.images, _asked(spec)
    if not images or known_of(spec)["class"] != "fpga" or spec.resource.host() is None:
        return Ready()
    if "stage" in memo:
        return _programmed(spec, memo, memo["image"])
    device = _read(spec)
    name = bitstreams.blank_of(images, device)
    if not name:
        return _refused("no_blank_image", f"The blueprint has no blank image for {device.id}.") if asked else Ready()
    if not asked and images[name].afu_id and images[name].afu_id in bitstreams.afu_ids(device):
        return Ready()
    return _programmed(spec, memo, name)


@told
def discard(spec: Spec, memo: Json) -> Answer:
    """Remove the copies of images that a step which was not finished has left on the host."""
    there = shell(spec) if spec.resource.facts["device"]["class"] == "fpga" and spec.config.images else None
    if there is not None:
        # An account that cannot become root has not copied anything, and nothing is copied for what has no address.
        with suppress(CannotBecomeRoot, InvalidRequest):
            there.as_root(_REMOVE, *(_copy(spec, one) for one in spec.config.images.values()))
    return Ready()


def _copy(spec: Spec, image: Image) -> str:
    """Return the name of the copy of an image for an FPGA. Raises InvalidRequest if the FPGA has no PCI address."""
    return f"{image.sha256}-{pci_function(spec)}"


def _asked(spec: Spec) -> str:
    return getattr(lease_of(spec).asked.requirements, "image", None) or ""


def _programmed(spec: Spec, memo: Json, name: str) -> Answer:
    """Fetch an image, program it and read the FPGA again: one of these in each call."""
    image = spec.config.images.get(name)
    if image is None:
        known = ", ".join(sorted(spec.config.images)) or "none"
        return _refused("no_such_image", f"The blueprint has no image named {name!r:.70}. Its images are: {known}.")
    there = shell(spec)
    if there is None:
        return _refused("no_control", "Drydock has no control account on the host of the FPGA.")
    match memo.get("stage", "fetch"):
        case "fetch":
            return _fetch(spec, there, name, image)
        case "program":
            return _program(spec, there, memo, image)
        case _:
            return _verify(spec, memo)


def _fetch(spec: Spec, there: HostShell, name: str, image: Image) -> Answer:
    device = _read(spec)
    if why := bitstreams.why_not(device):
        return _refused("not_programmable", why)
    if image.interface_id not in (ids := bitstreams.interface_ids(device)):
        said = f"The image {name} is made for the interface id {image.interface_id}"
        return _refused("wrong_interface", f"{said}, but {device.id} has {', '.join(ids)}.")
    seconds = str(_seconds(spec))
    try:
        head = there.as_root(_FETCH, _copy(spec, image), image.sha256, image.path, image.url, seconds)
    except CommandFailed as error:
        return _not_fetched(error, name, image)
    except DeadlineExceeded:
        return Wait(after=1.0, sentence=f"The image {name} is being copied to the host.")
    answer = _described(name, image, head)
    if isinstance(answer, Failed):
        there.as_root(_REMOVE, _copy(spec, image))
    return answer


def _described(name: str, image: Image, head: str) -> Answer:
    """Compare what the file of an image says about itself with the blueprint."""
    try:
        interface_id, afu_id = bitstreams.metadata(base64.b64decode(head, validate=False))
    except (BadImage, binascii.Error) as error:
        return _refused("bad_image", f"The image {name} cannot be used: {error}.")
    if interface_id and interface_id != image.interface_id:
        said = f"The blueprint says that the image {name} is made for the interface id {image.interface_id}"
        return _refused("wrong_interface", f"{said}, but its file says {interface_id}.")
    if image.afu_id and afu_id and image.afu_id != afu_id:
        said = f"The blueprint says that the FPGA reports the image {name} as {image.afu_id}"
        return _refused("wrong_afu_id", f"{said}, but its file says {afu_id}.")
    if not (expected := image.afu_id or afu_id):
        return _refused("no_afu_id", f"The file of the image {name} names no AFU id. Set afu_id in the blueprint.")
    return Wait(
        after=0.0, memo={"stage": "program", "image": name, "afu_id": expected},
        sentence=f"The image {name} has the right SHA-256.",
    )  # fmt: skip


def _not_fetched(error: CommandFailed, name: str, image: Image) -> Answer:
    said = " ".join(error.result.error_text.split())[-300:]
    match error.result.exit_code:
        case code if code in _OUT_OF_TIME:
            return Wait(after=1.0, sentence=f"The image {name} is being copied to the host.")
        case code if code == _WRONG_SUM:
            found = error.result.text.strip()[:64]
            message = f"{image.place} has the SHA-256 {found}, but the image {name} must have {image.sha256}."
            return _refused("wrong_sha256", message)
        case code if code == _TOO_LARGE:
            return _refused("too_large", f"{image.place} has more than {_LARGEST >> 20} MiB.")
        case code if code == _NO_FILE:
            message = f"{image.place} cannot be read on the host: {said}"
            return Failed(scope=Scope.STEP, code="no_image", message=message)
    return Failed(scope=Scope.STEP, code="not_fetched", message=f"The image {name} could not be copied: {said}")


def _program(spec: Spec, there: HostShell, memo: Json, image: Image) -> Answer:
    name, seconds = memo["image"], _seconds(spec)
    try:
        there.as_root(
            _PROGRAM, spec.config.tools, _copy(spec, image), image.sha256, str(seconds), *_options(pci_function(spec))
        )  # fmt: skip
    except CommandFailed as error:
        code, said = error.result.exit_code, " ".join((error.result.text + error.result.error_text).split())[-300:]
        if code == _NO_FILE:
            return Wait(after=1.0, memo={}, sentence=f"The image {name} is copied to the host again.")
        if code == _NO_TOOL:
            return _refused("no_tool", "The host has no fpgaconf. Install OPAE, or name its folder with `tools`.")
        if code in _OUT_OF_TIME:
            message = f"fpgaconf was stopped, because it did not program {name} within {seconds} seconds."
            return Failed(scope=Scope.STEP, code="hangs", message=message)
        message = f"fpgaconf could not program {name} (exit code {code}): {said}"
        return Failed(scope=Scope.STEP, code="not_programmed", message=message)
    return Wait(after=0.0, memo=memo | {"stage": "verify"}, sentence=f"The FPGA is read again after {name}.")


def _options(id: str) -> tuple[str, ...]:
    """Return the options of fpgaconf that name a PCI function. All numbers are hexadecimal."""
    domain, bus, rest = id.split(":")
    device, function = rest.split(".")
    return "--segment", f"0x{domain}", "-B", f"0x{bus}", "-D", f"0x{device}", "-F", f"0x{function}"


def _verify(spec: Spec, memo: Json) -> Answer:
    name, expected, looks = memo["image"], memo["afu_id"], memo.get("looks", 0)
    device = _read(spec)
    if expected in (found := bitstreams.afu_ids(device)):
        return Ready(facts={"image": name, "afu_id": expected}, log=f"{device.id} reports the image {name}.")
    if looks < _LOOKS:
        return Wait(after=1.0, memo=memo | {"looks": looks + 1}, sentence=f"{device.id} does not report {name} yet.")
    message = f"{device.id} reports {', '.join(found) or 'no AFU id'} after it was programmed with {name} ({expected})."
    return Failed(scope=Scope.OPERATOR, code="not_programmed", message=message)


def _read(spec: Spec) -> Device:
    """Return the FPGA as it is now. Raises ScanFailed if it is no longer there."""
    host, id = spec.resource.host(), spec.resource.facts["device"]["id"]
    if host is None:
        raise ScanFailed("The host of the FPGA no longer exists.")
    found = hardware_of(spec.config, host, only=("pci", "fpga")).device(id)
    if found is None:
        raise ScanFailed(f"{id} is not in the host any more.")
    return found


def _seconds(spec: Spec) -> int:
    """Return for how many seconds a program may run in one call of a step."""
    return max(1, int(spec.deadline * 0.7))


def _refused(code: str, message: str) -> Failed:
    return Failed(scope=Scope.OPERATOR, code=code, message=message)
