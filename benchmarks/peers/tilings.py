"""Tilings of float32 products beside PyTorch, round by round in turn: tilings.py PROGRAM THREADS SIZE …

PROGRAM is product_tilings, which packages/backend-cpu/native/tests builds. Processes are pinned to the first THREADS processors.
"""

import json
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

ROUNDS, SECONDS, TOP = 9, 4, 12


class Contestant:
    def __init__(self, *command):
        self.process = subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)

    def hear(self):
        return json.loads(self.process.stdout.readline())

    def ask(self, line=""):
        self.process.stdin.write(line + "\n")
        self.process.stdin.flush()
        return self.hear()

    def end(self):
        self.process.stdin.close()
        self.process.kill()
        self.process.wait()


def show(program, threads, size, pytorch):
    ours = Contestant(program, str(threads), *[str(size)] * 3, str(SECONDS), str(TOP))
    names, theirs, taken = ours.hear(), [], []
    pytorch.ask(f"matmul {size}")
    for _ in range(ROUNDS):
        time.sleep(0.05)
        theirs.append(pytorch.ask()["value"])
        time.sleep(0.05)
        taken.append(ours.ask())
    ours.end()
    print(f"{size} on {threads}: PyTorch {statistics.median(theirs):.4g} ms; its time over ours, median and best, ours in ms")
    for i, name in enumerate(names):
        times = [each[i] for each in taken]
        median = statistics.median(peer / time for peer, time in zip(theirs, times))
        print(f"  {median:.3f} {min(theirs) / min(times):.3f} {statistics.median(times):8.4g}  {name}", flush=True)


if __name__ == "__main__":
    program, threads, sizes = sys.argv[1], int(sys.argv[2]), [int(size) for size in sys.argv[3:]]
    os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:threads])
    os.environ["OMP_NUM_THREADS"] = str(threads)
    pytorch = Contestant(sys.executable, str(Path(__file__).with_name("pytorch.py")))
    for size in sizes:
        show(program, threads, size, pytorch)
    pytorch.end()
