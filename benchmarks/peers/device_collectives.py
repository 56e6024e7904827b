"""What benchmarks/src/device-collectives.ts measures, by PyTorch and NCCL: `torchrun --nproc-per-node 2 benchmarks/peers/device_collectives.py`."""
import json
import os
import statistics
import sys
import time
from contextlib import contextmanager

import torch
import torch.distributed as dist
from torch.distributed.fsdp import fully_shard

sys.path.insert(0, os.path.dirname(__file__))
from gpu_pytorch import Gpt

rank, size = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
torch.cuda.set_device(int(os.environ.get("LOCAL_RANK", "0")))
torch.set_default_device("cuda")
host = None
if size > 1:
    dist.init_process_group("nccl")
    # Ranks wait for each other without work on GPUs.
    host = dist.new_group(backend="gloo")
megabytes = int(sys.argv[1]) if len(sys.argv) > 1 else 100


def meet():
    if host is not None:
        dist.barrier(group=host)


@contextmanager
def turn():
    """While no other job runs that has the same folder in TURNS."""
    folder = os.environ.get("TURNS") if rank == 0 else None
    while folder:
        time.sleep(0.002)
        try:
            os.mkdir(folder)
            break
        except FileExistsError:
            pass
    meet()
    yield
    meet()
    if folder:
        os.rmdir(folder)


def slowest(ms):
    if host is None:
        return ms
    most = torch.tensor([ms], device="cpu")
    dist.all_reduce(most, op=dist.ReduceOp.MAX, group=host)
    return most.item()


def timed(rows, calls, rounds, warm):
    times = {name: [] for name in rows}
    for i in range(rounds + warm):
        with turn():
            for name, (body, alone) in rows.items():
                runs = not alone or rank == 0
                if runs:
                    body()
                torch.cuda.synchronize()
                meet()
                begin = time.perf_counter()
                if runs:
                    for _ in range(calls):
                        body()
                torch.cuda.synchronize()
                ms = slowest((time.perf_counter() - begin) * 1e3 / calls)
                if i >= warm:
                    times[name].append(ms)
    return {name: statistics.median(all) for name, all in times.items()}


def gpt_step(wrap):
    torch.manual_seed(1)
    model = wrap(Gpt().to(torch.bfloat16))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-4, weight_decay=0.01, fused=True)
    tokens = torch.randint(0, 32_000, (8, 1024))

    def step():
        loss = model(tokens, tokens)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return step


def data_parallel(model):
    return torch.nn.parallel.DistributedDataParallel(model, gradient_as_bucket_view=True)


def sharded(model):
    for part in [model.words, *model.blocks, model.head, model]:
        fully_shard(part)
    return model


results = {"ranks": size}
if size > 1:
    x = torch.ones(megabytes * 250_000)
    calls = 10

    def sums():
        for _ in range(calls):
            dist.all_reduce(x)

    def waited_for():
        for _ in range(calls):
            dist.all_reduce(x)
            torch.cuda.synchronize()

    rows = {"call after call": (sums, False), "waited for": (waited_for, False)}
    for name, all in timed(rows, 1, 40, 20).items():
        ms = all / calls
        results[f"all-reduce of {megabytes} MB, {name}, ms"] = ms
        results[f"{name}, GB/s"] = megabytes / 1000 * 2 * (size - 1) / size / (ms / 1000)
steps = {"GPT-2 small step, bf16, one GPU, ms": (gpt_step(lambda model: model), True)}
if size > 1:
    steps["each alone, ms"] = (gpt_step(lambda model: model), False)
    steps["data parallel, ms"] = (gpt_step(data_parallel), False)
    steps["fully sharded, ms"] = (gpt_step(sharded), False)
results.update(timed(steps, 4, 12, 3))
if rank == 0:
    print(json.dumps(results), flush=True)
if size > 1:
    del steps
    torch.cuda.empty_cache()
    before = torch.cuda.memory_allocated()
    step = gpt_step(sharded)
    step()
    torch.cuda.reset_peak_memory_stats()
    for _ in range(3):
        step()
    torch.cuda.synchronize()
    if rank == 0:
        print(json.dumps({"fully sharded at most, MB": round((torch.cuda.max_memory_allocated() - before) / 1e6)}))
    dist.destroy_process_group()
