"""Debian's packages: which ones the ramdisk has, where they come from, and their download by mmdebstrap.

The packages are extracted and not installed: none of their scripts runs. So the result depends on nothing of this
machine, no root or user namespace is needed, and no key is made that all copies would share.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import re
import subprocess
import tarfile
from collections.abc import Sequence
from pathlib import Path
from urllib.parse import unquote, urlsplit, urlunsplit

from drydock.core.errors import DrydockError, InvalidRequest
from drydock.ramdisk import programs

ARCHITECTURE = "amd64"
SYSTEM = (
    "acpid", "base-files", "base-passwd", "bash", "busybox-static", "ca-certificates", "coreutils", "dash", "findutils",
    "grep", "gzip", "hostname", "iproute2", "kmod", "libc-bin", "mawk", "mount", "openssh-server", "openssl", "procps",
    "python3", "sed", "tar", "udev", "udhcpc", "util-linux",
)  # fmt: skip
TOOLS = (
    "dmidecode", "efibootmgr", "fdisk", "hdparm", "ipmitool", "nvme-cli", "pciutils", "qemu-utils", "tpm2-tools",
    "zstd",
)  # fmt: skip
"""Packages with the tools for disks, boot entries and TPMs."""
BOOT = ("linux-image-amd64", "isolinux", "syslinux-common", "grub-efi-amd64-signed", "shim-signed")
COMPONENTS = ("main", "non-free-firmware")
"""The components of Debian that are used if apt has them. Firmware of network cards is in the second."""
MOST_PACKAGES = 2000
_NAME = re.compile(r"\A[a-z0-9][a-z0-9+.-]{1,99}\Z")
_SUITE = re.compile(r"\A[a-z][a-z0-9.-]{0,39}\Z")
_SOURCE = re.compile(r"\Adeb (\[[^\]\n]{1,200}\] )?(https?|file|copy)(\+\w+)?:\S{1,500} [^\n]{1,200}\Z")
_ARCHIVES = "./var/cache/apt/archives/"
_SECONDS = 3600.0


@dataclasses.dataclass(frozen=True, kw_only=True)
class Package:
    """A package in the ramdisk. `sha256` is that of its file."""

    name: str
    version: str
    architecture: str
    sha256: str


def check(suite: str, sources: Sequence[str], more: Sequence[str]) -> None:
    """Raise InvalidRequest if a suite, a source or the name of a package is malformed."""
    if suite and not _SUITE.match(suite):
        raise InvalidRequest(f"{suite!r:.60} is not the name of a Debian release, such as bookworm.", field="suite")
    for line in sources:
        if not _SOURCE.match(line):
            raise InvalidRequest(
                f"{without_login(line)!r:.200} is not a source of packages, such as "
                "'deb https://deb.debian.org/debian bookworm main'.",
                field="source",
            )
    for name in more:
        if not _NAME.match(name):
            raise InvalidRequest(f"{name!r:.100} is not the name of a Debian package.", field="add")


def configured(suite: str) -> tuple[str, list[str]]:
    """Return the suite, and the sources of Debian that apt uses on this machine. Raises InvalidRequest."""
    shown = subprocess.run(
        ["apt-get", "indextargets", "--format", "$(REPO_URI)\t$(CODENAME)\t$(COMPONENT)\t$(ORIGIN)",
         "Created-By: Packages"],
        capture_output=True, text=True, errors="replace", timeout=60,
    ).stdout  # fmt: skip
    found: dict[tuple[str, str], list[str]] = {}
    for line in shown.splitlines():
        uri, codename, component, origin = (line.split("\t") + [""] * 4)[:4]
        if origin == "Debian" and component in COMPONENTS:
            found.setdefault((uri.rstrip("/"), codename), []).append(component)
    suites = sorted({codename for _, codename in found if re.fullmatch(r"[a-z]+", codename)})
    chosen = suite or (suites[0] if len(suites) == 1 else "")
    wanted = (chosen, f"{chosen}-updates", f"{chosen}-security")
    lines = [
        f"deb {uri} {codename} {' '.join(sorted(set(components)))}"
        for (uri, codename), components in sorted(found.items()) if codename in wanted
    ]  # fmt: skip
    if not chosen or not any(line.split()[2] == chosen for line in lines):
        raise InvalidRequest(
            f"apt on this machine has no lists of packages of Debian {chosen}".rstrip() + ".",
            hint="Run `apt-get update`, or name release and source: --suite bookworm "
            "--source 'deb https://deb.debian.org/debian bookworm main'",
        )
    return chosen, lines


def without_login(line: str) -> str:
    """Return a source without user name and password in its address."""
    words = line.split(" ")
    for at, word in enumerate(words):
        parts = urlsplit(word)
        if parts.scheme and "@" in parts.netloc:
            words[at] = urlunsplit(parts._replace(netloc=parts.netloc.rpartition("@")[2]))
    return " ".join(words)


def download(
    target: Path, suite: str, sources: Sequence[str], more: Sequence[str], pins: Sequence[Package], *, epoch: int
) -> list[Package]:
    """Download the packages, and extract them into an archive. Returns them by name. Raises DrydockError."""
    names = dict.fromkeys((*SYSTEM, *TOOLS, *BOOT, *more))
    words = [
        "mmdebstrap", "--quiet", "--variant=extract", "--mode=chrootless", "--format=tar",
        f"--architectures={ARCHITECTURE}", "--skip=cleanup/apt/cache", f"--include={','.join(names)}",
        '--aptopt=Acquire::Languages "none"', '--aptopt=Acquire::Retries "3"',
        '--aptopt=Apt::Install-Recommends "false"',
    ]  # fmt: skip
    if pins:
        preferences = target.with_name("preferences")
        preferences.write_text("".join(
            f"Package: {one.name}\nPin: version {one.version}\nPin-Priority: 1001\n\n" for one in pins
        ))  # fmt: skip
        words.append(f"--setup-hook=copy-in {_quoted(preferences)} /etc/apt/preferences.d")
    programs.run([*words, suite, str(target), *sources], epoch=epoch, seconds=_SECONDS)
    found = _found(target)
    _compare(found, pins)
    return found


def _quoted(path: Path) -> str:
    if re.search(r"[^A-Za-z0-9/._-]", str(path)):
        raise InvalidRequest(f"The path {str(path)!r:.200} contains characters that mmdebstrap cannot handle.")
    return str(path)


def _found(target: Path) -> list[Package]:
    """Return the packages whose files are in the archive."""
    found: list[Package] = []
    with tarfile.open(target) as archive:
        for member in archive:
            if not (member.name.startswith(_ARCHIVES) and member.name.endswith(".deb")):
                continue
            words = member.name[len(_ARCHIVES) : -len(".deb")].split("_")
            content = archive.extractfile(member)
            if len(words) != 3 or content is None or len(found) >= MOST_PACKAGES:
                raise DrydockError(f"apt has stored a package under the unexpected name {member.name!r:.200}.")
            digest = hashlib.sha256()
            while chunk := content.read(1 << 20):
                digest.update(chunk)
            found.append(Package(name=words[0], version=unquote(words[1]), architecture=words[2],
                                 sha256=digest.hexdigest()))  # fmt: skip
    return sorted(found, key=lambda one: (one.name, one.architecture))


def _compare(found: Sequence[Package], pins: Sequence[Package]) -> None:
    if not pins or list(found) == list(pins):
        return
    here, there = ({(one.name, one.version, one.sha256) for one in some} for some in (found, pins))
    texts = [f"{name} {version}" for name, version, _ in sorted(there - here)]
    more = [f"{name} {version}" for name, version, _ in sorted(here - there)]
    raise DrydockError(
        f"These sources do not have the packages of the manifest. Missing: {_some(texts)}. Instead: {_some(more)}.",
        hint="Use a source that keeps old versions, such as snapshot.debian.org: see docs/ramdisk.md.",
    )


def _some(texts: Sequence[str]) -> str:
    shown = ", ".join(texts[:5]) or "none"
    return f"{shown} and {len(texts) - 5} more" if len(texts) > 5 else shown


def read_pins(path: Path) -> list[Package]:
    """Return the packages that a manifest lists. Raises InvalidRequest."""
    try:
        if path.stat().st_size > 4 << 20:
            raise ValueError("it is larger than 4 MiB")
        given = json.loads(path.read_text())["packages"]
        names = {field.name for field in dataclasses.fields(Package)}
        pins = [Package(**{name: str(one[name]) for name in names}) for one in given[:MOST_PACKAGES]]
    except (OSError, ValueError, KeyError, TypeError) as error:
        raise InvalidRequest(f"{path} is not the manifest of a ramdisk: {error}.", field="like") from None
    for one in pins:
        if not _NAME.match(one.name) or not re.fullmatch(r"[A-Za-z0-9.+:~-]{1,200}", one.version):
            raise InvalidRequest(f"{path} names an impossible package: {one.name!r:.100}.", field="like")
    return pins
