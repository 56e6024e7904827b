"""PyTorch's times for lm-gpu.ts: a Llama of 8 billion random weights, its layers by torch.compile, a static cache, one CUDA graph a step.
4 bits by torch._weight_int4pack_mm in groups of 64. Arguments: layers, batches, context."""
import json
import sys
import time

import torch
import torch.nn.functional as F

torch.set_default_device("cuda")
torch._dynamo.config.automatic_dynamic_shapes = False
torch._dynamo.config.cache_size_limit = 64
LAYERS = int(sys.argv[1]) if len(sys.argv) > 1 else 32
BATCHES = [int(n) for n in (sys.argv[2] if len(sys.argv) > 2 else "1,8,64").split(",")]
CONTEXT = int(sys.argv[3]) if len(sys.argv) > 3 else 256
HIDDEN, INNER, HEADS, KV, D, WORDS, ROOM = 4096, 14336, 32, 8, 128, 128256, 512
HALF = torch.bfloat16


class Dense(torch.nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.empty(outputs, inputs, dtype=HALF).normal_(0, 0.02), False)

    def forward(self, x):
        return F.linear(x, self.weight)


class Packed(torch.nn.Module):
    def __init__(self, inputs, outputs):
        super().__init__()
        codes = torch.randint(0, 256, (outputs, inputs // 2), dtype=torch.uint8)
        self.register_buffer("weight", torch._convert_weight_to_int4pack(codes, 8))
        self.register_buffer("scales", torch.full((inputs // 64, outputs, 2), 0.004, dtype=HALF))
        self.outputs = outputs

    def forward(self, x):
        y = torch._weight_int4pack_mm(x.reshape(-1, x.shape[-1]), self.weight, 64, self.scales)
        return y.view(*x.shape[:-1], self.outputs)


def rotate(x, cos, sin):
    a, b = x.chunk(2, -1)
    return torch.cat((a * cos - b * sin, b * cos + a * sin), -1)


class Layer(torch.nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.first = torch.nn.RMSNorm(HIDDEN, eps=1e-5, dtype=HALF)
        self.second = torch.nn.RMSNorm(HIDDEN, eps=1e-5, dtype=HALF)
        self.qkv = kind(HIDDEN, (HEADS + 2 * KV) * D)
        self.out = kind(HEADS * D, HIDDEN)
        self.gate, self.up = kind(HIDDEN, INNER), kind(HIDDEN, INNER)
        self.down = kind(INNER, HIDDEN)

    def forward(self, x, keys, values, at, mask, cos, sin):
        batch = x.shape[0]
        q, k, v = self.qkv(self.first(x)).view(batch, 1, HEADS + 2 * KV, D).transpose(1, 2).split((HEADS, KV, KV), 1)
        q, k = rotate(q, cos, sin), rotate(k, cos, sin)
        keys.index_copy_(2, at, k)
        values.index_copy_(2, at, v)
        # Heads in groups, without copies of keys.
        scores = torch.matmul(q.reshape(batch, KV, HEADS // KV, D), keys.transpose(-1, -2)) * D**-0.5
        seen = torch.softmax(scores.float().masked_fill(~mask, float("-inf")), -1).to(HALF)
        y = torch.matmul(seen, values).reshape(batch, 1, HEADS * D)
        x = x + self.out(y)
        z = self.second(x)
        return x + self.down(F.silu(self.gate(z)) * self.up(z))


class Model(torch.nn.Module):
    def __init__(self, kind):
        super().__init__()
        self.words = torch.nn.Embedding(WORDS, HIDDEN, dtype=HALF)
        self.layers = torch.nn.ModuleList(Layer(kind) for _ in range(LAYERS))
        self.norm = torch.nn.RMSNorm(HIDDEN, eps=1e-5, dtype=HALF)
        self.head = kind(HIDDEN, WORDS)


def measure(model, layer, batch):
    caches = [torch.zeros(2, batch, KV, ROOM, D, dtype=HALF) for _ in range(LAYERS)]
    tokens = torch.zeros(batch, 1, dtype=torch.long)
    at = torch.tensor([CONTEXT])
    freqs = 500000.0 ** (-torch.arange(0, D, 2) / D)

    def step():
        angles = at.float() * freqs
        cos, sin = angles.cos().to(HALF), angles.sin().to(HALF)
        mask = torch.arange(ROOM) <= at
        x = model.words(tokens)
        for own, (keys, values) in zip(model.layers, caches):
            x = layer(own, x, keys, values, at, mask, cos, sin)
        tokens.copy_(model.head(model.norm(x)).argmax(-1))
        at.add_(1)

    stream = torch.cuda.Stream()
    with torch.cuda.stream(stream):
        for _ in range(3):
            step()
    torch.cuda.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        step()
    at.fill_(CONTEXT)
    taken = []
    for _ in range(64):
        begin = time.perf_counter()
        graph.replay()
        torch.cuda.synchronize()
        taken.append((time.perf_counter() - begin) * 1e3)
    return sorted(taken)[32]


x = torch.randn(2**30 // 4)
y = torch.empty_like(x)
taken = []
for _ in range(8):
    torch.cuda.synchronize()
    begin = time.perf_counter()
    y.copy_(x)
    torch.cuda.synchronize()
    taken.append(time.perf_counter() - begin)
copies = 2**31 / min(taken)
print(f"PyTorch {torch.__version__}: a copy moves {copies / 1e9:.0f} GB/s", flush=True)
del x, y
rows = []
for name, kind in (("bfloat16", Dense), ("4 bits", Packed)):
    begin = time.perf_counter()
    with torch.no_grad():
        model = Model(kind)
        layer = torch.compile(lambda own, *rest: own(*rest))
        for batch in BATCHES:
            try:
                ms = measure(model, layer, batch)
                print(f"{name}, {batch} at once: {ms:.3f} ms a step ({time.perf_counter() - begin:.0f} s)", flush=True)
                rows.append({"name": name, "many": batch, "ms": ms})
            except Exception as error:
                print(f"{name}, {batch} at once: {str(error)[:300]}", flush=True)
        del model
        torch.cuda.empty_cache()
print(json.dumps({"copies": copies, "rows": rows}))
