"""A program that stands for nvidia-smi with one GPU. It keeps its state in files beside it."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path

from drydock.demo import captured

_XML = f"""<?xml version="1.0" ?>
<!DOCTYPE nvidia_smi_log SYSTEM "nvsmi_device_v12.dtd">
<nvidia_smi_log>
  <driver_version>535.54.03</driver_version>
  <gpu id="0000{captured.GPU}">
    <product_name>Tesla P100-PCIE-16GB</product_name>
    <serial>0423718026114</serial><uuid>{captured.UUID}</uuid><minor_number>0</minor_number>
    <fb_memory_usage><total>16384 MiB</total><used>@used@ MiB</used></fb_memory_usage>
    <compute_mode>@compute_mode@</compute_mode>
    <gpu_power_readings><current_power_limit>@power@ W</current_power_limit></gpu_power_readings>
    <ecc_errors><volatile><dram_uncorrectable>@ecc@</dram_uncorrectable></volatile></ecc_errors>
    <processes>@processes@</processes>
  </gpu>
</nvidia_smi_log>
"""
_PROGRAM = r"""#!/bin/sh
cd "${0%/*}/state" || exit 9
[ ! -e hang ] || exec sleep 60
value() { cat "$1"; }
[ "$1" != -i ] || { echo "$2" >asked 2>/dev/null; shift 2; }
case $1 in
  -L) echo "GPU 0: Tesla P100-PCIE-16GB (UUID: @uuid@)";;
  -q)
    sed -e "s/@used@/$(value used)/" -e "s/@compute_mode@/$(value compute_mode)/" -e "s/@ecc@/$(value ecc)/" \
      -e "s/@power@/$(value power)/" -e "s,@processes@,$(value processes)," template
    # Memory that the driver still holds for a moment after its process.
    [ ! -e draining ] || { echo 2 >used; rm -f draining; };;
  -c)
    case $2 in
      0|DEFAULT) echo Default >compute_mode;;
      3|EXCLUSIVE_PROCESS) echo Exclusive_Process >compute_mode;;
      2|PROHIBITED) echo Prohibited >compute_mode;;
      *) echo "Invalid combination of input arguments." >&2; exit 2;;
    esac;;
  -pl) echo "$2.00" >power;;
  -rgc) rm -f locked;;
  -rmc) echo "Setting locked Memory clocks is not supported for GPU 00000000:06:00.0." >&2; exit 3;;
  -rac) ;;
  --gpu-reset)
    [ ! -e in_use ] || { echo "The following GPUs could not be reset: in use by another client." >&2; exit 255; }
    echo 2 >used; rm -f locked; echo reset >>resets;;
  *) echo "Unknown option $1" >&2; exit 2;;
esac
"""
FRESH = {"used": "2", "compute_mode": "Default", "power": "250.00", "processes": "", "ecc": "0"}
PROCESS = "<process_info><pid>7<\\/pid><type>C<\\/type><used_memory>9 MiB<\\/used_memory><\\/process_info>"


class FakeSmi:
    """The program `folder/nvidia-smi`, and its state."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.state = folder / "state"
        self.state.mkdir(parents=True)
        for each in (folder, self.state):
            each.chmod(0o777)
        (self.state / "template").write_text(_XML)
        self.set(**FRESH)
        (folder / "nvidia-smi").write_text(_PROGRAM.replace("@uuid@", captured.UUID))
        (folder / "nvidia-smi").chmod(0o755)

    def set(self, **values: str) -> None:
        """Change the state, or make files that change the program's behaviour."""
        for name, value in values.items():
            (self.state / name).write_text(value + "\n")
            (self.state / name).chmod(0o666)

    def read(self) -> Mapping[str, str]:
        """Return the state, with the files that are there only for a while."""
        names = (*FRESH, "locked", "draining", "in_use", "resets")
        return {name: (self.state / name).read_text().strip() for name in names if (self.state / name).exists()}
