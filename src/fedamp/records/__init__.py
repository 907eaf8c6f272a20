"""The run folder: how it is written, read again and compared, and the numbers taken from its rounds."""
