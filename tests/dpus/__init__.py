"""A double of DPF's controllers: it plays them on a real API server, for tests and the demo.

    with Double(server.kubeconfig, namespace="t1", cluster=other.kubeconfig) as double:
        host = double.world.host("h1", cards=["MT2400X00001"])
        double.images[url] = Image("3.2.0")
        ...                                   # create a BFB, a DPUFlavor and a DPUSet, as DPF's users do
        double.settle()                       # or tick(), or start(seconds=0.2) for a thread
        host.reboot()

It writes with the official client as user and field manager `dpf-controller`. What it knows of DPF is in
`generations` and in the controllers; each says where a fact is from, or that it is assumed. What no user of DPF should
write is in `double.violations`.

`python -m tests.dpus --help` runs it as a process.
"""

from tests.dpus.double import Double
from tests.dpus.faults import Faults
from tests.dpus.generations import V24_10, V26_4, Generation
from tests.dpus.images import Image
from tests.dpus.world import Card, Host, World

__all__ = ["V24_10", "V26_4", "Card", "Double", "Faults", "Generation", "Host", "Image", "World"]
