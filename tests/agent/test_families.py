"""The drivers of device families, on hand-written trees: no capture here has PF and VFs, QAT, FPGAs, DPUs or NPUs."""

from __future__ import annotations

import json

import pytest

from drydock_agent import FolderTree, Readiness, scan
from drydock_agent.names import PciNames
from tests.agent import captured
from tests.agent.hand import Hand


def test_a_pf_knows_its_vfs_and_a_vf_is_a_part_and_never_a_whole_device():
    hand = Hand()
    bridge = "0000:00:01.0"
    hand.function(bridge, "8086:3c02", "060400", "pcieport", max_link_width="8")
    pf = hand.function("0000:02:00.0", "8086:159b", "020000", "ice", bridge, sriov_totalvfs="64", sriov_numvfs="2",
                       current_link_width="4", max_link_width="16", current_link_speed="8.0 GT/s PCIe")  # fmt: skip
    for n in (0, 1):
        vf = hand.function(f"0000:02:01.{n}", "8086:1889", "020000", "iavf" if n else "vfio-pci", bridge)
        hand.links |= {f"{pf}/virtfn{n}": f"../0000:02:01.{n}", f"{vf}/physfn": "../0000:02:00.0"}
    hand.links["sys/class/net/eth2"] = f"../../../{pf}/net/eth2"
    hand.files |= {f"{pf}/net/eth2/{name}": text for name, text in (
        ("address", "b4:96:91:a5:c8:d4\n"), ("addr_assign_type", "0\n"), ("speed", "25000\n"))}  # fmt: skip
    hardware = hand.scan()
    port, first, second = (hardware.device(one) for one in ("0000:02:00.0", "0000:02:01.0", "0000:02:01.1"))
    assert (port.total_vfs, port.attributes["enabled_vfs"], port.vfs) == (64, 2, ("0000:02:01.0", "0000:02:01.1"))
    assert (port.device_class, port.role, port.parent, port.root) == ("nic", "", bridge, "pci0000:00")
    assert (port.identities, port.attributes["speed_mbits"]) == ({"mac": "b4:96:91:a5:c8:d4"}, 25000)
    assert port.problems == ("The PCIe link has 4 lanes; 8 are possible.",)
    assert {(one.device_class, one.role, one.part_of) for one in (first, second)} == {("vf", "part", port.id)}
    assert (first.reason, second.readiness) == ("The device is bound to vfio-pci, for use in a guest.", Readiness.READY)


def test_a_vf_in_a_guest_is_known_by_its_id_although_its_pf_is_not_there():
    hand = Hand()
    hand.function("0000:05:00.0", "15b3:101e", "020000", "mlx5_core")
    hand.function("0000:06:00.0", "8086:1520", "020000", "igbvf")
    assert {(one.device_class, one.role, one.part_of) for one in hand.scan().devices} == {("vf", "part", "")}


def test_a_card_that_carries_the_default_route_is_not_leased_also_below_a_bridge():
    hand = Hand()
    for bus, name in (("02", "eth0"), ("03", "eth1")):
        folder = hand.function(f"0000:{bus}:00.0", "8086:1521", "020000", "igb")
        hand.links[f"sys/class/net/{name}"] = f"/{folder}/net/{name}"
        hand.files[f"{folder}/net/{name}/address"] = "00:00:00:00:00:00\n"
        if name == "eth0":
            hand.links[f"{folder}/net/{name}/upper_br0"] = "/sys/devices/virtual/net/br0"
    hand.files["proc/net/route"] = (
        "Iface\tDestination\tGateway\tFlags\tRefCnt\tUse\tMetric\tMask\n"
        "br0\t00000000\t0100A8C0\t0003\t0\t0\t0\t00000000\n"
        "eth1\t0000A8C0\t00000000\t0001\t0\t0\t0\t00FFFFFF\n"
    )
    used, free = hand.scan().devices
    assert (used.readiness, used.reason) == (Readiness.UNSUPPORTED, "The host's default route uses eth0.")
    assert (free.readiness, free.identities) == (Readiness.READY, {})


@pytest.mark.parametrize(
    ("device", "driver", "files", "device_class", "readiness"),
    [
        ("4940", "4xxx", {"qat__state": "up", "qat__cfg_services": "sym;asym"}, "qat", "ready"),
        ("4940", "4xxx", {"qat__state": "down"}, "qat", "setup_required"),
        ("37c8", "c6xx", {}, "qat", "ready"),
        ("37c8", "", {}, "qat", "setup_required"),
        ("9999", "420xx", {}, "qat", "ready"),
        ("4941", "vfio-pci", {}, "vf", "ready"),
    ],
)
def test_qat_is_found_by_class_and_driver(device, driver, files, device_class, readiness):
    hand = Hand()
    hand.function("0000:6b:00.0", f"8086:{device}", "0b4000", driver, **files)
    (found,) = hand.scan().devices
    assert (found.kind, found.device_class, found.readiness) == ("coprocessor", device_class, readiness)
    assert found.role == ("part" if device_class == "vf" else "lease_candidate")


@pytest.mark.parametrize(
    ("driver", "state", "queue", "readiness"),
    [
        ("", "", "", "setup_required"),
        ("idxd", "disabled", "", "setup_required"),
        ("idxd", "enabled", "disabled", "setup_required"),
        ("idxd", "enabled", "enabled", "ready"),
    ],
)
def test_dsa_is_ready_when_a_user_queue_is_enabled(driver, state, queue, readiness):
    hand = Hand()
    folder = hand.function("0000:6a:01.0", "8086:0b25", "088000", driver)
    if driver:
        hand.links |= {
            "sys/bus/dsa/devices/dsa0": f"/{folder}/dsa0",
            "sys/bus/dsa/devices/wq0.0": f"/{folder}/dsa0/wq0.0",
        }
        hand.files |= {f"{folder}/dsa0/state": state, f"{folder}/dsa0/max_work_queues": "8",
                       f"{folder}/dsa0/wq0.0/state": queue, f"{folder}/dsa0/wq0.0/type": "user"}  # fmt: skip
    (found,) = hand.scan().devices
    assert (found.device_class, found.role, found.readiness) == ("dsa", "lease_candidate", readiness)
    if readiness == "ready":
        assert (found.nodes, found.attributes["work_queues"]) == (("/dev/dsa/wq0.0",), ("wq0.0",))


def test_fpgas_of_dfl_have_their_interface_and_afu_ids():
    hand = Hand()
    folder = hand.function("0000:3a:00.0", "8086:0b2b", "120000", "dfl-pci")
    hand.links |= {
        "sys/class/fpga_region/region0": f"/{folder}/fpga_region/region0",
        "sys/class/fpga_region/region1": f"/{folder}/fpga_region/region0/dfl-fme.0/r.1/fpga_region/region1",
        "sys/class/fpga_manager/fpga0": f"/{folder}/fpga_region/region0/dfl-fme.0/dfl-fme-mgr.1/fpga_manager/fpga0",
    }
    region = f"{folder}/fpga_region/region0"
    hand.files |= {
        f"{region}/dfl-fme.0/bitstream_id": "0x23000410010309\n", f"{region}/dfl-port.0/afu_id": "d8424dc4a4a3c413\n",
        f"{region}/dfl-fme.0/r.1/fpga_region/region1/compat_id": "9346116d892453c1bb5be4d1e0cd73dd\n",
        f"{region}/dfl-fme.0/dfl-fme-mgr.1/fpga_manager/fpga0/state": "unknown state\n",
    }  # fmt: skip
    (found,) = hand.scan().devices
    assert (found.device_class, found.readiness, found.reason) == ("fpga", "ready", "2 regions can be programmed.")
    assert found.attributes["interface_ids"] == ("9346116d892453c1bb5be4d1e0cd73dd",)
    assert found.attributes["afu_ids"] == ("d8424dc4a4a3c413",)
    assert found.nodes == ("/dev/dfl-port.0",), "dfl-fme programs the card, and is for root alone"


@pytest.mark.parametrize(
    ("device", "driver", "role", "readiness"),
    [
        ("5001", "xocl", "lease_candidate", "ready"), ("5000", "xclmgmt", "management", "unsupported"),
        ("d000", "xclmgmt", "lease_candidate", "setup_required"), ("5005", "", "lease_candidate", "setup_required"),
    ],
)  # fmt: skip
def test_alveo_cards_have_a_user_and_a_management_function(device, driver, role, readiness):
    hand = Hand()
    hand.function("0000:d8:00.1", f"10ee:{device}", "120000", driver)
    (found,) = hand.scan().devices
    assert (found.device_class, found.role, found.readiness) == ("fpga", role, readiness)


def test_an_fpga_on_a_chip_without_pci_is_found():
    hand = Hand()
    hand.links |= {
        "sys/class/fpga_region/region0": "/sys/devices/platform/fpga-full/fpga_region/region0",
        "sys/class/fpga_manager/fpga0": "/sys/devices/platform/fpga_mgr/fpga_manager/fpga0",
    }
    hand.files |= {"sys/devices/platform/fpga-full/fpga_region/region0/uevent": "",
                   "sys/devices/platform/fpga_mgr/fpga_manager/fpga0/state": "operating\n",
                   "sys/devices/platform/fpga_mgr/fpga_manager/fpga0/status": "reconfig CRC error\n"}  # fmt: skip
    (found,) = hand.scan().devices
    assert (found.id, found.device_class, found.health) == ("fpga_region/region0", "fpga", "degraded")
    assert found.attributes["manager_states"] == ("operating",)


NPU_SMI = """\
+---------------------------+---------------+----------------------------------------------------+
| NPU   Name                | Health        | Power(W)    Temp(C)           Hugepages-Usage(page)|
| Chip                      | Bus-Id        | AICore(%)   Memory-Usage(MB)  HBM-Usage(MB)        |
+===========================+===============+====================================================+
| 0     910B3               | {health:13} | 94.3        36                0    / 0             |
| 0                         | 0000:C1:00.0  | 0           0    / 0          3346 / 65536         |
+===========================+===============+====================================================+
"""


@pytest.mark.parametrize(("health", "readiness"), [("OK", "ready"), ("Warning", "ready"), ("Alarm", "unsupported")])
def test_ascend_has_the_health_that_npu_smi_reports(health, readiness):
    hand = Hand()
    hand.function("0000:c1:00.0", "19e5:d802", "120000", "devdrv_device_driver")
    hand.tool("npu-smi", NPU_SMI.format(health=health))
    (found,) = hand.scan().devices
    assert (found.device_class, found.name, found.memory_mib) == ("npu", "Ascend 910B3", 65536)
    assert (found.nodes, found.readiness) == (("/dev/davinci0",), readiness)
    assert found.health == {"OK": "ok", "Warning": "degraded", "Alarm": "failed"}[health]


@pytest.mark.parametrize(
    ("status", "readiness"),
    [("Operational", "ready"), ("Needs Reset", "reboot_required"), ("Malfunction", "unsupported")],
)
def test_habana_has_the_state_of_its_kernel_driver(status, readiness):
    hand = Hand()
    folder = hand.function("0000:33:00.0", "1da3:1020", "120000", "habanalabs")
    hand.links["sys/class/accel/accel0"] = f"/{folder}/accel/accel0"
    hand.files[f"{folder}/accel/accel0/device/status"] = status + "\n"
    (found,) = hand.scan().devices
    assert (found.device_class, found.name, found.readiness) == ("npu", "Gaudi 2", readiness)
    assert found.nodes == ("/dev/accel/accel0",)


def test_a_dpu_is_known_also_in_recovery():
    hand = Hand()
    hand.function("0000:b1:00.0", "15b3:a2dc", "020000", "mlx5_core")
    hand.function("0000:b2:00.0", "15b3:021c", "020000")
    well, lost = hand.scan().devices
    assert (well.attributes["dpu"], well.readiness) == ("BlueField-3", "ready")
    assert (lost.attributes["dpu"], lost.readiness, lost.health) == ("recovery", "setup_required", "failed")


AMD_SMI = [{"gpu": 0, "asic": {"market_name": "MI300X"}, "bus": {"bdf": "0000:05:00.0"},
            "board": {"product_serial": "PCB0123", "product_name": "N/A"}, "vbios": {"version": "022.040"},
            "vram": {"size": {"value": 196592, "unit": "MB"}}}]  # fmt: skip


def test_amd_gpus_are_found_whatever_their_class():
    hand = Hand()
    folder = hand.function("0000:05:00.0", "1002:74a1", "120000", "amdgpu", unique_id="9f0e5d2a8c1b7e44",
                           ras__umc_err_count="ue: 2\nce: 9", mem_info_vram_total="206141652992",
                           current_compute_partition="SPX", drm__renderD128__uevent="")  # fmt: skip
    hand.tool("amd-smi", "WARNING: User is missing the following required groups: render\n" + json.dumps(AMD_SMI))
    (found,) = hand.scan().devices
    assert (found.kind, found.device_class, found.role) == ("accelerator", "gpu", "lease_candidate")
    assert (found.name, found.memory_mib) == ("MI300X", 206141652992 >> 20)
    assert found.identities == {"serial": "PCB0123", "unique_id": "9f0e5d2a8c1b7e44"}
    assert (found.readiness, found.health, found.nodes) == ("ready", "degraded", ("/dev/dri/renderD128",))
    assert found.problems == ("2 uncorrectable errors in umc.",)
    hand.tool("amd-smi", '[{"bus": 7}]')
    hardware = hand.scan()
    assert [one.subject for one in hardware.warnings] == ["amd-smi"]
    assert hardware.devices[0].memory_mib == 206141652992 >> 20
    hand.files[f"{folder}/device"] = "0x1638"
    hand.files[f"{folder}/class"] = "0x030000"
    assert hand.scan().devices[0].role == "integrated_gpu"


@pytest.mark.parametrize(
    ("files", "readiness", "said"),
    [
        ({}, "ready", "nvme"),
        ({"proc/self/mounts": "/dev/nvme0n1p2 / ext4 rw 0 0\n"}, "unsupported", "nvme0n1p2 is mounted at /"),
        ({"proc/swaps": "Filename\tType\n/dev/nvme0n1 partition\n"}, "unsupported", "swap space"),
        ({"HOLDER": "nvme0n1p2/holders/dm-0"}, "unsupported", "nvme0n1p2 is part of dm-0"),
        ({"STATE": "dead"}, "reboot_required", "The controller is dead"),
    ],
)
def test_a_disk_that_the_host_uses_is_not_leased(files, readiness, said):
    hand = Hand()
    folder = hand.function("0000:04:00.0", "144d:a80a", "010802", "nvme") + "/nvme/nvme0"
    values = {"model": "SAMSUNG MZQL2", "serial": "S64GNE0R800123", "firmware_rev": "GDC5602Q", "state": "live",
              "nvme0n1/size": "781422768", "nvme0n1/nvme0n1p2/size": "1000"}  # fmt: skip
    values["state"] = files.get("STATE", "live")
    hand.files |= {f"{folder}/{name}": text for name, text in values.items()}
    hand.files |= {name: text for name, text in files.items() if "/" in name}
    if "HOLDER" in files:
        hand.links[f"{folder}/nvme0n1/{files['HOLDER']}"] = "/sys/devices/virtual/block/dm-0"
    (found,) = hand.scan().devices
    assert (found.device_class, found.readiness) == ("nvme", readiness)
    assert said in found.reason
    assert (found.name, found.attributes["size_mib"]) == ("SAMSUNG MZQL2", 381554)
    assert found.identities == {"serial": "S64GNE0R800123"}


def test_the_host_has_only_what_its_kernel_has_enabled():
    hand = Hand()
    hand.files |= {
        "proc/cpuinfo": "processor\t: 0\nvendor_id\t: AuthenticAMD\nmodel name\t: EPYC 9654\nphysical id\t: 0\n"
        "core id\t: 0\nflags\t: aes sev sev_es sev_snp\n",
        "sys/module/kvm_amd/parameters/sev": "Y\n", "sys/module/kvm_amd/parameters/sev_snp": "N\n",
        "sys/class/tpm/tpm0/tpm_version_major": "2\n", "sys/class/dmi/id/product_serial": "To be filled by O.E.M.\n",
        "sys/class/dmi/id/product_uuid": "4c4c4544-0042-3510-8053-b4c04f4e3233\n",
        "sys/class/dmi/id/sys_vendor": "Dell\n",
        "sys/devices/system/node/node0/distance": "10 21\n", "sys/devices/system/node/node0/cpu0/uevent": "",
        "sys/devices/system/node/node0/cpu1/uevent": "", "sys/devices/system/node/node0/cpu7/uevent": "",
        "sys/devices/system/node/node0/meminfo": "Node 0 MemTotal:  2097152 kB\n",
    }  # fmt: skip
    host = hand.scan().host
    assert (host.confidential, host.tpm) == (("sev",), "2.0")
    assert (host.cpu.vendor, host.cpu.sockets, host.cpu.cores, host.cpu.threads) == ("AuthenticAMD", 1, 1, 1)
    assert (host.identities, host.dmi) == ({"dmi_uuid": "4c4c4544-0042-3510-8053-b4c04f4e3233"}, {"sys_vendor": "Dell"})
    (node,) = host.numa_nodes
    assert (node.cpus, node.memory_mib, node.distances) == ("0-1,7", 2048, (10, 21))


@captured.needed
@pytest.mark.parametrize("name", captured.names())
def test_processors_memory_and_nodes_of_captures_are_as_expected(name, capture, drivers):
    facts = captured.expected()["sysfs"][name]
    host = scan(FolderTree(str(capture(name))), drivers=drivers).host
    assert (host.cpu.threads, host.memory_mib) == (facts["cpuinfo_processors"], facts["mem_total_kB"] >> 10)
    assert [(one.node, one.cpus, one.memory_mib) for one in host.numa_nodes] == [
        (one["node"], one["cpulist"], one["mem_total_kB"] >> 10) for one in facts["numa_nodes"]
    ]
    assert {key: one for key, one in host.dmi.items() if key in facts["dmi"]} == facts["dmi"]


@captured.needed
def test_trap_the_xeon_phi_and_its_infiniband_card_are_read_and_scif0_is_not_a_card(capture, drivers):
    name = "32em64t-2n8c+dax+nvme+mic+dimms"
    facts = captured.expected()["sysfs"][name]
    hardware = scan(FolderTree(str(capture(name))), drivers=drivers)
    phi, card = hardware.device("0000:83:00.0"), hardware.device("0000:82:00.0")
    assert (phi.name, phi.identities["serial"]) == (f"Xeon Phi {facts['mic']['sku']}", facts["mic"]["serialnumber"])
    assert (phi.memory_mib, phi.attributes["active_cores"]) == (0x7C0000 >> 10, 0x3D)
    assert (phi.readiness, phi.firmware["flash"]) == ("ready", facts["mic"]["flashversion"])
    mlx4 = facts["infiniband_mlx4_0"]
    assert (card.attributes["rdma"], card.firmware["nic"]) == (("mlx4_0",), mlx4["fw_ver"])
    assert (card.identities["guid"], card.attributes["board_id"]) == (mlx4["node_guid"], mlx4["board_id"])
    assert [one.id for one in hardware.devices if "rdma" in one.attributes] == [card.id]
    for one in facts["network"]:
        assert list(hardware.device(one["address"]).attributes.get("interfaces", ())) == one["net"]


@captured.needed
def test_trap_proc_crypto_has_a_stray_block_and_no_hardware(drivers):
    facts = captured.expected()["procfs"]
    hand = Hand()
    hand.files["proc/crypto"] = (captured.CAPTURES / facts["file"]).read_text()
    hardware = hand.scan()
    algorithms = hardware.host.crypto
    assert len(algorithms) == facts["entries_with_name"]
    for kind, count in facts["by_type"].items():
        assert sum(one.type == kind for one in algorithms) == count
    assert sum(one.asynchronous for one in algorithms) == facts["async_yes"]
    assert sum(one.internal for one in algorithms) == facts["internal_yes"]
    assert sum(one.passed for one in algorithms) == facts["selftest_passed"]
    assert not [one for one in algorithms if one.hardware]
    names = [one.name for one in algorithms]
    assert sorted({one for one in names if names.count(one) > 1}) == facts["duplicate_names"]
    assert [one.subject for one in hardware.warnings] == ["proc/crypto"]
    corrupted = captured.CAPTURES / "procfs" / "crypto_corrupted"
    if corrupted.exists():
        hand.files["proc/crypto"] = corrupted.read_text()
        assert all(one.name and one.driver for one in hand.scan().host.crypto)


def test_names_come_from_pci_ids_where_it_is_there():
    names = PciNames(
        "# comment\n10dd  Other\n\t15f8  No\n10de  NVIDIA Corporation\n\t15f8  GP100GL [Tesla P100]\n"
        "# comment\n\t\t10de 11da  Other board\n\t\t10de 118f  Tesla P100 board\n\t15f9  Next\n"
        "\t\t10de 118f  Wrong\n10df  Emulex\n\t15f8  No\nC 03  Display\n"
    )
    hand = Hand()
    hand.function("0000:06:00.0", "10de:15f8", "030200", "nvidia", subsystem_vendor="0x10de", subsystem_device="0x118f")
    (found,) = scan(hand.tree(), names=names).devices
    assert (found.vendor_name, found.device_name) == ("NVIDIA Corporation", "GP100GL [Tesla P100]")
    assert found.subsystem_name == "Tesla P100 board"
    assert names.device("10de", "ffff") == names.vendor("ffff") == names.device("C 03", "") == ""
