"""A Python contestant's side of the conversation with main.ts; see src/serve.ts."""

import json
import os
import sys
import time

import numpy as np

LEAST_MS = 15
WARM_UP_MS = float(os.environ.get("BENCH_WARM_UP_MS", 500))


def numbers(*shape):
    count = int(np.prod(shape))
    return ((np.arange(count, dtype=np.float64) * 0.6180339887498949 % 1) * 2 - 1).astype(np.float32).reshape(shape)


def say(**message):
    print(json.dumps(message), flush=True)


def warm_up(body):
    """The number of calls that are long enough to be measured."""
    body()
    begin = time.perf_counter()
    while (time.perf_counter() - begin) * 1e3 < WARM_UP_MS:
        body()
    calls, ms = 1, 0.0
    while ms < LEAST_MS:
        start = time.perf_counter()
        for _ in range(calls):
            body()
        ms = (time.perf_counter() - start) * 1e3
        if ms < LEAST_MS:
            calls = int(np.ceil(calls * min(16, max(1.5, LEAST_MS / max(ms, 0.01)))))
    return calls


def serve(workloads):
    """A line that names a workload prepares it in place of the one before; an empty line measures."""
    body, calls = None, 1
    for line in sys.stdin:
        name = line.strip()
        if name:
            body = None  # its memory goes first
            prepare = workloads.get(name)
            try:
                body = prepare and prepare()
                if body is None:
                    say(missing="not there")
                    continue
                calls = warm_up(body)
                say(ready=True)
            except Exception as error:  # a row without this contestant says why
                say(missing=str(error).split("\n")[0])
            continue
        body()
        start = time.perf_counter()
        for _ in range(calls):
            body()
        say(value=(time.perf_counter() - start) * 1e3 / calls)
