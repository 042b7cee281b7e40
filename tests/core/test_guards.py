"""No test reaches another machine."""

from __future__ import annotations

import socket

import pytest

from tests.guards import OffThisMachine


@pytest.mark.parametrize("host", ["192.0.2.1", "2001:db8::1", "example.org"])
def test_other_machines_are_refused_before_a_packet_leaves(host):
    family = socket.AF_INET6 if ":" in host else socket.AF_INET
    with socket.socket(family) as probe, pytest.raises(OffThisMachine):
        probe.connect((host, 80))


def test_this_machine_is_not():
    with socket.socket() as listener, socket.socket() as probe:
        listener.bind(("127.0.0.1", 0))
        listener.listen()
        probe.connect(listener.getsockname())
