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
    <mig_mode><current_mig>@mig@</current_mig><pending_mig>@pending@</pending_mig></mig_mode>
    <mig_devices>@slices@</mig_devices>
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
  -L)
    echo "GPU 0: Tesla P100-PCIE-16GB (UUID: @uuid@)"
    n=0
    while read -r instance profile; do
      [ -z "$instance" ] || printf '  MIG %-11s Device %2d: (UUID: MIG-%s-%s)\n' "$profile" $n $instance "$(value made)"
      n=$((n + 1))
    done <instances;;
  -mig)
    case $2 in 1) wanted=Enabled;; 0) wanted=Disabled;; esac
    echo $wanted >pending
    if [ -e needs_reset ] || [ -e needs_reboot ]; then
      echo "Warning: MIG mode is in pending enable state for GPU 00000000:06:00.0:In use by another client"
      echo "Reboot the system or try nvidia-smi --gpu-reset to make MIG mode effective on GPU 00000000:06:00.0"
    else
      echo $wanted >mig; : >instances
      echo "Enabled MIG Mode for GPU 00000000:06:00.0"
    fi
    echo "All done.";;
  mig)
    [ "$2" = -i ] && { echo "$3" >asked; shift 3; }
    [ "$(value mig)" = Enabled ] || { echo "No MIG-enabled devices found." >&2; exit 6; }
    case $1 in
      -lgip) cat profiles;;
      -dci) [ -s instances ] || { echo "No compute instances found: Not Found" >&2; exit 6; };;
      -dgi)
        [ -s instances ] || { echo "No GPU instances found: Not Found" >&2; exit 6; }
        [ ! -e in_use ] || { echo "Unable to destroy GPU instance: In use by another client" >&2; exit 19; }
        : >instances;;
      -cgi)
        wanted=$(echo "$2" | tr , ' ')
        [ $(echo $wanted | wc -w) -le "$(value most)" ] ||
          { echo "Unable to create a GPU instance: Insufficient Resources" >&2; exit 19; }
        echo $(($(value made) + 1)) >made
        n=7; for each in $wanted; do echo "$n $each" >>instances; n=$((n + 1)); done;;
    esac;;
  -q)
    slices= n=0
    while read -r instance profile; do
      [ -z "$instance" ] || slices="$slices<mig_device><index>$n</index><gpu_instance_id>$instance</gpu_instance_id>\
<compute_instance_id>0</compute_instance_id><fb_memory_usage><total>4864 MiB</total></fb_memory_usage></mig_device>"
      n=$((n + 1))
    done <instances
    sed -e "s,@mig@,$(value mig)," -e "s,@pending@,$(value pending)," -e "s,@slices@,$slices," \
      -e "s/@used@/$(value used)/" -e "s/@compute_mode@/$(value compute_mode)/" -e "s/@ecc@/$(value ecc)/" \
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
    echo 2 >used; rm -f locked; echo reset >>resets
    [ -e needs_reboot ] || { value pending >mig; : >instances; };;
  *) echo "Unknown option $1" >&2; exit 2;;
esac
"""
FRESH = {
    "used": "2", "compute_mode": "Default", "power": "250.00", "processes": "", "ecc": "0", "mig": "N/A",
    "pending": "N/A", "instances": "",
}  # fmt: skip
PROFILES = """+-------------------------------------------------------------------------------+
| GPU instance profiles:                                                        |
| GPU   Name               ID    Instances   Memory     P2P    SM    DEC   ENC  |
|                                Free/Total   GiB              CE    JPEG  OFA  |
|===============================================================================|
|   0  MIG 1g.5gb          19     7/7        4.75       No     14     0     0   |
|                                                               1     0     0   |
+-------------------------------------------------------------------------------+
|   0  MIG 1g.5gb+me       20     1/1        4.75       No     14     1     0   |
|                                                               1     1     1   |
+-------------------------------------------------------------------------------+
|   0  MIG 3g.20gb          9     2/2        19.62      No     42     2     0   |
|                                                               3     0     0   |
+-------------------------------------------------------------------------------+
"""
"""The form in which `nvidia-smi mig -lgip` lists what an A100 with 40 GB offers, shortened."""
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
        self.set(**FRESH, made="0", most="7", profiles=PROFILES)
        (folder / "nvidia-smi").write_text(_PROGRAM.replace("@uuid@", captured.UUID))
        (folder / "nvidia-smi").chmod(0o755)

    def set(self, **values: str) -> None:
        """Change the state, or make files that change the program's behaviour."""
        for name, value in values.items():
            (self.state / name).write_text(value + "\n")
            (self.state / name).chmod(0o666)

    def can_be_split(self, *profiles: str) -> None:
        """Let the GPU have MIG mode, with these slices."""
        mode = "Enabled" if profiles else "Disabled"
        self.set(mig=mode, pending=mode)
        instances = "".join(f"{n} {profile}\n" for n, profile in enumerate(profiles, 3))
        (self.state / "instances").write_text(instances)

    def profiles(self) -> list[str]:
        """The profiles of the slices that are there."""
        return [line.split()[1] for line in (self.state / "instances").read_text().splitlines() if line]

    def read(self) -> Mapping[str, str]:
        """Return the state, with the files that are there only for a while."""
        names = (*FRESH, "locked", "draining", "in_use", "resets")
        return {name: (self.state / name).read_text().strip() for name in names if (self.state / name).exists()}
