"""The files that a silo's rows come from, one module for each kind, and what all tables share."""
