"""One run and many: from a configuration to what can be played, the loop, and what comes of it."""
