"""The engine: claim, decide, build, carry out, end. Everything here works on rows and sends hints."""
