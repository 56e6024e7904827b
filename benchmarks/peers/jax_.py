"""JAX on the CPU as a contestant: each row as one compiled function."""

import os

os.environ["JAX_PLATFORMS"] = "cpu"

import jax
import jax.numpy as jnp
import numpy as np
from jax import lax

from serve import numbers, serve


def call(f, *inputs):
    f = jax.jit(f)
    return lambda: jax.block_until_ready(f(*inputs))


def make(*shape):
    return jnp.asarray(numbers(*shape))


def on(f, *shapes):
    return lambda: call(f, *(make(*shape) for shape in shapes))


def bfloat(f, *shapes):
    return lambda: call(f, *(make(*shape).astype(jnp.bfloat16) for shape in shapes))


def eight(x):
    y = x
    for _ in range(8):
        y = y + x
    return y


def composed_gelu(x):
    return x * (1 + lax.erf(x / np.float32(np.sqrt(2)))) / 2


def layer_norm(x, w, b):
    d = x - x.mean(-1, keepdims=True)
    return d * lax.rsqrt((d * d).mean(-1, keepdims=True) + 1e-5) * w + b


def rms_norm(x, w):
    return x * lax.rsqrt((x * x).mean(-1, keepdims=True) + 1e-5) * w


def attention(causal):
    def f(q, k, v):
        s = (q @ k.swapaxes(-1, -2)) * 0.125
        if causal:
            n = s.shape[-1]
            s = jnp.where(jnp.tril(jnp.ones((n, n), bool)), s, -jnp.inf)
        return jax.nn.softmax(s, -1) @ v

    return f


def conv(padding, groups=1):
    def f(x, w):
        return lax.conv_general_dilated(
            x, w, (1, 1), [(padding, padding)] * 2, dimension_numbers=("NHWC", "OHWI", "NHWC"), feature_group_count=groups
        )

    return f


def rows(add):
    def prepare():
        table, order = make(1_000_000, 64), jnp.asarray(np.random.permutation(1_000_000))
        if not add:
            return call(lambda t, o: t[o], table, order)
        return call(lambda t, o, u: t.at[o].add(u), table, order, make(1_000_000, 64))

    return prepare


def random(f):
    return lambda: call(lambda key: f(key, (10**7,)), jax.random.key(0))


BIG, WIDE, NORM = (4096, 4096), (8, 1000, 1024), (4096, 1024)

serve(
    {
        "one add, one eval (16 elements)": on(lambda x: x + x, (16,)),
        "eight adds, one eval (16 elements)": on(eight, (16,)),
        "add 4096²": on(lambda x, y: x + y, BIG, BIG),
        "multiply 4096²": on(lambda x, y: x * y, BIG, BIG),
        "copy 4096²": on(lambda x: x + 0, BIG),
        "axpby 4096²": on(lambda x, y: 4 * x + 2 * y, BIG, BIG),
        "exp 8×1000×1024": on(jnp.exp, WIDE),
        "erf 8×1000×1024": on(lax.erf, WIDE),
        "tanh 8×1000×1024": on(jnp.tanh, WIDE),
        "gelu 8×1000×1024": on(lambda x: jax.nn.gelu(x, approximate=False), WIDE),
        "composed gelu 8×1000×1024": on(composed_gelu, WIDE),
        "composed gelu 32×1000×4096": on(composed_gelu, (32, 1000, 4096)),
        "sum 4096², axis 0": on(lambda x: x.sum(0), BIG),
        "sum 4096², axis 1": on(lambda x: x.sum(1), BIG),
        "sum 4096², all": on(lambda x: x.sum(), BIG),
        "max 4096², axis 1": on(lambda x: x.max(1), BIG),
        "argmax 4096², axis 1": on(lambda x: x.argmax(1), BIG),
        "var 4096², axis 1": on(lambda x: x.var(1), BIG),
        "softmax 4096²": on(lambda x: jax.nn.softmax(x, -1), BIG),
        "logsumexp 4096²": on(lambda x: jax.nn.logsumexp(x, -1), BIG),
        "layerNorm 4096×1024": on(layer_norm, NORM, (1024,), (1024,)),
        "rmsNorm 4096×1024": on(rms_norm, NORM, (1024,)),
        "matmul 64": on(jnp.matmul, (64, 64), (64, 64)),
        "matmul 512": on(jnp.matmul, (512, 512), (512, 512)),
        "matmul 1024": on(jnp.matmul, (1024, 1024), (1024, 1024)),
        "matmul 2048": on(jnp.matmul, (2048, 2048), (2048, 2048)),
        "matmul 1024, second transposed": on(lambda x, y: x @ y.T, (1024, 1024), (1024, 1024)),
        "matmul 64 × 128²": on(jnp.matmul, (64, 128, 128), (64, 128, 128)),
        "matmul 1×4096×4096, bfloat16": bfloat(lambda x, w: x @ w.T, (1, 4096), BIG),
        "matmul 8×4096×4096, bfloat16": bfloat(jnp.matmul, (8, 4096), BIG),
        "attention 1×8×1×64 of 4096, bfloat16": bfloat(attention(False), (1, 8, 1, 64), (1, 8, 4096, 64), (1, 8, 4096, 64)),
        "attention 1×8×512×64": on(attention(False), *[(1, 8, 512, 64)] * 3),
        "attention 1×8×4096×64, causal": on(attention(True), *[(1, 8, 4096, 64)] * 3),
        "conv2d 8×64×64×32, 64 of 3×3": on(conv(1), (8, 64, 64, 32), (64, 3, 3, 32)),
        "conv2d 8×56×56×256, 64 of 1×1": on(conv(0), (8, 56, 56, 256), (64, 1, 1, 256)),
        "conv2d 8×56×56×96, depthwise 7×7": on(conv(3, 96), (8, 56, 56, 96), (96, 7, 7, 1)),
        "sort 1e6": on(jnp.sort, (10**6,)),
        "argsort 1e6": on(jnp.argsort, (10**6,)),
        "cumsum 1e7": on(jnp.cumsum, (10**7,)),
        "gather 1e6 rows of 64": rows(False),
        "scatter-add 1e6 rows of 64": rows(True),
        "random normal 1e7": random(jax.random.normal),
        "random uniform 1e7": random(jax.random.uniform),
    }
)
