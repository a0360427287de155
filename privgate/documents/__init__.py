"""The one door for documents that others wrote: JSON and YAML, read within stated limits, every surprise one sentence.

Whatever comes in, reading it takes less than a second and 100 MB, and ends with a plain value or a ``DocumentError``:
no device or pipe is waited for, no number, nesting or repetition is larger than its limit, no key stands twice.
"""

from privgate.documents.strict_json import LARGE, SMALL, DocumentError, DocumentLimits

__all__ = ["LARGE", "SMALL", "DocumentError", "DocumentLimits"]
