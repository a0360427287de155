"""The glossary."""

from privgate import vocabulary
from privgate.report.blocks import Section, TableBlock
from privgate.report.report_schema import ReportDocument
from privgate.report.words import capital


def section(doc: ReportDocument) -> Section:
    """Return the words of this report in plain language."""
    more = (vocabulary.SENSITIVITY,) if doc.subject.task == "regression" else ()
    words = [(capital(w.name), w.meaning) for w in (*vocabulary.WORDS, *vocabulary.TERMS, *more)]
    table = TableBlock("Words of this report", ("Word", "Meaning"), words, folded=f"{len(words)} words of this report")
    return Section("glossary", "Glossary", [table])
