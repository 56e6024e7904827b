"""PyTorch's times for lm-gpu.ts: a Llama of 8 billion random weights, its layers by torch.compile, a static cache, one CUDA graph a step.
4 bits by torch._weight_int4pack_mm in groups of 64. The rows of transformers are of its LlamaForCausalLM with its StaticCache, compiled as
a whole: by `generate`, and by a loop of its own around the compiled model, which hands no token to the host. Arguments: layers, batches,
context, and a regular expression of rows."""
import json
import re
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
WANTED = sys.argv[4] if len(sys.argv) > 4 else ""
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


def transformers_model(kind):
    from transformers import LlamaConfig, LlamaForCausalLM

    config = LlamaConfig(
        hidden_size=HIDDEN, intermediate_size=INNER, num_hidden_layers=LAYERS, num_attention_heads=HEADS, num_key_value_heads=KV,
        vocab_size=WORDS, max_position_embeddings=8192, rms_norm_eps=1e-5, rope_parameters={"rope_type": "default", "rope_theta": 500000.0},
        tie_word_embeddings=False, bos_token_id=None, eos_token_id=None, pad_token_id=0,
    )
    model = LlamaForCausalLM._from_config(config, dtype=HALF).eval()
    if kind is Packed:
        for module in list(model.modules()):
            for name, child in list(module.named_children()):
                if isinstance(child, torch.nn.Linear):
                    setattr(module, name, Packed(child.in_features, child.out_features))
    return model


def generate_time(model, batch):
    """A median step of `generate`, whose tokens the host sees."""
    from transformers import CompileConfig, StoppingCriteria

    taken = []

    class Clock(StoppingCriteria):
        def __call__(self, tokens, scores, **_):
            taken.append(time.perf_counter())
            return torch.zeros(tokens.shape[0], dtype=torch.bool)

    prompt = torch.randint(0, WORDS, (batch, CONTEXT))
    model.generate(
        prompt, attention_mask=torch.ones_like(prompt), max_new_tokens=80, do_sample=False, max_cache_len=ROOM, cache_implementation="static",
        compile_config=CompileConfig(mode="reduce-overhead", fullgraph=True), stopping_criteria=[Clock()],
    )
    assert len(taken) == 80, len(taken)
    return sorted((b - a) * 1e3 for a, b in zip(taken[-65:], taken[-64:]))[32]


def loop_time(model, batch, mode):
    """A mean step of the compiled model and argmax."""
    from transformers import StaticCache

    cache = StaticCache(config=model.config, max_cache_len=ROOM)
    tokens = torch.zeros(batch, 1, dtype=torch.long)
    torch._dynamo.mark_static_address(tokens)
    model(torch.randint(0, WORDS, (batch, CONTEXT)), past_key_values=cache, logits_to_keep=1)

    def step(tokens):
        logits = model(tokens, past_key_values=cache, use_cache=True).logits
        return logits[:, -1].argmax(-1, keepdim=True)

    step = torch.compile(step, mode=mode, fullgraph=True)
    for count in (8, 64):
        torch.cuda.synchronize()
        begin = time.perf_counter()
        for _ in range(count):
            torch.compiler.cudagraph_mark_step_begin()
            tokens.copy_(step(tokens))
        torch.cuda.synchronize()
        taken = (time.perf_counter() - begin) * 1e3 / count
    assert int(cache.get_seq_length()) == CONTEXT + 72, cache.get_seq_length()
    return taken


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


def add(name, batch, body):
    begin = time.perf_counter()
    try:
        ms = body()
        print(f"{name}, {batch} at once: {ms:.3f} ms a step ({time.perf_counter() - begin:.0f} s)", flush=True)
        rows.append({"name": name, "many": batch, "ms": ms})
    except Exception as error:
        print(f"{name}, {batch} at once: {str(error)[:300]}", flush=True)


for title, kind in (("bfloat16", Dense), ("4 bits", Packed)):
    with torch.no_grad():
        if re.search(WANTED, title):
            model = Model(kind)
            layer = torch.compile(lambda own, *rest: own(*rest))
            for batch in BATCHES:
                add(title, batch, lambda: measure(model, layer, batch))
            del model
            torch.cuda.empty_cache()
        ways = {f"transformers' generate, {title}": generate_time}
        for mode in ("reduce-overhead", "max-autotune"):
            ways[f"transformers' model, {mode}, {title}"] = lambda model, batch, mode=mode: loop_time(model, batch, mode)
        ways = {name: way for name, way in ways.items() if re.search(WANTED, name)}
        if not ways:
            continue
        model = transformers_model(kind)
        for name, way in ways.items():
            for batch in BATCHES:
                add(name, batch, lambda: way(model, batch))
        del model
        torch.cuda.empty_cache()
print(json.dumps({"copies": copies, "rows": rows}))
