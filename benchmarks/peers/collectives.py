"""All-reduce by Open MPI (through ctypes, under mpirun) and by gloo (PyTorch): microseconds of each size, as JSON."""
import ctypes
import json
import os
import sys
import time


def sizes_of(text):
    named = [int(n) for n in text.split(",")]
    n = 4
    while len(named) == 1 and n < named[0]:
        yield n
        n *= 16
    yield from named


def times_of(n, rounds, operations, barrier, run):
    laps, warm = [], max(3, min(300, (4 << 20) // n) // operations)
    for i in range(rounds + warm):
        barrier()
        begin = time.perf_counter()
        for _ in range(operations):
            run()
        if i >= warm:
            laps.append((time.perf_counter() - begin) * 1e6 / operations)
    laps.sort()
    return {"median": laps[len(laps) // 2], "least": laps[0]}


def measure(sizes, barrier, all_reduce):
    rows = {"call": {}, "in a row": {}}
    for n in sizes_of(sizes):
        run = all_reduce(n)
        rounds, row = max(6, min(400, (64 << 20) // n)), max(2, min(50, (16 << 20) // n))
        rows["call"][n] = times_of(n, rounds, 1, barrier, run)
        rows["in a row"][n] = times_of(n, max(4, rounds >> 3), row, barrier, run)
    return rows


def by_mpi(sizes):
    mpi = ctypes.CDLL("libmpi.so.40", ctypes.RTLD_GLOBAL)
    mpi.MPI_Init(None, None)
    symbol = lambda name: ctypes.c_void_p(ctypes.addressof(ctypes.c_char.in_dll(mpi, name)))
    world, floats, total = symbol("ompi_mpi_comm_world"), symbol("ompi_mpi_float"), symbol("ompi_mpi_op_sum")
    rank = ctypes.c_int()
    mpi.MPI_Comm_rank(world, ctypes.byref(rank))

    def all_reduce(n):
        a, b = (ctypes.c_float * (n // 4))(), (ctypes.c_float * (n // 4))()
        for each in a, b:
            ctypes.memset(each, 0, n)  # so that every page is there
        buffers = [a, b]

        def run():
            # Each sum is the next one's input, as in a row of ours and of gloo's.
            mpi.MPI_Allreduce(*buffers, ctypes.c_int(n // 4), floats, total, world)
            buffers.reverse()

        return run

    times = measure(sizes, lambda: mpi.MPI_Barrier(world), all_reduce)
    if rank.value == 0:
        print(json.dumps(times), flush=True)
    mpi.MPI_Finalize()


def by_gloo(sizes, rank, ranks, port):
    import torch
    import torch.distributed as dist

    torch.set_num_threads(1)
    dist.init_process_group("gloo", init_method=f"tcp://127.0.0.1:{port}", rank=rank, world_size=ranks)

    def all_reduce(n):
        x = torch.ones(n // 4)
        return lambda: dist.all_reduce(x)

    times = measure(sizes, dist.barrier, all_reduce)
    if rank == 0:
        print(json.dumps(times), flush=True)


if sys.argv[1] == "mpi":
    by_mpi(sys.argv[2])
else:
    ranks, port = int(sys.argv[3]), 20000 + os.getpid() % 10000
    others = []
    for rank in range(1, ranks):
        pid = os.fork()
        if pid == 0:
            by_gloo(sys.argv[2], rank, ranks, port)
            os._exit(0)
        others.append(pid)
    by_gloo(sys.argv[2], 0, ranks, port)
    for pid in others:
        os.waitpid(pid, 0)
