"""How an instance of Compute Engine asks whether it is taken back.

Source: https://cloud.google.com/compute/docs/instances/create-use-spot#detect-preemption: TRUE once it is being
preempted, up to 30 seconds before it is switched off. No time is told.
"""

READER = """
provider, every = "gce", 1


def notice():
    said = ask("/computeMetadata/v1/instance/preempted", {"Metadata-Flavor": "Google"})
    return ("preempt", "") if said.strip() == "TRUE" else None
"""
