import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))  # fuzz_counts.py, shared by the default and the slow tests
