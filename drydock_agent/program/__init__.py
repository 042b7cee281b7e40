"""The agent as a program: `drydock-agent` joins a Drydock server, reports the hardware of its host, and obeys orders.

It calls the server and listens on nothing. Its token is kept in a folder that only its account can read.
"""

from drydock_agent.program.main import main

__all__ = ["main"]
