import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parent))  # families.py, shared by the laws and their slow versions
