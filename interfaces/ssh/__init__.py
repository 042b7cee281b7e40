"""SSH as a transport: pinned host keys, one key for logging in, deadlines on every step, and reused connections."""

import logging

# What goes wrong is raised as an error of ours; paramiko's own lines would only repeat it on a bare stderr.
logging.getLogger("paramiko").addHandler(logging.NullHandler())
