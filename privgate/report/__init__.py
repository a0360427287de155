"""The report: one JSON document, and HTML, Markdown and JUnit rendered from it alone.

``document`` is the only place where a verdict is read; everything shown comes from its JSON, which ``schema`` reads
once into typed models: what they do not hold is not shown, and a document that another version wrote is refused in
a sentence. A section appears when its part of the evidence is there.

Names of units are replaced by keyed hashes wherever they stand, and the keys query, queries, position, positions,
features and rows are left out, because a query may be a person's own features.
"""

from privgate.report.compare import compare
from privgate.report.document import PERSONAL, document, render, write
from privgate.report.formats import differences
from privgate.report.schema import SCHEMA

__all__ = ["PERSONAL", "SCHEMA", "compare", "differences", "document", "render", "write"]
