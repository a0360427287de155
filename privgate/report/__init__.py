"""The report: one JSON document, and HTML, Markdown and JUnit rendered from it alone.

``document`` is the only place where a verdict is read; everything shown comes from its JSON, which ``schema`` reads
once into typed models. Names of people are keyed hashes wherever they stand; questions and rows are left out, because
a question may be a person's own features.
"""

from privgate.report.compare import compare
from privgate.report.document import PERSONAL, document, render, write
from privgate.report.formats import differences
from privgate.report.schema import SCHEMA

__all__ = ["PERSONAL", "SCHEMA", "compare", "differences", "document", "render", "write"]
