"""A separate file system for storage, in a file beside its folder, so that the kernel itself enforces the size."""

from __future__ import annotations

from blueprints.layered.account import Account

MIB_AT_LEAST = 8

_POINTS = r"""
mounted() {
  while read -r _ _ _ _ point _; do [ "$(printf %b "$point")" = "$1" ] && return 0; done </proc/self/mountinfo
  return 1
}
"""
# Root works in a folder that root alone can change: the home of the account, which is root's. What is between the two
# paths and the kernel is held open and looked at all the same: an image that is anything but root's own plain file, or
# a folder that is not where it should be, is refused.
_OVER = (
    _POINTS
    + r"""
dir=$1 image=$2
no() { echo "no $1"; exit 0; }
mounted "$dir" && { echo loop; exit 0; }
PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin
for each in mkfs.ext4 e2fsck losetup fallocate mount; do command -v $each >/dev/null || no "there is no $each"; done
case $(stat -c '%u %A' -- "${dir%/*}") in "0 d"????-??-?) ;; *) no "the home is not root's";; esac
over() {
  [ -d "$dir" ] && [ ! -L "$dir" ] || no "the folder is missing"
  [ -f "$image" ] && [ ! -L "$image" ] || no "its image is missing"
  exec 3<"$image" 4<"$dir" || no "its image cannot be read"
  [ "$(stat -L -c '%u %a %h %d:%i' /proc/$$/fd/3)" = "0 600 1 $(stat -c '%d:%i' -- "$image")" ] ||
    no "its image is not root's own"
  [ "$(readlink /proc/$$/fd/4)" = "$dir" ] || no "the folder is not where it was"
  loop=$(losetup --find --show /proc/$$/fd/3 2>&1) || no "$loop"
  said=$(e2fsck -p "$loop" 2>&1)
  [ $? -lt 4 ] || { losetup -d "$loop"; no "$said"; }
  said=$(mount -c -t ext4 -o nosuid,nodev,noatime -- "$loop" /proc/$$/fd/4 2>&1) || { losetup -d "$loop"; no "$said"; }
  # Given back by itself when the file system is unmounted.
  losetup -d "$loop"
}
"""
)
# Only root may write the image, and only root's mount reads it; what is in it can be no device and no setuid program.
_MAKE = (
    _OVER
    + r"""
mib=$3 uid=$4 gid=$5
umask 077
rm -f -- "$image" "$image.new"
trap 'rm -f -- "$image.new"' EXIT
if ! said=$(fallocate -l "${mib}MiB" -- "$image.new" 2>&1); then
  # Its words depend on the locale and its exit code is always 1: the disk is asked. The file system itself needs some.
  rm -f -- "$image.new"
  left=$(df -Pk -- "${image%/*}" | { read -r _; read -r _ _ _ left _; echo "$left"; })
  [ "${left:-0}" -gt $((mib * 1040 + 1024)) ] || { echo full; exit 0; }
  no "$said"
fi
said=$(mkfs.ext4 -q -F -m 0 -O '^has_journal' -E "root_owner=$uid:$gid,nodiscard" -- "$image.new" 2>&1) || no "$said"
mv -T -- "$image.new" "$image" || no "the image cannot be put in place"
no() { rm -f -- "$image"; echo "no $1"; exit 0; }
over
rmdir -- "$dir/lost+found"
chmod 700 -- "$dir"
echo loop
"""
)
_AGAIN = _OVER + "over\necho loop\n"
_END = (
    _POINTS
    + r"""
while read -r _ _ _ _ point _; do
  point=$(printf %b "$point")
  case $point in "$1"/*) umount -l -- "$point" 2>/dev/null;; esac
done </proc/self/mountinfo
mounted "$1" && umount -- "$1" 2>/dev/null
mounted "$1" && umount -l -- "$1"
mounted "$1" && { echo 1; exit 0; }
# Its blocks are in use as long as its device is: whoever has something open there keeps it. The kernel takes a device
# down in the background, so it is looked at for a second.
PATH=$PATH:/usr/local/sbin:/usr/sbin:/sbin
device() { [ -e "$2" ] && command -v losetup >/dev/null 2>&1 && losetup -j "$2" 2>/dev/null | grep -q .; }
n=0
while device "$@"; do
  n=$((n + 1))
  [ $n -lt 10 ] || { echo 1; exit 0; }
  sleep 0.1 2>/dev/null || sleep 1
done
rm -f -- "$2" "$2.new"
echo 0
"""
)


class DiskFull(Exception):
    """The host has no room for storage of this size."""


def image_mib(disk_mib: int) -> int:
    """Return the size of the image file for `disk_mib` of contents plus the overhead of the file system."""
    return max(MIB_AT_LEAST, disk_mib + disk_mib // 20 + 4)


def make(there: Account, folder: str, disk_mib: int) -> str:
    """Mount a file system over the folder.

    Return why that is not possible, or an empty string if it is mounted. May be repeated. Raises DiskFull.
    """
    said = there.run(_MAKE, folder, f"{folder}.img", str(image_mib(disk_mib)), there.uid, there.gid).strip()
    if said == "full":
        raise DiskFull
    return _reason(said)


def again(there: Account, folder: str) -> str:
    """Mount the existing file system on the folder again, for example after a reboot of the host.

    Return why that failed, or an empty string.
    """
    return _reason(there.run(_AGAIN, folder, f"{folder}.img").strip())


def end(there: Account, folder: str) -> bool:
    """Unmount and remove the file system. Return whether it and its device are gone; open files keep them."""
    return there.run(_END, folder, f"{folder}.img").split() == ["0"]


def _reason(said: str) -> str:
    return "" if said == "loop" else said.removeprefix("no ")
