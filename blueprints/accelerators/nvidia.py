"""Read and change one NVIDIA GPU with the nvidia-smi of its host."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from blueprints.accelerators.host import ScanFailed, shell
from blueprints.accelerators.nodes import gpu_address, is_nvidia_gpu, known_of
from blueprints.answers import Json
from blueprints.hostshell import HostShell
from blueprints.specs import Spec
from drydock_agent import Device, MemoryTree
from drydock_agent.drivers.nvidia import Nvidia
from drydock_agent.kernel_log import RESET
from interfaces.errors import CommandFailed

_ABSENT = 69
_FIND = rf"""
PATH=${{1:+$1:}}$PATH; export PATH; shift
command -v nvidia-smi >/dev/null 2>&1 || exit {_ABSENT}
limit='timeout -s KILL 20'
command -v timeout >/dev/null 2>&1 || limit=
bounded() {{ $limit nvidia-smi "$@"; }}
"""
_TOOL = _FIND + 'bounded "$@"\n'
_RESET_CLOCKS = (
    _FIND
    + r"""
for option in -rgc -rmc -rac; do
  said=$(bounded -i "$1" $option 2>&1) && continue
  code=$?
  case $(echo "$said" | tr A-Z a-z) in *'not supported'*|*'not available'*) ;; *) echo "$said" >&2; exit $code;; esac
done
"""
)
"""Undoes locked clocks of the GPU and its memory, and clocks for applications, as far as the GPU has them."""
_KERNEL_LOG = "/dev/kmsg"
_RESET = (
    _FIND
    + rf"""
bounded -i "$1" --gpu-reset || exit
[ -z "$2" ] || echo "{RESET} $1" >"$2" || true
"""
)
"""Resets a GPU. Notes that in the kernel log, so that errors before it no longer count. $2: address, $3: the log."""
_SETTINGS: Mapping[str, str] = {"compute_mode": "-c", "power_limit_watts": "-pl"}
"""Settings that outlive the processes of a lease, by the names of the driver's attributes, and the options that set
them."""


class Gpu:
    """A GPU, or the GPU that a slice is part of. Raises InvalidRequest if its id does not name exactly one."""

    def __init__(self, there: HostShell, tools: str, known: Json) -> None:
        self._there = there
        self._tools = tools
        self._known = known
        self._id = gpu_address(known)

    def read(self) -> Device | None:
        """Return what nvidia-smi says about the device now, or None if the host has no nvidia-smi.

        Raises ScanFailed, InterfaceError.
        """
        try:
            text = self._there.run(_TOOL, self._tools, "-i", self._id, "-q", "-x")
        except CommandFailed as error:
            if error.result.exit_code == _ABSENT:
                return None
            raise
        tree = MemoryTree({"drydock-tools/nvidia-smi.out": text, "drydock-tools/nvidia-smi.status": "0"})
        found = next((one for one in Nvidia().read(tree).devices if one.id == self._known["id"]), None)
        if found is None:
            raise ScanFailed(f"nvidia-smi does not report {self._known['id']}: {text.strip()[:160]}")
        return found

    def read_all(self) -> Sequence[Device]:
        """Return what nvidia-smi says about the GPU and its slices now, with their profiles. Raises InterfaceError."""
        files = {"nvidia-smi": self.run("-q", "-x"), "nvidia-smi-list": self._there.run(_TOOL, self._tools, "-L")}
        tree = MemoryTree(
            {f"drydock-tools/{name}.out": text for name, text in files.items()}
            | {f"drydock-tools/{name}.status": "0" for name in files}
        )
        return [one for one in Nvidia().read(tree).devices if self._id in (one.id, one.part_of)]

    def run(self, *words: str, after: bool = False) -> str:
        """Run nvidia-smi for this GPU as root. Its commands, such as mig, take the GPU after them.

        Raises InterfaceError.
        """
        first = words[:1] if after else ()
        return self._there.as_root(_TOOL, self._tools, *first, "-i", self._id, *words[len(first) :])

    def change(self, name: str, value: object) -> None:
        """Change a setting. Raises InterfaceError."""
        self._there.as_root(_TOOL, self._tools, "-i", self._id, _SETTINGS[name], str(value).upper())

    def reset_clocks(self) -> None:
        """Undo locked clocks, which cannot be read, and clocks for applications. Raises InterfaceError."""
        self._there.as_root(_RESET_CLOCKS, self._tools, self._id)

    def reset(self) -> str:
        """Reset the GPU. Return an empty string, or what nvidia-smi said if it cannot be reset now."""
        log = "" if self._known["captured"] else _KERNEL_LOG
        try:
            self._there.as_root(_RESET, self._tools, self._id, log)
        except CommandFailed as error:
            said = (error.result.text + error.result.error_text).strip().splitlines()
            return " ".join(said)[:200] or f"exit code {error.result.exit_code}"
        return ""


def settings_of(device: Device) -> Json:
    """Return the settings and the used memory of a device, for a later comparison."""
    return {name: device.attributes[name] for name in (*_SETTINGS, "memory_used_mib") if name in device.attributes}


def changed(before: Mapping[str, object], now: Mapping[str, object]) -> dict[str, object]:
    """Return the settings that differ from before, with their values before."""
    return {name: before[name] for name in _SETTINGS if name in before and now.get(name) != before[name]}


def gpu_of(spec: Spec) -> Gpu | None:
    """Return the GPU of a resource, or None if it is not an NVIDIA GPU, or its host is out of reach for good.

    A captured GPU is not in its host, so it only has the tool that the config names.
    """
    known, tools = known_of(spec), spec.config.tools
    if not is_nvidia_gpu(known) or (known["captured"] and not tools):
        return None
    there = shell(spec)
    return Gpu(there, tools, known) if there is not None else None
