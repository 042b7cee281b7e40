"""How a machine at Azure asks whether it is taken back.

Source: https://learn.microsoft.com/azure/virtual-machines/linux/scheduled-events: an event of type Preempt, at least
30 seconds before; once a second is recommended. The first question switches the service on, which takes up to two
minutes. Our machines are in no set, so every event that they are told is their own.
"""

READER = """
provider, every = "azure", 1


def notice():
    said = ask("/metadata/scheduledevents?api-version=2020-07-01", {"Metadata": "true"}, timeout=150)
    for event in json.loads(said)["Events"]:
        if event["EventType"] == "Preempt":
            return "preempt", when(event.get("NotBefore", ""))
    return None
"""
