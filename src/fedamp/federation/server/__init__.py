"""The server's half of a federation: its state, its rounds, its record, and how it is started and watched."""
