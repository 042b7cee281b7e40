"""The shared core: clock, errors, state tables, encryption, logging. It imports no other Drydock package."""
