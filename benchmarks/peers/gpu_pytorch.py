"""PyTorch's times for the rows of gpu-rows.ts. Reads requests, a line each, and answers with a line of JSON:
make, a row's name, 1 for torch.compile too: the forms that it has; run, a form, how many calls, ms of calls before them: their times in ms."""
import json
import sys
import time

import torch
import torch.nn.functional as F
from torch.nn.attention import SDPBackend, sdpa_kernel

torch.set_default_device("cuda")
torch.backends.cudnn.allow_tf32 = False
N = 8192


def on_matrix(f):
    return lambda: (f, (torch.randn(N, N),))


def product(dtype):
    return lambda: (lambda a, b: a @ b, (torch.randn(4096, 4096).to(dtype), torch.randn(4096, 4096).to(dtype)))


def gelu(x):
    return x * (torch.erf(x * 0.7071067811865476) + 1) * 0.5


def indices(n=1_000_000):
    return torch.randint(0, n, (n,))


def layer_norm():
    return lambda x, w, b: F.layer_norm(x, (N,), w, b, 1e-5), (torch.randn(N, N), torch.ones(N), torch.zeros(N))


# By PyTorch's fastest backend, where the GPU has it.
BACKENDS = [SDPBackend.CUDNN_ATTENTION, SDPBackend.FLASH_ATTENTION, SDPBackend.EFFICIENT_ATTENTION, SDPBackend.MATH]


def attend(q, k, v):
    with sdpa_kernel(BACKENDS, set_priority=True):
        return F.scaled_dot_product_attention(q, k, v, is_causal=True)


def attention(backward):
    q, k, v, g = (torch.randn(4, 16, 4096, 128, dtype=torch.bfloat16) for _ in range(4))
    if not backward:
        return attend, (q, k, v)
    inputs = tuple(x.requires_grad_() for x in (q, k, v))

    def both(a, b, c):
        out = attend(a, b, c)
        return (out, *torch.autograd.grad(out, (a, b, c), g))

    return both, inputs


def convolution():
    x = torch.randn(32, 64, 56, 56).to(memory_format=torch.channels_last)
    w = torch.randn(64, 64, 3, 3).to(memory_format=torch.channels_last)
    return lambda a, b: F.conv2d(a, b, padding=1), (x, w)


def grid_sample(backward):
    # Images with channels last in memory, as the custom kernels have them.
    x = torch.randn(8, 64, 1024, 1024).to(memory_format=torch.channels_last).requires_grad_(backward)
    grid = (2 * torch.rand(8, 256, 256, 2) - 1).requires_grad_(backward)
    if not backward:
        return lambda a, b: F.grid_sample(a, b, align_corners=False), (x, grid)
    g = torch.randn(8, 64, 256, 256)

    def both(a, b):
        return torch.autograd.grad(F.grid_sample(a, b, align_corners=False), (a, b), g)

    return both, (x, grid)


def chain(f, x):
    y = x
    for _ in range(100):
        y = f(y, x)
    return y


def mlp():
    model = torch.nn.Sequential(torch.nn.Linear(784, 256), torch.nn.ReLU(), torch.nn.Linear(256, 10))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    x, y = torch.randn(64, 784), torch.randint(0, 10, (64,))

    def step(a, b):
        loss = F.cross_entropy(model(a), b)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        return loss

    return step, (x, y)


class Block(torch.nn.Module):
    def __init__(self, width):
        super().__init__()
        self.attention_norm = torch.nn.LayerNorm(width)
        self.project = torch.nn.Linear(width, 3 * width)
        self.out = torch.nn.Linear(width, width)
        self.network_norm = torch.nn.LayerNorm(width)
        self.widen = torch.nn.Linear(width, 4 * width)
        self.narrow = torch.nn.Linear(4 * width, width)

    def forward(self, x):
        batch, length, width = x.shape
        q, k, v = self.project(self.attention_norm(x)).view(batch, length, 3, 12, width // 12).permute(2, 0, 3, 1, 4)
        attended = F.scaled_dot_product_attention(q, k, v, is_causal=True)
        x = x + self.out(attended.transpose(1, 2).reshape(batch, length, width))
        return x + self.narrow(F.gelu(self.widen(self.network_norm(x)), approximate="tanh"))


class Gpt(torch.nn.Module):
    def __init__(self, words=32_000, width=768, layers=12, length=1024):
        super().__init__()
        self.words = torch.nn.Embedding(words, width)
        self.positions = torch.nn.Embedding(length, width)
        self.blocks = torch.nn.ModuleList(Block(width) for _ in range(layers))
        self.norm = torch.nn.LayerNorm(width)
        self.head = torch.nn.Linear(width, words, bias=False)

    def forward(self, tokens, targets):
        x = self.words(tokens) + self.positions(torch.arange(tokens.shape[1], device=tokens.device))
        for block in self.blocks:
            x = block(x)
        logits = self.head(self.norm(x))
        return F.cross_entropy(logits.flatten(0, 1).float(), targets.flatten())


def gpt(dtype):
    def make():
        model = Gpt().to(dtype)
        optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.01, fused=True)
        tokens = torch.randint(0, 32_000, (8, 1024))

        def step(a, b, model=model):
            loss = model(a, b)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            return loss

        fast = torch.compile(model)
        return step, (tokens, tokens), lambda a, b: step(a, b, fast)

    return make


rows = {
    "copy 8192²": on_matrix(lambda x: x.clone()),
    "add 8192²": on_matrix(lambda x: x + x),
    "composed gelu 32×1000×4096": lambda: (gelu, (torch.randn(32, 1000, 4096),)),
    "sum 8192², all": on_matrix(lambda x: x.sum()),
    "sum 8192², axis 0": on_matrix(lambda x: x.sum(0)),
    "sum 8192², axis 1": on_matrix(lambda x: x.sum(1)),
    "softmax 8192²": on_matrix(lambda x: torch.softmax(x, -1)),
    "layer norm 8192²": layer_norm,
    "cumsum 8192², axis 1": on_matrix(lambda x: torch.cumsum(x, 1)),
    "sort 1e7": lambda: (torch.sort, (torch.randn(10_000_000),)),
    "gather 1e6 rows of 64": lambda: (lambda x, i: x[i], (torch.randn(1_000_000, 64), indices())),
    "scatter-add 1e6 rows of 64": lambda: (
        lambda z, i, x: z.index_add(0, i, x),
        (torch.zeros(1_000_000, 64), indices(), torch.randn(1_000_000, 64)),
    ),
    "matmul 4096 f32": product(torch.float32),
    "matmul 4096 bf16": product(torch.bfloat16),
    "attention, causal, 4×16×4096×128 bf16": lambda: attention(False),
    "attention, forward and backward": lambda: attention(True),
    "conv 32×56×56×64, 3×3, f32": convolution,
    "grid_sample, forward": lambda: grid_sample(False),
    "grid_sample, forward and backward": lambda: grid_sample(True),
    "chain of 100 adds (16 elements)": lambda: (lambda x: chain(torch.add, x), (torch.ones(16),)),
    "100 cumsums, compiled (16 elements)": lambda: (lambda x: chain(lambda y, _: y.cumsum(0), x), (torch.ones(16),)),
    "one add, one eval (16 elements)": lambda: (torch.add, (torch.ones(16), torch.ones(16))),
    "MLP step (64, 784-256-10, SGD momentum), compiled": mlp,
    "GPT-2 small step, 8×1024, bf16": gpt(torch.bfloat16),
    "GPT-2 small step, 8×1024, f32": gpt(torch.float32),
}


PAIRS, GROUPS, HEIGHT, WIDTH, VECTORS, POINTS = 100_000, 4, 8, 8, 10_000, 4096


def scattered(count, n):
    return (torch.arange(count) * 40_503) % n


def mvmr(size, gradient=False):
    a, b = torch.randn(PAIRS, GROUPS, HEIGHT, WIDTH), torch.randn(VECTORS, GROUPS, WIDTH)

    def forward(a, b, b_at, out_at):
        products = torch.einsum("tgmc,tgc->tgm", a, b[b_at])
        return torch.zeros(size, GROUPS, HEIGHT).index_add(0, out_at, products)

    def both(a, b, b_at, out_at):
        loss = forward(a, b, b_at, out_at).square().sum()
        return (loss, *torch.autograd.grad(loss, (a, b)))

    lists = scattered(PAIRS, VECTORS), scattered(PAIRS, size)
    if not gradient:
        return forward, (a, b, *lists)
    return both, (a.requires_grad_(), b.requires_grad_(), *lists)


def vvor():
    def f(x, b, x_at, b_at, out_at):
        products = torch.einsum("tgm,tgc->tgmc", x[x_at], b[b_at])
        return torch.zeros(PAIRS, GROUPS, HEIGHT, WIDTH).index_add(0, out_at, products)

    x, b = torch.randn(VECTORS, GROUPS, HEIGHT), torch.randn(VECTORS, GROUPS, WIDTH)
    return f, (x, b, scattered(PAIRS, VECTORS), scattered(PAIRS, VECTORS), scattered(PAIRS, PAIRS))


def segment_sums():
    ids = scattered(PAIRS, 1000).sort().values
    return lambda x, ids: torch.zeros(1000, 256).index_add(0, ids, x), (torch.randn(PAIRS, 256), ids)


def pair_distances():
    x, y = torch.randn(POINTS, 3), torch.randn(POINTS, 3)
    i, k = scattered(10**6, POINTS), scattered(10**6, POINTS - 1)
    return lambda x, y, i, k: (x[i] - y[k]).square().sum(1).sqrt(), (x, y, i, k)


def nearest(x):
    return torch.cdist(x, x).topk(16, 1, False).indices


rows.update(
    {
        "mvmr of 100000 pairs to as many rows": lambda: mvmr(PAIRS),
        "mvmr of 100000 pairs to 1000 rows": lambda: mvmr(1000),
        "mvmr of 100000 pairs to 1000 rows, loss and gradient": lambda: mvmr(1000, True),
        "vvor of 100000 pairs to as many rows": vvor,
        "segment sums of 100000 rows of 256": segment_sums,
        "distances of 4096 points to each other": lambda: (
            torch.cdist,
            (torch.randn(POINTS, 3), torch.randn(POINTS, 3)),
        ),
        "distances of 1000000 pairs of points": pair_distances,
        "16 nearest of 4096 points": lambda: (nearest, (torch.randn(POINTS, 3),)),
    }
)
# torch.compile would fuse what the row means to be kernels of their own.
GRAPHS = {"100 cumsums, compiled (16 elements)"}


def captured(f, inputs):
    """A CUDA graph of the calls."""
    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        f(*inputs)
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        f(*inputs)
    return lambda: graph.replay()


def timed(f, rounds):
    taken = []
    for _ in range(rounds):
        begin = time.perf_counter()
        f()
        torch.cuda.synchronize()
        taken.append((time.perf_counter() - begin) * 1000)
    return taken


def warm_up(f, milliseconds):
    end = time.perf_counter() + milliseconds / 1000
    timed(f, 3)
    while time.perf_counter() < end:
        timed(f, 1)


forms = {}


def make(name, compiled):
    forms.clear()
    torch.cuda.empty_cache()
    if name not in rows:
        return
    # A row may have a compiled form of its own.
    f, inputs, *fast = rows[name]()
    forms["eager"] = lambda: f(*inputs)
    if name in GRAPHS:
        forms["compiled"] = captured(f, inputs)
    elif compiled:
        g = fast[0] if fast else torch.compile(f)
        forms["compiled"] = lambda: g(*inputs)
    for form in list(forms):
        try:
            warm_up(forms[form], 300)
        except Exception:
            del forms[form]


for line in sys.stdin:
    request = line.rstrip("\n").split("\t")
    if request[0] == "make":
        try:
            make(request[1], request[2] == "1")
        except Exception:
            forms.clear()
        answer = list(forms)
    else:
        # Another process had the GPU meanwhile.
        warm_up(forms[request[1]], float(request[3]))
        answer = timed(forms[request[1]], int(request[2]))
    print(json.dumps(answer), flush=True)
