"""NumPy as a contestant. Its elementwise work has one thread; its matrix products have OpenBLAS' threads."""

import numpy as np

from serve import numbers, serve


def on(f, *shapes):
    def prepare():
        inputs = [numbers(*shape) for shape in shapes]
        return lambda: f(*inputs)

    return prepare


def softmax(x):
    e = np.exp(x - x.max(-1, keepdims=True))
    return e / e.sum(-1, keepdims=True)


def logsumexp(x):
    m = x.max(-1, keepdims=True)
    return np.log(np.exp(x - m).sum(-1)) + m[:, 0]


def layer_norm(x, w, b):
    d = x - x.mean(-1, keepdims=True)
    return d / np.sqrt((d * d).mean(-1, keepdims=True) + 1e-5) * w + b


def rows(add):
    def prepare():
        table, order = numbers(1_000_000, 64), np.random.permutation(1_000_000)
        if not add:
            return lambda: table[order]
        update = numbers(1_000_000, 64)

        def body():
            out = table.copy()
            np.add.at(out, order, update)

        return body

    return prepare


generator = np.random.default_rng(1)
BIG, WIDE, NORM = (4096, 4096), (8, 1000, 1024), (4096, 1024)

serve(
    {
        "one add, one eval (16 elements)": on(lambda x: x + x, (16,)),
        "add 4096²": on(np.add, BIG, BIG),
        "multiply 4096²": on(np.multiply, BIG, BIG),
        "copy 4096²": on(lambda x: x.copy(), BIG),
        "axpby 4096²": on(lambda x, y: 4 * x + 2 * y, BIG, BIG),
        "exp 8×1000×1024": on(np.exp, WIDE),
        "tanh 8×1000×1024": on(np.tanh, WIDE),
        "sum 4096², axis 0": on(lambda x: x.sum(0), BIG),
        "sum 4096², axis 1": on(lambda x: x.sum(1), BIG),
        "sum 4096², all": on(lambda x: x.sum(), BIG),
        "max 4096², axis 1": on(lambda x: x.max(1), BIG),
        "argmax 4096², axis 1": on(lambda x: x.argmax(1), BIG),
        "var 4096², axis 1": on(lambda x: x.var(1), BIG),
        "softmax 4096²": on(softmax, BIG),
        "logsumexp 4096²": on(logsumexp, BIG),
        "layerNorm 4096×1024": on(layer_norm, NORM, (1024,), (1024,)),
        "matmul 64": on(np.matmul, (64, 64), (64, 64)),
        "matmul 512": on(np.matmul, (512, 512), (512, 512)),
        "matmul 1024": on(np.matmul, (1024, 1024), (1024, 1024)),
        "matmul 2048": on(np.matmul, (2048, 2048), (2048, 2048)),
        "matmul 1024, second transposed": on(lambda x, y: x @ y.T, (1024, 1024), (1024, 1024)),
        "matmul 64 × 128²": on(np.matmul, (64, 128, 128), (64, 128, 128)),
        "sort 1e6": on(np.sort, (10**6,)),
        "argsort 1e6": on(np.argsort, (10**6,)),
        "cumsum 1e7": on(np.cumsum, (10**7,)),
        "gather 1e6 rows of 64": rows(False),
        "scatter-add 1e6 rows of 64": rows(True),
        "random normal 1e7": on(lambda: generator.standard_normal(10**7, dtype=np.float32)),
        "random uniform 1e7": on(lambda: generator.random(10**7, dtype=np.float32)),
    }
)
