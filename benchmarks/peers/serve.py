"""A Python contestant's side of the conversation with main.ts; see src/serve.ts."""

import json
import sys
import time

import numpy as np

LEAST_MS = 15
WARM_UP_MS = 500


def numbers(*shape):
    count = int(np.prod(shape))
    return ((np.arange(count, dtype=np.float64) * 0.6180339887498949 % 1) * 2 - 1).astype(np.float32).reshape(shape)


def say(**message):
    print(json.dumps(message), flush=True)


def serve(workloads):
    prepare = workloads.get(sys.argv[1])
    if prepare is None:
        say(missing="not there")
        return
    try:
        body = prepare()
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
    except Exception as error:  # a row without this contestant says why
        say(missing=str(error).split("\n")[0])
        return
    say(ready=True)
    for _ in sys.stdin:
        body()
        start = time.perf_counter()
        for _ in range(calls):
            body()
        say(value=(time.perf_counter() - start) * 1e3 / calls)
