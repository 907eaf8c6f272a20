"""What is handed over from Python in place of files: samples, data sets, tables, words as classes."""
