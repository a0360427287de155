"""What the files of a model hold that nobody compared with data: stores of records, numbers, texts, unread bytes.

A process of its own reads them, as bytes: ``python -m privgate.artifact.stores FOLDER`` prints JSON.
"""

import json
import sys
from pathlib import Path

from privgate.artifact import file_bytes
from privgate.artifact.look import KEEPERS, files

#: classes of tables
TABLES = frozenset({"DataFrame", "Table", "RecordBatch", "Dataset", "FAISS", "Chroma"})
#: endings of files that are tables or stores
_TABLES = (".parquet", ".csv", ".feather", ".arrow", ".jsonl", ".xlsx", ".h5", ".sqlite", ".db", ".faiss", ".index")
#: lines that are told
_LINES = 20


def held(folder: Path) -> dict[str, list[str] | int]:
    """Return what stands in a model's files: stores by class, and how much of what else.

    Returns
    -------
    dict
        ``stores`` names classes that answer from records or are tables of them; ``numbers`` and ``texts`` count,
        ``unread`` says what nobody here can read.
    """
    seen = file_bytes.read(files(folder))
    stores = sorted({n for n in seen.names if n.rpartition(".")[2] in KEEPERS | TABLES})
    tables = [n for n, _ in files(folder) if n.lower().endswith(_TABLES)]
    unread = [*seen.unknown, *(f"{len(data)} bytes that nobody here can read ({where})" for where, data in seen.opaque)]
    return {
        "stores": [*stores, *tables][:_LINES],
        "numbers": int(sum(a.values.size for a in seen.arrays)),
        "texts": len(seen.texts),
        "unread": unread[:_LINES],
    }


if __name__ == "__main__":
    sys.stdout.write(json.dumps(held(Path(sys.argv[1]))))
