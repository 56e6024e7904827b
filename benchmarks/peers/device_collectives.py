"""All-reduce of 100 MB and DDP training of a GPT-2 small by PyTorch and NCCL: `torchrun --nproc-per-node 2 benchmarks/peers/device_collectives.py`."""
import json
import os
import sys
import time

import torch
import torch.distributed as dist

sys.path.insert(0, os.path.dirname(__file__))
from gpu_pytorch import Gpt

rank, size = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
torch.set_default_device("cuda")
if size > 1:
    dist.init_process_group("nccl")
megabytes = int(sys.argv[1]) if len(sys.argv) > 1 else 100


def timed(calls, rounds, body, warm=3):
    least = float("inf")
    for i in range(rounds + warm):
        if size > 1:
            dist.barrier()
        torch.cuda.synchronize()
        begin = time.perf_counter()
        for _ in range(calls):
            body()
        torch.cuda.synchronize()
        if i >= warm:
            least = min(least, (time.perf_counter() - begin) * 1e3 / calls)
    return least


results = {"ranks": size}
if size > 1:
    x = torch.ones(megabytes * 250_000)
    ms = timed(10, 20, lambda: dist.all_reduce(x), 60)
    results[f"all-reduce of {megabytes} MB, ms"] = ms
    results["bus bandwidth, GB/s"] = megabytes / 1000 * 2 * (size - 1) / size / (ms / 1000)
model = Gpt().to(torch.bfloat16)
if size > 1:
    model = torch.nn.parallel.DistributedDataParallel(model)
optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.01, fused=True)
tokens = torch.randint(0, 32_000, (8, 1024))


def step():
    loss = model(tokens, tokens)
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()


results["GPT-2 small step, bf16, ms"] = timed(4, 4, step)
if rank == 0:
    print(json.dumps(results), flush=True)
if size > 1:
    dist.destroy_process_group()
