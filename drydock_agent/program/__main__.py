"""Run the agent: `python -m drydock_agent.program`."""

import sys

from drydock_agent.program.main import main

sys.exit(main())
