"""SSH as a transport: pinned host keys, one key, deadlines on every step, connections reused."""

import logging

# What goes wrong is raised as an error of ours; paramiko's own lines would only repeat it on a bare stderr.
logging.getLogger("paramiko").addHandler(logging.NullHandler())
