"""The report: one JSON document, and HTML, Markdown and JUnit rendered from it alone."""

from privgate.report.document import SCHEMA, document
from privgate.report.files import write
from privgate.report.rendering import render

__all__ = ["SCHEMA", "document", "render", "write"]
