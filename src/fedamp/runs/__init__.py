"""One run and many: from a configuration to things that can be played, the loop, what comes of it."""
