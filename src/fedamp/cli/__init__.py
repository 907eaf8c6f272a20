"""The command line: one file per subcommand. They parse, call and print; the other packages do the work."""
