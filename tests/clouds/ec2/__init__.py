"""EC2 without Amazon: moto's API in this process, as strict and as faulty as the real one. See `double`."""

import os
from pathlib import Path

# moto reads these when it is imported.
os.environ["MOTO_AMIS_PATH"] = str(Path(__file__).with_name("images.json"))
os.environ["MOTO_ENABLE_AMI_VALIDATION"] = "true"
os.environ["MOTO_EC2_ENABLE_INSTANCE_TYPE_VALIDATION"] = "true"
