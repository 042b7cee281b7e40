"""The SSH transport: pinned host keys, one login key, a deadline for each step, and reused connections."""

import logging

# What goes wrong is raised as an error of ours; paramiko's own lines would only repeat it on a bare stderr.
logging.getLogger("paramiko").addHandler(logging.NullHandler())
