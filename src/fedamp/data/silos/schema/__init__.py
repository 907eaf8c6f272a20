"""What silos that never meet must agree on: the columns, the classes, and how inputs are scaled.

Each silo describes its own rows by a partial schema (counts, means, spreads, names of classes and words), and the
partial schemas are merged. The result is the schema that all rows together would give. A schema holds no rows, but its
names and means are read by everyone who gets it.
"""

from fedamp.data.silos.schema.apply import apply_schema, check_agreed, open_to_newcomers
from fedamp.data.silos.schema.definition import MISSING, NEWER, TASKS, VERSION, Schema
from fedamp.data.silos.schema.make import make_schema
from fedamp.data.silos.schema.merge import merge_schemas
from fedamp.data.silos.schema.notes import schema_notes

__all__ = [
    "MISSING",
    "NEWER",
    "TASKS",
    "VERSION",
    "Schema",
    "apply_schema",
    "check_agreed",
    "make_schema",
    "merge_schemas",
    "open_to_newcomers",
    "schema_notes",
]
