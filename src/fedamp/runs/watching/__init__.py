"""A run that is seen while it runs: by a callback, by progress, by trackers."""
