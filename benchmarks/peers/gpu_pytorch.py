"""PyTorch's times for the rows of gpu-table.ts, in ms, as one line of JSON. Argument: how many calls are measured."""
import json
import sys
import time

import torch

rounds = int(sys.argv[1])
N = 8192
gpu = torch.device("cuda")


def matrix(n=N, dtype=torch.float32):
    return torch.randn(n, n, device=gpu).to(dtype)


def gelu(x):
    return x * (torch.erf(x * 0.7071067811865476) + 1) * 0.5


def on_matrix(f):
    def make():
        x = matrix()
        return lambda: f(x)

    return make


def product(n, dtype):
    def make():
        a, b = matrix(n, dtype), matrix(n, dtype)
        return lambda: a @ b

    return make


def composed_gelu():
    x = torch.randn(32, 1000, 4096, device=gpu)
    return lambda: gelu(x)


def layer_norm():
    x, w, b = matrix(), torch.ones(N, device=gpu), torch.zeros(N, device=gpu)
    return lambda: torch.nn.functional.layer_norm(x, (N,), w, b, 1e-5)


def sort():
    x = torch.randn(10_000_000, device=gpu)
    return lambda: torch.sort(x)


def gather():
    x, i = torch.randn(1_000_000, 64, device=gpu), torch.randint(0, 1_000_000, (1_000_000,), device=gpu)
    return lambda: x[i]


def chain():
    x = torch.ones(16, device=gpu)

    def run():
        y = x
        for _ in range(100):
            y = y + x
        return y

    return run


def one():
    x = torch.ones(16, device=gpu)
    return lambda: x + x


rows = {
    "copy 8192²": on_matrix(lambda x: x.clone()),
    "add 8192²": on_matrix(lambda x: x + x),
    "composed gelu 32×1000×4096": composed_gelu,
    "sum 8192², all": on_matrix(lambda x: x.sum()),
    "sum 8192², axis 0": on_matrix(lambda x: x.sum(0)),
    "sum 8192², axis 1": on_matrix(lambda x: x.sum(1)),
    "softmax 8192²": on_matrix(lambda x: torch.softmax(x, -1)),
    "layer norm 8192²": layer_norm,
    "cumsum 8192², axis 1": on_matrix(lambda x: torch.cumsum(x, 1)),
    "sort 1e7": sort,
    "gather 1e6 rows of 64": gather,
    "matmul 4096 f32": product(4096, torch.float32),
    "matmul 4096 bf16": product(4096, torch.bfloat16),
    "chain of 100 adds (16 elements)": chain,
    "one add, one eval (16 elements)": one,
}

times = {}
for name, make in rows.items():
    f = make()
    for _ in range(3):
        f()
    torch.cuda.synchronize()
    taken = []
    for _ in range(rounds):
        begin = time.perf_counter()
        f()
        torch.cuda.synchronize()
        taken.append((time.perf_counter() - begin) * 1000)
    times[name] = sorted(taken)[len(taken) // 2]
    del f
    torch.cuda.empty_cache()
print(json.dumps(times))
