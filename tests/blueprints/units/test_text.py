"""The text of units and the arguments of podman and firewalls: exact, and nothing gets out of its place in them."""

from __future__ import annotations

import base64
import shutil
import subprocess
from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from blueprints.units import Identity, Port, Unit, words
from blueprints.units.firewall import opening
from blueprints.units.podman import environment
from blueprints.units.text import command_line, unit_text
from drydock.core.errors import InvalidRequest
from tests.peers import require

UNIT = Unit(
    key="dd-x-1-l5", account="dd12-ab", cpu_millicores=1505, ram_mib=512, cpus="0-3,8", memory_nodes="0",
    devices=("/dev/nvidia0", "/dev/nvidiactl"), ports=(Port(number=8080), Port(number=5353, protocol="udp")),
)  # fmt: skip
FOLDER = "/var/lib/drydock-units/dd12-ab/jobs/dd-x-1-l5-j7"
ANYTHING = st.text(st.characters(codec="utf-8"), max_size=60)


def test_a_unit_limits_what_its_workload_may_use() -> None:
    assert (
        unit_text(UNIT, FOLDER, [UNIT.name, UNIT.folder, "32768"])
        == f"""\
[Unit]
Description=Drydock workload of lease dd-x-1-l5
[Service]
Type=exec
WorkingDirectory={FOLDER}
StandardInput=null
StandardOutput=null
Restart=no
TimeoutStopSec=10
Delegate=yes
OOMPolicy=continue
CPUAccounting=yes
MemoryAccounting=yes
IPAccounting=yes
CPUQuota=151%
AllowedCPUs=0-3,8
AllowedMemoryNodes=0
MemoryMax=512M
MemorySwapMax=0
DevicePolicy=closed
DeviceAllow=/dev/nvidia0 rwm
DeviceAllow=/dev/nvidiactl rwm
ExecStart="/bin/sh" "{FOLDER}/main" "drydock-lease-dd-x-1-l5.service" "/var/lib/drydock-units/dd12-ab" "32768"
"""
    )


def test_without_limits_a_unit_still_opens_no_other_devices() -> None:
    text = unit_text(Unit(key="l", account="a"), FOLDER)
    assert "DevicePolicy=closed\n" in text
    assert not {"CPUQuota", "AllowedCPUs", "AllowedMemoryNodes", "MemoryMax", "DeviceAllow"} & {
        line.partition("=")[0] for line in text.splitlines()
    }


def read_back(line: str) -> list[str]:
    """The words of a command line, as systemd.service(5) and systemd.syntax(7) describe them.

    Written anew here: specifiers and variables are what they would become, had they been read as such.
    """
    found, rest = [], line
    while rest:
        assert rest[0] == '"', rest
        word, place = "", 1
        while rest[place] != '"':
            one = rest[place]
            if one == "\\":
                assert rest[place + 1] in '\\"'
                one, place = rest[place + 1], place + 1
            elif one in "%$":
                assert rest[place + 1] == one, f"{one} would be read as a specifier or variable"
                place += 1
            word, place = word + one, place + 1
        found.append(word)
        rest = rest[place + 1 :]
        assert not rest or rest[0] == " "
        rest = rest[1:]
    return found


@given(st.lists(ANYTHING, min_size=1, max_size=5))
def test_words_are_read_as_they_were_given_or_refused(given) -> None:
    try:
        line = command_line("ExecStart", given)
    except InvalidRequest:
        assert any(not word or not word.isprintable() for word in given)
        return
    assert line.isprintable()
    assert read_back(line.removeprefix("ExecStart=")) == given


@given(st.sampled_from(["key", "account", "cpus", "memory_nodes"]), ANYTHING)
def test_no_value_adds_a_line_or_a_word(name, value) -> None:
    try:
        unit = replace(UNIT, **{name: value})
    except InvalidRequest:
        return
    before = unit_text(UNIT, FOLDER).splitlines()
    after = unit_text(unit, FOLDER).splitlines()
    assert [
        line.partition("=")[0] for line in after if line.partition("=")[0] not in ("AllowedCPUs", "AllowedMemoryNodes")
    ] == [
        line.partition("=")[0] for line in before if line.partition("=")[0] not in ("AllowedCPUs", "AllowedMemoryNodes")
    ]
    assert not set("%$\"'\\ \t") & set(value)


@given(ANYTHING)
def test_devices_and_ports_are_words_or_refused(value) -> None:
    for make in (lambda: replace(UNIT, devices=(value,)), lambda: Port.parse(value)):
        try:
            made = make()
        except InvalidRequest:
            continue
        said = unit_text(made, FOLDER) if isinstance(made, Unit) else str(made)
        assert value in said
        assert value.isascii()
        assert value.isprintable()
        assert " " not in value


@pytest.mark.parametrize("folder", ["/a\nUser=root", "/a\\", " /a", "/a\x7f"])
def test_a_folder_that_could_not_stand_on_its_line_is_refused(folder) -> None:
    with pytest.raises(InvalidRequest):
        unit_text(UNIT, folder)


def test_a_percent_sign_in_a_setting_is_no_specifier() -> None:
    assert "WorkingDirectory=/a%%n\n" in unit_text(UNIT, "/a%n")


@pytest.mark.parametrize("text", ["80/tcp", "1023/udp", "65536/tcp", "8080", "8080/sctp", "8080/tcp\n", "٨٠٨٠/tcp"])
def test_what_is_no_port(text) -> None:
    with pytest.raises(InvalidRequest):
        Port.parse(text)


def test_a_unit_is_stored_and_read_back() -> None:
    assert Unit.from_json(UNIT.to_json()) == UNIT


def test_the_arguments_of_the_firewall_are_words_of_their_own() -> None:
    assert opening(UNIT) == ["/var/lib/drydock-units/dd12-ab", "drydock dd-x-1-l5", "tcp", "8080", "udp", "5353"]


def test_a_container_with_devices_is_the_account_and_in_the_group_of_its_unit() -> None:
    found = words(
        UNIT, image="quay.io/a/b@sha256:" + 64 * "a", command=["sh", "-c", "echo $A"], cwd="/srv",
        identity=Identity(uid=1003, gid=1004), devices=["drydock.dev/gpu=gpu-0"],
    )  # fmt: skip
    assert found[:2] == ["/bin/sh", "-c"]
    assert found[3:] == [
        "sh", "podman", "/var/lib/drydock-units/dd12-ab", "/run/drydock-units/dd12-ab", "dd-x-1-l5",
        "quay.io/a/b@sha256:" + 64 * "a", "", "--rm", "--interactive", "--pull=never", "--log-driver=none",
        "--cgroups=split", "--network=host", "--security-opt=no-new-privileges", "--label", "drydock.lease=dd-x-1-l5",
        "--uidmap", "0:1003:1", "--gidmap", "0:1004:1",
        "--device", "drydock.dev/gpu=gpu-0", "--workdir", "/srv",
        "quay.io/a/b@sha256:" + 64 * "a", "sh", "-c", "echo $A",
    ]  # fmt: skip


def test_without_devices_a_container_has_all_users_in_a_range_of_its_account() -> None:
    found = words(UNIT, image="alpine", identity=Identity(uid=1003, gid=1004))
    assert found[found.index("--uidmap") : -1] == ["--uidmap", "0:65732608:65536", "--gidmap", "0:65732608:65536"]


def test_an_archive_is_known_by_its_hash_alone() -> None:
    sha256 = 64 * "b"
    found = words(UNIT, image="", archive=sha256)
    assert found[8:10] == [f"localhost/drydock:{sha256}", sha256]
    assert found[-1] == f"localhost/drydock:{sha256}"
    assert "--uidmap" not in found


def as_podman_reads(content: bytes) -> dict[str, str]:
    """The variables of a file for `--env-file`, as `ParseFile` in pkg/env/env.go of podman reads it."""
    found = {}
    for line in content.split(b"\n"):
        whole = line.removesuffix(b"\r").lstrip(b" \t")
        assert len(line) < 1 << 16, "bufio.Scanner reads no longer line"
        if whole and not whole.startswith(b"#"):
            name, equals, value = whole.decode().partition("=")
            assert equals, "podman would take the value from its own environment"
            found[name] = value
    return found


NAMES = st.from_regex(r"[A-Za-z_][A-Za-z0-9_]{0,20}", fullmatch=True)
VALUES = st.text(st.characters(codec="utf-8", exclude_characters="\0"), max_size=40)


@given(st.dictionaries(NAMES, VALUES | VALUES.map(lambda text: f"{text}\nmore\r"), max_size=5))
def test_variables_reach_the_container_as_they_were_given(variables) -> None:
    made = environment(variables)
    others = dict(line.split(" ") for line in made.values.decode().splitlines())
    decoded = {name: base64.b64decode(value).decode() for name, value in others.items()}
    assert as_podman_reads(made.plain) | decoded == variables
    assert not as_podman_reads(made.plain).keys() & decoded.keys()


def test_a_variable_that_is_too_long_for_a_line_is_no_line() -> None:
    made = environment({"A": 70_000 * "x", "B": "short"})
    assert made.plain == b"B=short\n"
    assert base64.b64decode(made.values.split()[1]) == 70_000 * b"x"


@given(st.integers(1000, 65_534), st.integers(1000, 65_534))
def test_no_two_accounts_share_a_uid_of_their_containers(one, other) -> None:
    ranges = [range(each.first_of_range, each.first_of_range + 65_536) for each in map(_identity, (one, other))]
    assert all(_identity(uid).mappable for uid in (one, other))
    assert ranges[1].stop < 1 << 32
    assert ranges[0].start > 65_535, "no account of the host is in it"
    assert one == other or ranges[0].stop <= ranges[1].start or ranges[1].stop <= ranges[0].start


def _identity(uid: int) -> Identity:
    return Identity(uid=uid, gid=uid)


@pytest.mark.parametrize("uid", [0, 999, 65_535, 710_000])
def test_accounts_without_a_range_of_their_own(uid) -> None:
    assert not _identity(uid).mappable


def test_systemd_finds_no_fault_in_a_unit(tmp_path) -> None:
    require("systemd-analyze")
    tmp_path.chmod(0o755)
    folder = tmp_path / "job"
    folder.mkdir()
    unit = replace(UNIT, devices=("/dev/null",))
    path = tmp_path / unit.name
    path.write_text(unit_text(unit, str(folder)))
    done = subprocess.run(
        [shutil.which("systemd-analyze") or "", "verify", "--man=no", str(path)], capture_output=True, text=True,
        timeout=30, check=False,
    )  # fmt: skip
    said = [line for line in done.stderr.splitlines() if unit.name in line]
    assert not said
    assert done.returncode == 0, done.stderr
