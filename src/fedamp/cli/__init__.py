"""The command line: one file a subcommand. They parse, call and print; the work is done in the other rooms."""
