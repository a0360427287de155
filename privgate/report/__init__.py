"""The report: one JSON document, and HTML, Markdown and JUnit rendered from it alone."""

from privgate.report.comparison import compare
from privgate.report.document import SCHEMA, document
from privgate.report.files import write
from privgate.report.overview import index
from privgate.report.rendering import render

__all__ = ["SCHEMA", "compare", "document", "index", "render", "write"]
