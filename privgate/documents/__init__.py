"""The one door for documents that others wrote: reading one ends with a plain value or a ``DocumentError``.

No device or pipe is waited for, no size, number or nesting is larger than its limit, no key stands twice.
"""

from privgate.documents.strict_json import LARGE, SMALL, DocumentError

__all__ = ["LARGE", "SMALL", "DocumentError"]
