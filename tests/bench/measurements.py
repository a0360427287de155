"""What a command costs: processor seconds and memory of its whole tree of processes, and when it said what.

Read from /proc, because what a killed sandbox took is added to nobody's account. Nothing heavy is imported here: memory
that two processes share is divided between them, and a library of this one would count for half.
"""

import ctypes
import os
import subprocess
import time
from dataclasses import dataclass
from pathlib import Path

_BE_REAPER, _TICK = 36, os.sysconf("SC_CLK_TCK")
#: seconds between two looks: what a process takes after the last one is not seen; memory is read at every tenth
EVERY = 0.01


@dataclass(frozen=True)
class Cost:
    """What one run of a command cost."""

    code: int
    #: (seconds since it began, what came on stdout or stderr)
    said: list[tuple[float, str]]
    processor_seconds: float
    seconds: float
    #: largest sum of proportional shares of memory, MB
    peak: float

    @property
    def text(self) -> str:
        """All that it said."""
        return "".join(part for _, part in self.said)

    def seconds_to_line(self, *words: str) -> float:
        """Return the seconds to the first line with all these words; infinite where there is none."""
        text = ""
        for seconds, part in self.said:
            text += part
            if any(all(w in line for w in words) for line in text.splitlines()):
                return seconds
        return float("inf")


def list_processes() -> dict[int, tuple[int, int, str]]:
    """Return process -> (its parent, ticks of processor time, when it began: numbers are used again)."""
    running = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                words = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            running[int(entry.name)] = (int(words[1]), int(words[11]) + int(words[12]), words[19])
    return running


def read_memory(process: int) -> int:
    """Return a process's share of the memory that it uses, in kB."""
    try:
        rows = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return next((int(row.split()[1]) for row in rows if row.startswith("Pss:")), 0)


def measure(command: list[str], **options) -> Cost:
    """Run a command and return what it cost."""
    ctypes.CDLL(None).prctl(_BE_REAPER, 1, 0, 0, 0)  # whose parent was killed is ours, and still seen
    ticks, peak, said, looks = {}, 0, [], 0
    others, began = set(list_processes()), time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, **options) as process:
        os.set_blocking(process.stdout.fileno(), False)
        while True:
            ended = process.poll() is not None
            running, ours = list_processes(), {process.pid}
            for _ in range(8):  # a sandbox's worker is some generations down
                ours |= {n for n, about in running.items() if about[0] in ours}
            ours |= {n for n, about in running.items() if about[0] == os.getpid() and n not in others}
            ticks |= {(n, running[n][2]): running[n][1] for n in ours & set(running)}
            if looks % 10 == 0:
                peak = max(peak, sum(map(read_memory, ours)))
            looks += 1
            if part := process.stdout.read():
                said.append((time.perf_counter() - began, part.decode(errors="replace")))
            if ended:
                break
            time.sleep(EVERY)
        seconds = time.perf_counter() - began
    return Cost(process.returncode, said, sum(ticks.values()) / _TICK, seconds, peak / 1024)
