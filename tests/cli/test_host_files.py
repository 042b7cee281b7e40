"""Files with hosts from spreadsheets, Ironic and MAAS: what is read of them, and what is refused with its reason."""

from __future__ import annotations

import json

import pytest

from drydock.cli.hosts import imports, rows
from drydock.cli.hosts.imports import Source
from drydock.core.errors import InvalidRequest

SCHEMA = {
    "properties": {
        "name": {"type": "string"}, "address": {"type": "string"}, "host_keys": {"type": "array"},
        "serial": {"type": "string"}, "uuid": {"type": "string"}, "attributes": {"type": "object"},
        "traits": {"anyOf": [{"type": "array"}, {"type": "null"}]}, "bmc": {"type": "object"},
        "slots": {"type": "integer"}, "port": {"type": "integer"},
    }
}  # fmt: skip
WITH_PORTS = {"properties": {**SCHEMA["properties"], "ports": {"type": "array"}}}

NODES = [
    {
        "UUID": "a9e64be5-0000-4000-8000-000000000001", "Name": "rack1-u1", "Driver": "redfish",
        "Provisioning State": "available", "Instance UUID": None, "Maintenance": False, "Traits": ["CUSTOM_SSD", "x/y"],
        "Driver Info": {
            "redfish_address": "https://10.0.1.1", "redfish_system_id": "/redfish/v1/Systems/System.Embedded.1",
            "redfish_username": "root", "redfish_password": "******", "redfish_verify_ca": False,
        },
        "Properties": {"cpu_arch": "x86_64", "cpus": 64, "memory_mb": 262144, "local_gb": 480, "vendor": "dell"},
    },
    {
        "UUID": "a9e64be5-0000-4000-8000-000000000002", "Name": None, "Driver": "ipmi",
        "Provisioning State": "manageable",
        "Driver Info": {
            "ipmi_address": "bmc-2.example", "ipmi_port": 6230, "ipmi_username": "ADMIN", "ipmi_password": "secret-2",
            "ipmi_cipher_suite": "17", "ipmi_priv_level": "OPERATOR",
        },
        "Maintenance": True, "Maintenance Reason": "fan", "Properties": {},
    },
    {
        "UUID": "a9e64be5-0000-4000-8000-000000000003", "Name": "used", "Driver": "redfish",
        "Provisioning State": "active", "Driver Info": {"redfish_address": "10.0.1.3"}, "Properties": {},
    },
    {
        "UUID": "a9e64be5-0000-4000-8000-000000000004", "Name": "old-ilo", "Driver": "ilo",
        "Provisioning State": "available", "Driver Info": {"ilo_address": "10.0.1.4"}, "Properties": {},
    },
]  # fmt: skip
PORTS = [
    {
        "UUID": "p1", "Address": "52:54:00:00:00:01", "Node UUID": NODES[0]["UUID"],
        "Local Link Connection": {"switch_id": "aa:bb", "port_id": "Eth1/1", "switch_info": "tor-1"},
    },
    {"UUID": "p2", "Address": "52:54:00:00:00:02", "Node UUID": NODES[1]["UUID"], "Local Link Connection": {}},
]  # fmt: skip
UNKNOWN = {"system_vendor": "Unknown", "system_serial": "Unknown"}
MACHINES = [
    {
        "system_id": "abc123", "hostname": "swift-mole", "status_name": "Ready", "power_type": "redfish",
        "locked": False, "architecture": "amd64/generic", "pool": {"name": "p"},
        "hardware_uuid": "4c4c4544-0051-3510-8052-b4c04f4a5332",
        "hardware_info": {"system_vendor": "Dell Inc.", "system_serial": "7XK2Q03"}, "zone": {"name": "hall-b"},
        "tag_names": ["ssd", "two words"], "ip_addresses": ["10.0.0.9", "fe80::1"], "owner_data": {"rack": "R7"},
        "interface_set": [{"mac_address": "52:54:00:00:01:01"}, {"mac_address": "52:54:00:00:01:02"}],
    },
    {
        "system_id": "def456", "hostname": "calm-crow", "status_name": "New", "power_type": "ipmi", "locked": False,
        "architecture": "amd64/generic", "hardware_info": UNKNOWN, "zone": {"name": "default"}, "ip_addresses": [],
    },
    {
        "system_id": "ghi789", "hostname": "busy-bee", "status_name": "Deployed", "power_type": "ipmi", "locked": True,
        "hardware_info": UNKNOWN,
    },
    {
        "system_id": "jkl012", "hostname": "virsh-1", "status_name": "Ready", "power_type": "virsh",
        "hardware_info": {"system_serial": "To be filled by O.E.M."},
    },
]  # fmt: skip
POWER = {
    "abc123": {"power_address": "10.0.2.1", "power_user": "maas", "power_pass": "pw-1", "node_id": "1"},
    "def456": {
        "power_driver": "LAN_2_0", "power_address": "10.0.2.2", "power_user": "maas", "power_pass": "pw-2",
        "cipher_suite_id": "3", "privilege_level": "ADMIN", "mac_address": "52:54:00:00:02:02",
    },
    "ghi789": {"power_address": "10.0.2.3"}, "jkl012": {"power_address": "qemu+ssh://host/system"},
}  # fmt: skip


@pytest.fixture
def read(tmp_path):
    """Read an import from texts or objects."""

    def write(name, content):
        path = tmp_path / name
        path.write_text(content if isinstance(content, str) else json.dumps(content))
        return str(path)

    def make(content, *, schema=SCHEMA, common=None, **more):
        files = {name: write(name, more.pop(name)) for name in ("ports", "power", "fields") if name in more}
        return imports.read(Source(file=write("hosts", content), **files, **more), schema, common or {})

    return make


def problems(found):
    return {row.name: row.problem for row in found if row.problem}


def test_nodes_of_ironic_become_registrations(read):
    found = read(NODES, ports=PORTS, schema=WITH_PORTS)
    first, second = found[:2]
    assert first.registration == {
        "name": "rack1-u1", "bmc": {"driver": "redfish", "address": "10.0.1.1", "system": "System.Embedded.1"},
        "attributes": {"arch": "x86_64"}, "traits": ["CUSTOM_SSD"],
        "ports": [{"mac": "52:54:00:00:00:01", "switch": "tor-1", "port": "Eth1/1"}],
    }  # fmt: skip
    assert first.notes == ["the password of its BMC is masked; the credential of the blueprint is used"]
    assert second.registration == {
        "name": NODES[1]["UUID"], "credential": {"username": "ADMIN", "password": "secret-2"},
        "bmc": {
            "driver": "ipmi", "address": "bmc-2.example", "port": 6230, "cipher_suite": "17", "privilege": "operator",
        },
    }  # fmt: skip
    assert second.notes == ["it is in maintenance: fan"]
    assert problems(found) == {
        "used": "it is active in Ironic; release it in Ironic first, or import it with --in-use",
        "old-ilo": "its driver info has neither redfish_address nor ipmi_address (driver ilo); register it by CSV with "
        "bmc.driver and bmc.address",
    }
    assert [row.where for row in found] == ["node 1", "node 2", "node 3", "node 4"]


def test_a_switch_port_with_a_name_that_cannot_be_registered_is_left_out(read):
    link = {"switch_info": "tor 1; rm", "port_id": "Eth1/1"}
    first, *_ = read(NODES, ports=[{**PORTS[0], "Local Link Connection": link}], schema=WITH_PORTS)
    assert "ports" not in first.registration
    assert "the switch port of 52:54:00:00:00:01 was left out" in first.notes[-1]


def test_a_kind_without_ports_gets_none(read):
    assert not any("ports" in row.registration for row in read(NODES, ports=PORTS))


def test_the_spelling_of_ironics_api_is_read_too(read):
    node = {
        "uuid": "u", "name": "n", "driver": "redfish", "provision_state": "available", "instance_uuid": "i",
        "driver_info": {"redfish_address": "https://[2001:db8::7]:8443", "redfish_system_id": "/redfish/v1/Systems/1"},
    }  # fmt: skip
    (found,) = read([node])
    assert found.registration["bmc"] == {
        "driver": "redfish", "address": "2001:db8::7", "port": 8443, "system": "1",
    }  # fmt: skip
    assert "with an instance" in found.problem
    assert read([node], in_use=True)[0].problem == ""


def test_machines_of_maas_become_registrations(read):
    found = read(MACHINES, power=POWER)
    first, second = found[:2]
    assert first.registration == {
        "name": "swift-mole", "serial": "7XK2Q03", "uuid": "4c4c4544-0051-3510-8052-b4c04f4a5332",
        "bmc": {"driver": "redfish", "address": "10.0.2.1", "system": "1"},
        "credential": {"username": "maas", "password": "pw-1"}, "address": "10.0.0.9", "traits": ["ssd"],
        "attributes": {"arch": "amd64", "zone": "hall-b", "rack": "R7"},
    }  # fmt: skip
    assert second.registration["bmc"] == {
        "driver": "ipmi", "address": "10.0.2.2", "cipher_suite": "3", "privilege": "administrator",
    }  # fmt: skip
    assert (second.registration["attributes"], second.notes) == ({"arch": "amd64"}, [])
    assert problems(found) == {
        "busy-bee": "it is deployed, and locked in MAAS; release it in MAAS first, or import it with --in-use",
        "virsh-1": "its power type 'virsh' is neither redfish nor ipmi; register it by CSV with bmc.driver and "
        "bmc.address",
    }
    assert found[3].notes == ["serial 'To be filled by O.E.M.' is a placeholder and was left out"]


def test_machines_of_maas_need_their_power_parameters(read):
    found = read(MACHINES)
    assert found[0].problem.startswith("`maas $PROFILE machines read` does not print how BMCs are reached; add --power")
    assert "does not have its system id abc123" in read(MACHINES, power={"x": {}})[0].problem


CSV = """\ufeffname, bmc.driver, bmc.address, serial, traits, host_keys, slots, credential.password
alpha,redfish,10.0.1.1,7XK2Q03,ssd; gpu,"ssh-ed25519 AAAA a@b",1,hunter2

beta,ipmi,10.0.1.2,0123456789,,,,
gamma,redfish,10.0.1.3,To be filled by O.E.M.,,,,
delta,redfish,10.0.1.4,,,,,,too many
epsilon,redfish,10.0.1.1,,,,,
zeta,redfish,10.0.1.6,7xk2q03,"[""json""]",,,
"""


def test_lines_of_a_spreadsheet_become_registrations(read):
    found = read(CSV)
    assert found[0].registration == {
        "name": "alpha", "bmc": {"driver": "redfish", "address": "10.0.1.1"}, "serial": "7XK2Q03",
        "traits": ["ssd", "gpu"], "host_keys": ["ssh-ed25519 AAAA a@b"], "slots": "1",
        "credential": {"password": "hunter2"},
    }  # fmt: skip
    assert {row.where: row.problem for row in found if row.problem} == {
        "line 4": "serial: '0123456789' is a placeholder that many machines have; leave it empty",
        "line 5": "serial: 'To be filled by O.E.M.' is a placeholder that many machines have; leave it empty",
        "line 6": "it has 9 values, but the first line has 8 fields",
        "line 7": "line 2 (alpha) has the same BMC redfish 10.0.1.1 443",
        "line 8": "line 2 (alpha) has the same serial 7xk2q03",
    }
    assert found[5].registration["traits"] == ["json"]


def test_fields_of_a_second_file_and_of_the_command_line_are_added(read):
    further = "name,address,attributes.rack\nrack1-u1,10.0.0.1,R7\n"
    common = {"attributes": {"position": "1"}, "slots": 1}
    found = read(NODES[:2], fields=further, common=common)
    assert found[0].registration["address"] == "10.0.0.1"
    assert found[0].registration["attributes"] == {"arch": "x86_64", "rack": "R7", "position": "1"}
    assert (found[1].registration["slots"], "address" in found[1].registration) == (1, False)
    with pytest.raises(InvalidRequest, match="has no host 'other'"):
        read(NODES[:2], fields="name,address\nother,10.0.0.1\n")
    with pytest.raises(InvalidRequest, match="line 3: the host occurs twice"):
        read(NODES[:2], fields="name,address\nrack1-u1,10.0.0.1\nrack1-u1,10.0.0.2\n")


def test_machines_with_the_same_port_are_refused_and_placeholders_ignored(read):
    twin = {**MACHINES[1], "hostname": "twin", "system_id": "t", "interface_set": MACHINES[0]["interface_set"]}
    zero = {
        **MACHINES[1],
        "hostname": "zero",
        "system_id": "z",
        "interface_set": [{"mac_address": "00:00:00:00:00:00"}],
    }
    power = {**POWER, "t": {"power_address": "10.9.9.1"}, "z": {"power_address": "10.9.9.2"}}
    found = read([MACHINES[0], twin, zero], power=power)
    assert problems(found) == {"twin": "machine 1 (swift-mole) has the same MAC address 52:54:00:00:01:01"}
    assert found[2].notes == ["the MAC address '00:00:00:00:00:00' is none, or a placeholder"]


@pytest.mark.parametrize(
    ("info", "says"),
    [
        ({"redfish_address": "ftp://10.0.0.1"}, "neither https nor http"),
        ({"redfish_address": "https://10.0.0.1/prefix"}, "a path of its own"),
        ({"redfish_address": "https://me:secret@10.0.0.1"}, "contains a login"),
        ({"redfish_address": "https://10.0.0.1:99999"}, "invalid port"),
        ({"redfish_address": "https://[::1"}, "is not an address"),
        ({"ipmi_address": "10.0.0.1", "ipmi_port": "x"}, "'x' is not a UDP port"),
        ({"ipmi_address": "10.0.0.1", "ipmi_cipher_suite": 0.5}, "cipher suite '0.5' is not supported"),
        ({}, "neither redfish_address nor ipmi_address"),
    ],
)
def test_an_address_that_cannot_be_used_is_the_problem_of_its_node_alone(read, info, says):
    found = read([{**NODES[0], "Driver Info": info}, NODES[1]])
    assert says in found[0].problem
    assert "secret" not in found[0].problem
    assert found[1].problem == ""


@pytest.mark.parametrize(
    ("content", "more", "says"),
    [
        ("", {}, "it is empty"),
        ("name,bmc.driver\n", {}, "it contains no hosts"),
        ("name,colour\na,b\n", {}, "unknown field 'colour'. Valid fields: address, attributes, bmc"),
        ("name,name\na,b\n", {}, "'name' occurs twice"),
        ('name\n"a\n', {}, "line 2: unexpected end of data"),
        ("[1]", {}, "it is not a list of objects"),
        ("[]", {}, "it contains no hosts"),
        ("{}", {}, "it is not a list of objects"),
        ("[" * 100_000, {}, "nested too deeply"),
        ('[{"a": ]', {}, "is not valid JSON"),
        ([{"a": 1}], {}, "neither the output of"),
        ("name\na\n", {"ports": []}, "--ports does not apply"),
        (NODES, {"power": {}}, "--power does not apply"),
        (MACHINES, {"ports": []}, "--ports does not apply"),
        (MACHINES, {"power": []}, "it is not the object that `maas"),
        (NODES, {"format": "xml"}, "'xml' is not a format"),
    ],
)  # fmt: skip
def test_a_file_that_is_unusable_as_a_whole_is_refused(read, content, more, says):
    with pytest.raises(InvalidRequest) as refused:
        read(content, **more)
    assert says in str(refused.value)


def test_the_size_and_the_number_of_hosts_are_bounded(read, monkeypatch, tmp_path):
    monkeypatch.setattr(rows, "MOST", 2)
    monkeypatch.setattr("drydock.cli.hosts.spreadsheet.MOST", 2)
    for many in ("name\na\nb\nc\n", NODES):
        with pytest.raises(InvalidRequest, match="at most 2 can be imported"):
            read(many)
    monkeypatch.setattr(rows, "LARGEST", 10)
    with pytest.raises(InvalidRequest, match="is larger than"):
        read("name\naaaaaaaa\n")
    (tmp_path / "binary").write_bytes(b"name\n\xff\n")
    with pytest.raises(InvalidRequest, match="not UTF-8 text: byte 6"):
        imports.read(Source(file=str(tmp_path / "binary")), SCHEMA, {})
    with pytest.raises(InvalidRequest, match="No such file"):
        imports.read(Source(file=str(tmp_path / "none")), SCHEMA, {})


def test_secrets_are_not_shown(read):
    found = read(NODES)[1].registration
    assert "secret-2" not in json.dumps(imports.shown(found))
    assert imports.shown(found)["credential"] == ["password", "username"]
