"""Doubles of the tools that talk to disks and to the TPM, which cannot run on regular files.

Called as `disk_tools.py TOOL ARGUMENT...`, with DISK_DOUBLES naming a folder that has a JSON file for each device. The
outputs and exit codes follow these sources; nothing else of the tools is there:

- `nvme`: nvme-cli 2.3 (Debian 12), `nvme-print.c` (json_nvme_id_ctrl, json_nvme_id_ns, json_nvme_list_ns,
  json_sanitize_log) and `nvme.c` (sanitize, format, list_ns). `test_disk_tools.py` gives the same options to the real
  program.
- `hdparm`: hdparm 9.65 (Debian 12), `identify.c` and `hdparm.c`; the text of `-I` is that of an Intel 530 (`FULL_ATA`),
  with the lines that matter changed. The same test gives the real program the same options.
- `blkdiscard`: util-linux 2.38. `tpm2_clear`: tpm2-tools 5.4 (tpm2_clear.1).
"""

from __future__ import annotations

import json
import os
import re
import sys
from pathlib import Path

ATA = """
{node}:

ATA device, with non-removable media
\tModel Number:       {model}
\tSerial Number:      {serial}
\tFirmware Revision:  4PC10362
\tTransport:          Serial, ATA8-AST, SATA 1.0a, SATA II Extensions, SATA Rev 2.5
Standards:
\tSupported: 9 8 7 6 5
\tLikely used: 9
Configuration:
\tLogical\t\tmax\tcurrent
\tcylinders\t16383\t16383
\tLogical/Physical Sector size:           512 bytes
\tcache/buffer size  = unknown
Capabilities:
\tLBA, IORDY(can be disabled)
Commands/features:
\tEnabled\tSupported:
\t   *\tSMART feature set
\t{secure}\tSecurity Mode feature set
\t   *\tData Set Management TRIM supported (limit 1 block)
{trim}{security}Logical Unit WWN Device Identifier: {wwn}
\tNAA\t\t: 5
\tIEEE OUI\t: 5cd2e4
\tUnique ID\t: 04c3d2a1b
Checksum: correct
"""
SECURITY = """Security: 
\tMaster password revision code = 65534
\t{supported}\tsupported
\t{enabled}\tenabled
\t{locked}\tlocked
\t{frozen}\tfrozen
\tnot\texpired: security count
\t{enhanced}\tsupported: enhanced erase
{level}\t4min for SECURITY ERASE UNIT. 2min for ENHANCED SECURITY ERASE UNIT.
"""  # noqa: W291 - hdparm prints this blank


class Device:
    """The state of a device between two calls."""

    def __init__(self, name: str) -> None:
        self._file = Path(os.environ["DISK_DOUBLES"]) / f"{name}.json"
        self.values = json.loads(self._file.read_text()) if self._file.exists() else {}

    def set(self, **values) -> None:
        self.values |= values
        new = self._file.with_suffix(f".{os.getpid()}")
        new.write_text(json.dumps(self.values))
        new.replace(self._file)

    def note(self, *words: str) -> None:
        self.set(calls=[*self.values.get("calls", []), " ".join(words)])


def fail(text: str, code: int = 1) -> None:
    print(text, file=sys.stderr)
    sys.exit(code)


def fill(node: Path, pattern: bytes) -> None:
    """Write a pattern all over a disk, as erasures of the disk itself do."""
    size = node.stat().st_size
    with open(node, "r+b") as opened:
        if not pattern.strip(b"\0"):
            opened.truncate(0)
            opened.truncate(size)
            return
        opened.write((pattern * (size // len(pattern) + 1))[:size])


def nvme(command: str, *arguments: str) -> None:
    node = Path(arguments[-1])
    options = dict(one.lstrip("-").partition("=")[::2] for one in arguments[:-1] if one.startswith("--"))
    if command in ("id-ctrl", "list-ns", "sanitize", "sanitize-log"):
        device = Device(node.name)
    else:
        device = Device(re.sub(r"n\d+$", "", node.name))
    values = device.values
    if not values:
        fail(f"{node}: No such file or directory")
    if command == "id-ctrl":
        if values.get("identify_fails"):
            fail("identify controller: Interrupted system call")
        shown = {"vid": 6900, "sn": "deadbeef", "mn": "QEMU NVMe Ctrl", "oacs": values["oacs"], "fna": values["fna"]}
        print(json.dumps(shown | {"sanicap": values["sanicap"]}, indent=2))
    elif command == "list-ns":
        if values.get("list_fails"):
            fail("NVMe status: Invalid Field in Command: A reserved coded value or an unsupported value (0x4002)")
        ids = {int(one.name.rpartition("n")[2]) for one in node.parent.glob(f"{node.name}n*")}
        ids |= set(values.get("detached", ()) if "all" in options else ())
        print(json.dumps({"nsid_list": [{"nsid": one} for one in sorted(ids)]}, indent=2))
    elif command == "id-ns":
        print(json.dumps({"nsze": 8192, "flbas": values["flbas"], "dlfeat": values["dlfeat"], "dps": 0}, indent=2))
    elif command == "sanitize-log":
        log(device, node)
    elif command == "sanitize":
        device.note(command, *arguments[:-1])
        sanitize(device, int(options["sanact"]))
    elif command == "format":
        device.note(command, *arguments[:-1])
        if values.get("format_fails"):
            fail("NVMe status: Access Denied: Access to the namespace and/or LBA range is denied (0x286)")
        for one in spaces(node.parent, values, node):
            fill(one, bytes([values.get("format_leaves", 0)]))
        print("Success formatting namespace:1")


def spaces(folder: Path, values: dict, node: Path) -> list[Path]:
    return sorted(folder.glob(node.name.rpartition("n")[0] + "n*")) if values["fna"] & 3 else [node]


def sanitize(device: Device, action: int) -> None:
    values = device.values
    if action == 1:
        device.set(status=0)
        return
    if not values["sanicap"] & {4: 1, 2: 2}[action]:
        fail("NVMe status: Invalid Field in Command: A reserved coded value or an unsupported value (0x4002)")
    device.set(status=2, steps=values.get("polls", 2), action=action)


def log(device: Device, node: Path) -> None:
    values = device.values
    status, left = values.get("status", 0), values.get("steps", 0)
    if status == 2:
        left -= 1
        failed = values.get("sanitize_fails") == values["action"]
        if left <= 0:
            status = 3 if failed else 1
            leaves = values.get("sanitize_leaves", {}).get(str(values["action"]))
            for one in [] if failed or leaves == "everything" else sorted(node.parent.glob(f"{node.name}n*")):
                fill(one, os.urandom(4096) if leaves == "noise" else b"\0")
        device.set(status=status, steps=left)
    words = {
        0: "NVM Subsystem has never been sanitized.", 1: "Most Recent Sanitize Command Completed Successfully.",
        2: "Sanitize in Progress.", 3: "Most Recent Sanitize Command Failed.",
    }  # fmt: skip
    progress = 65535 if status != 2 else 65535 - 65535 * left // max(1, values.get("polls", 2))
    shown = {"global_erased": 1, "no_cmplted_passes": 0, "status": f"({status}) {words[status]}"}
    print(json.dumps({node.name: {
        "sprog": progress, "sstat": shown, "cdw10_info": 4, "time_over_write": 4294967295,
        "time_block_erase": 4294967295, "time_crypto_erase": 4294967295,
    }}, indent=2))  # fmt: skip


def hdparm(*arguments: str) -> None:
    node = Path(arguments[-1])
    device = Device(node.name)
    values = device.values
    if not values.get("ata"):
        fail(f"\n{node}:\n HDIO_DRIVE_CMD(identify) failed: Inappropriate ioctl for device", 25)
    if arguments[0] == "-I":
        if values.get("silent", 0):  # the number of times that it is too busy to answer
            device.set(silent=values["silent"] - 1)
            fail(f"\n{node}:\n HDIO_DRIVE_CMD(identify) failed: Input/output error", 5)
        print(identify(node, values))
        return
    if arguments[0] == "-N":
        sectors = node.stat().st_size // 512
        hidden = values.get("hidden", 0)
        print(
            f"\n{node}:\n max sectors   = {sectors}/{sectors + hidden}, HPA is {'enabled' if hidden else 'disabled'}\n"
        )
        return
    assert arguments[:2] == ("--user-master", "u"), arguments
    act, password = arguments[2].removeprefix("--security-"), arguments[3]
    device.note(act)
    print(f'security_password: "{password}"\n\n{node}:\n Issuing SECURITY_{act.upper()} command, user=user')
    ours = password == values.get("password")
    if values.get("frozen") or values.get("refuses") == act:
        print("SECURITY_PASSWORD: Input/output error", file=sys.stderr)  # the exit code is EIO, as errno
        sys.exit(5)
    if act == "set-pass":
        device.set(password=password)
    elif not ours:
        fail(f"SECURITY_{act.upper()}: Input/output error", 5)
    elif act == "unlock":
        device.set(locked=False)
    elif act == "disable" or values.get("lies"):
        device.set(password=None)
    else:
        device.set(password=None)
        fill(node, bytes(values.get("pattern", [0])) if act == "erase-enhanced" else b"\0")


def identify(node: Path, values: dict) -> str:
    password = values.get("password") is not None
    flags = {
        "supported": values.get("security", True), "enabled": password, "locked": values.get("locked", False),
        "frozen": values.get("frozen", False), "enhanced": values.get("enhanced", True),
    }  # fmt: skip
    told = {name: "" if there else "not" for name, there in flags.items()}
    level = "\tSecurity level high\n" if password else ""
    trim = "\t   *\tDeterministic read ZEROs after TRIM\n" if values.get("rzat") else ""
    return ATA.format(
        node=node, model=values.get("model", "INTEL SSDSC2BW240A4"), serial=values["serial"], wwn=values["wwn"],
        secure="   *" if password else "    ", trim=trim, security=SECURITY.format(level=level, **told),
    )  # fmt: skip


def blkdiscard(*arguments: str) -> None:
    node = Path(arguments[-1])
    values = Device(node.name).values
    if values.get("discard_fails"):
        fail(f"blkdiscard: {node}: BLKDISCARD ioctl failed: Operation not supported")
    if not values.get("discard_lies"):
        fill(node, b"\0")


def tpm2_clear(*arguments: str) -> None:
    device = Device("tpm0")
    device.note(*arguments)
    if arguments[1] in device.values.get("locked", ()):
        fail("ERROR: Esys_Clear(0x98E) - tpm:session(1):the authorization HMAC check failed and DA counter incremented")


if __name__ == "__main__":
    globals()[sys.argv[1]](*sys.argv[2:])
