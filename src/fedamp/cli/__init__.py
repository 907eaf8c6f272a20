"""The command line: a file for each subcommand, and what they share (flags, choices, terminal).

They parse, call and print; the other packages do the work.
"""
