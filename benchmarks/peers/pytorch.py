"""PyTorch on the CPU as a contestant; with the argument `compile`, torch.compile at the rows in which it may be faster."""

import math
import os
import sys

import torch
import torch.nn as nn
import torch.nn.functional as F

from serve import numbers, serve

# As many as the process may use, which can be fewer than the machine has.
torch.set_num_threads(len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count())


def make(*shape):
    return torch.from_numpy(numbers(*shape))


COMPILED = "compile" in sys.argv


def on(f, *shapes, dtype=torch.float32):
    def prepare():
        inputs = [make(*shape).to(dtype) for shape in shapes]
        g = torch.compile(f) if COMPILED else f
        return lambda: g(*inputs)

    return prepare


def chain(held):
    def prepare():
        y = torch.ones(16)

        def body():
            kept = []
            x = y
            for _ in range(1000):
                x = x + y
                if held:
                    kept.append(x)

        return body

    return prepare


def eight(x):
    y = x
    for _ in range(8):
        y = y + x
    return y


def gelu(x):
    return x * (1 + torch.erf(x / math.sqrt(2))) / 2


def product(x, y):
    return x @ y


def turned_product(x, y):
    return x @ y.T


def rms_norm(x, w):
    return x * torch.rsqrt((x * x).mean(-1, keepdim=True) + 1e-5) * w


# PyTorch 2's own, else what it replaces.
FUSED_ATTENTION = getattr(F, "scaled_dot_product_attention", None)


def attention(length, causal):
    def prepare():
        q, k, v = (make(1, 8, length, 64) for _ in range(3))
        if FUSED_ATTENTION:
            return lambda: FUSED_ATTENTION(q, k, v, is_causal=causal)
        mask = torch.full((length, length), -math.inf).triu(1) if causal else None

        def body():
            s = (q @ k.transpose(-1, -2)) * 0.125
            if mask is not None:
                s = s + mask
            return s.softmax(-1) @ v

        return body

    return prepare


def bfloat_attention():
    q, k, v = (make(1, 8, n, 64).bfloat16() for n in (1, 4096, 4096))
    if FUSED_ATTENTION:
        return lambda: FUSED_ATTENTION(q, k, v)
    return lambda: ((q @ k.transpose(-1, -2)) * 0.125).softmax(-1) @ v


def conv(x, w, padding, groups=1):
    def prepare():
        image, kernel = (
            make(*shape).permute(0, 3, 1, 2).contiguous(memory_format=torch.channels_last) for shape in (x, w)
        )
        return lambda: F.conv2d(image, kernel, padding=padding, groups=groups)

    return prepare


def gather():
    table, order = make(1_000_000, 64), torch.randperm(1_000_000)
    return lambda: table[order]


def scatter():
    table, order, update = make(1_000_000, 64), torch.randperm(1_000_000), make(1_000_000, 64)
    return lambda: table.index_add(0, order, update)


def step(model, optimizer, x, y):
    def body():
        optimizer.zero_grad()
        out = model(x)
        F.cross_entropy(out.reshape(-1, out.shape[-1]), y.reshape(-1)).backward()
        optimizer.step()

    return body


def mlp(batch, width, hidden, classes):
    def prepare():
        model = nn.Sequential(nn.Linear(width, hidden), nn.ReLU(), nn.Linear(hidden, classes))
        optimizer = torch.optim.SGD(model.parameters(), 0.01, momentum=0.9)
        return step(model, optimizer, make(batch, width), torch.randint(0, classes, (batch,)))

    return prepare


class Transformer(nn.Module):
    def __init__(self):
        super().__init__()
        self.tokens = nn.Embedding(256, 128)
        self.positions = nn.Embedding(64, 128)
        layer = nn.TransformerEncoderLayer(128, 4, 512, 0.0, batch_first=True, norm_first=True)
        self.body = nn.TransformerEncoder(layer, 4, nn.LayerNorm(128))
        self.head = nn.Linear(128, 256)
        self.register_buffer("mask", torch.full((64, 64), -math.inf).triu(1))

    def forward(self, ids):
        x = self.tokens(ids) + self.positions(torch.arange(64))
        return self.head(self.body(x, self.mask))


def transformer():
    model = Transformer()
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3)
    return step(model, optimizer, torch.randint(0, 256, (16, 64)), torch.randint(0, 256, (16, 64)))


PAIRS, GROUPS, ROWS, COLUMNS, VECTORS, POINTS = 100_000, 4, 8, 8, 10_000, 4096


def positions(count, n):
    return (torch.arange(count) * 40_503) % n


def mvmr(rows, gradient=False):
    def prepare():
        a, b = make(PAIRS, GROUPS, ROWS, COLUMNS), make(VECTORS, GROUPS, COLUMNS)
        b_at, out_at = positions(PAIRS, VECTORS), positions(PAIRS, rows)

        def forward():
            products = (a @ b[b_at].unsqueeze(3)).squeeze(3)
            return torch.zeros(rows, GROUPS, ROWS).index_add(0, out_at, products)

        if not gradient:
            return forward
        a.requires_grad_()
        b.requires_grad_()
        return lambda: torch.autograd.grad(forward().square().sum(), (a, b))

    return prepare


def vvor():
    x, b = make(VECTORS, GROUPS, ROWS), make(VECTORS, GROUPS, COLUMNS)
    x_at, b_at, out_at = positions(PAIRS, VECTORS), positions(PAIRS, VECTORS), positions(PAIRS, PAIRS)

    def body():
        products = x[x_at].unsqueeze(3) * b[b_at].unsqueeze(2)
        return torch.zeros(PAIRS, GROUPS, ROWS, COLUMNS).index_add(0, out_at, products)

    return body


def segment_sums():
    x, ids = make(PAIRS, 256), positions(PAIRS, 1000).sort().values
    return lambda: torch.zeros(1000, 256).index_add(0, ids, x)


def pair_distances():
    x, y = make(POINTS, 3), make(POINTS, 3)
    i, k = positions(10**6, POINTS), positions(10**6, POINTS - 1)
    return lambda: (x[i] - y[k]).square().sum(1).sqrt()


BIG, WIDE, NORM = (4096, 4096), (8, 1000, 1024), (4096, 1024)

WORKLOADS = {
    "chain of 1,000 adds (16 elements)": chain(False),
    "chain of 1,000 adds (16 elements), handles held": chain(True),
    "one add, one eval (16 elements)": on(lambda x: x + x, (16,)),
    "eight adds, one eval (16 elements)": on(eight, (16,)),
    "add 4096²": on(lambda x, y: x + y, BIG, BIG),
    "multiply 4096²": on(lambda x, y: x * y, BIG, BIG),
    "copy 4096²": on(lambda x: x.clone(), BIG),
    "axpby 4096²": on(lambda x, y: 4 * x + 2 * y, BIG, BIG),
    "exp 8×1000×1024": on(torch.exp, WIDE),
    "erf 8×1000×1024": on(torch.erf, WIDE),
    "tanh 8×1000×1024": on(torch.tanh, WIDE),
    "gelu 8×1000×1024": on(F.gelu, WIDE),
    "composed gelu 8×1000×1024": on(gelu, WIDE),
    "composed gelu 32×1000×4096": on(gelu, (32, 1000, 4096)),
    "sum 4096², axis 0": on(lambda x: x.sum(0), BIG),
    "sum 4096², axis 1": on(lambda x: x.sum(1), BIG),
    "sum 4096², all": on(lambda x: x.sum(), BIG),
    "max 4096², axis 1": on(lambda x: x.amax(1), BIG),
    "argmax 4096², axis 1": on(lambda x: x.argmax(1), BIG),
    "var 4096², axis 1": on(lambda x: x.var(1, unbiased=False), BIG),
    "softmax 4096²": on(lambda x: x.softmax(-1), BIG),
    "logsumexp 4096²": on(lambda x: x.logsumexp(-1), BIG),
    "layerNorm 4096×1024": on(lambda x, w, b: F.layer_norm(x, (1024,), w, b), NORM, (1024,), (1024,)),
    "rmsNorm 4096×1024": on(rms_norm, NORM, (1024,)),
    "matmul 64": on(product, (64, 64), (64, 64)),
    "matmul 512": on(product, (512, 512), (512, 512)),
    "matmul 1024": on(product, (1024, 1024), (1024, 1024)),
    "matmul 2048": on(product, (2048, 2048), (2048, 2048)),
    "matmul 1024, second transposed": on(turned_product, (1024, 1024), (1024, 1024)),
    "matmul 64 × 128²": on(product, (64, 128, 128), (64, 128, 128)),
    "matmul 1×4096×4096, bfloat16": on(turned_product, (1, 4096), BIG, dtype=torch.bfloat16),
    "matmul 8×4096×4096, bfloat16": on(product, (8, 4096), BIG, dtype=torch.bfloat16),
    "attention 1×8×1×64 of 4096, bfloat16": bfloat_attention,
    "attention 1×8×512×64": attention(512, False),
    "attention 1×8×4096×64, causal": attention(4096, True),
    "conv2d 8×64×64×32, 64 of 3×3": conv((8, 64, 64, 32), (64, 3, 3, 32), 1),
    "conv2d 8×56×56×256, 64 of 1×1": conv((8, 56, 56, 256), (64, 1, 1, 256), 0),
    "conv2d 8×56×56×96, depthwise 7×7": conv((8, 56, 56, 96), (96, 7, 7, 1), 3, 96),
    "sort 1e6": on(lambda x: x.sort().values, (10**6,)),
    "argsort 1e6": on(lambda x: x.argsort(), (10**6,)),
    "cumsum 1e7": on(lambda x: x.cumsum(0), (10**7,)),
    "gather 1e6 rows of 64": gather,
    "scatter-add 1e6 rows of 64": scatter,
    "random normal 1e7": on(lambda: torch.randn(10**7)),
    "random uniform 1e7": on(lambda: torch.rand(10**7)),
    "MLP step (64, 784-256-10, SGD momentum)": mlp(64, 784, 256, 10),
    "MLP step (4, 16-16-4, SGD momentum)": mlp(4, 16, 16, 4),
    "transformer step (4 layers, 128 wide, 16×64, AdamW)": transformer,
    "mvmr of 100000 pairs to as many rows": mvmr(PAIRS),
    "mvmr of 100000 pairs to 1000 rows": mvmr(1000),
    "mvmr of 100000 pairs to 1000 rows, loss and gradient": mvmr(1000, True),
    "vvor of 100000 pairs to as many rows": vvor,
    "segment sums of 100000 rows of 256": segment_sums,
    "distances of 4096 points to each other": on(torch.cdist, (POINTS, 3), (POINTS, 3)),
    "distances of 1000000 pairs of points": pair_distances,
    "16 nearest of 4096 points": on(lambda x: torch.cdist(x, x).topk(16, 1, False).indices, (POINTS, 3)),
}
COMPILABLE = (
    "eight adds",
    "axpby",
    "composed gelu",
    "var",
    "softmax",
    "logsumexp",
    "layerNorm",
    "rmsNorm",
    "matmul",
)

serve({name: row for name, row in WORKLOADS.items() if not COMPILED or name.startswith(COMPILABLE)})
