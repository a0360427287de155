"""The one door for documents that others wrote: JSON and YAML, read within stated limits, every surprise one sentence.

Whatever comes in, reading it ends with a plain value or a ``DocumentError``: no device or pipe is waited for, no size,
number or nesting is larger than its limit, no key stands twice.
"""

from privgate.documents.strict_json import LARGE, SMALL, DocumentError

__all__ = ["LARGE", "SMALL", "DocumentError"]
