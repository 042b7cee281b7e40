"""`make fuzz`: what strangers and hosts send, made up at random, against a real web process and worker."""
