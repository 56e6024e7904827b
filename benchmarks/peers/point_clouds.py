"""Point clouds by plain loops in PyTorch, in float64: reads the inputs of point-cloud-checks.ts from one file, and writes results and gradients to another."""

import sys

import numpy as np
import torch

given = np.load(sys.argv[1])
results = {}


def floats(name):
    return torch.from_numpy(given[name]).double().requires_grad_()


def integers(name):
    return [int(i) for i in given[name]]


def keep(name, out, *inputs):
    """The result, and the gradients of the sum of its squares."""
    results[name] = out.detach().numpy()
    if inputs:
        for i, gradient in enumerate(torch.autograd.grad(out.square().sum(), inputs)):
            results[f"{name}, gradient {i}"] = gradient.numpy()


def summed(rows, at, products):
    """products[t] added at row at[t], one after the other."""
    out = [torch.zeros_like(products[0]) for _ in range(rows)]
    for t, row in enumerate(at):
        out[row] = out[row] + products[t]
    return torch.stack(out)


a, b, x, p, q = (floats(name) for name in ("a", "b", "x", "p", "q"))
i, j, o = (integers(name) for name in ("i", "j", "o"))
rows = int(given["rows"])

keep("mvmr", summed(rows, o, [(a[t] @ b[j[t]].unsqueeze(2)).squeeze(2) for t in range(len(j))]), a, b)
keep("vvor", summed(rows, o, [x[i[t]].unsqueeze(2) * b[j[t]].unsqueeze(1) for t in range(len(j))]), x, b)

reduced = {"sum": lambda r: r.sum(0), "mean": lambda r: r.mean(0), "max": lambda r: r.amax(0), "min": lambda r: r.amin(0)}
members = [[t for t in range(len(o)) if o[t] == row] for row in range(rows)]
for name, reduction in reduced.items():
    keep(f"segment {name}", torch.stack([reduction(a[own]) for own in members]), a)
softmax = [None] * len(o)
for own in members:
    for t, row in zip(own, a[own].softmax(0)):
        softmax[t] = row
keep("segment softmax", torch.stack(softmax), a)

pairs = list(zip(integers("from"), integers("to")))
difference = {
    "euclidean": lambda u, v: torch.linalg.norm(u - v),
    "squared": lambda u, v: (u - v).square().sum(),
    "cosine": lambda u, v: 1 - torch.nn.functional.cosine_similarity(u, v, dim=0),
}
for name, distance in difference.items():
    keep(f"distances, {name}", torch.stack([distance(p[s], q[t]) for s, t in pairs]), p, q)
    keep(f"all distances, {name}", torch.stack([torch.stack([distance(u, v) for v in q]) for u in p]), p, q)

with torch.no_grad():
    near = torch.stack([torch.stack([(u - v).double().square().sum() for u in p]) for v in q])
    results["neighbours"] = near.topk(4, 1, False).indices.numpy()
    balls = []
    for row in near:
        inside = [k for k, d in enumerate(row) if d <= float(given["radius"]) ** 2][:4]
        balls.append(inside + [-1] * (4 - len(inside)))
    results["balls"] = np.array(balls)
    chosen = [0]
    for _ in range(9):
        far = torch.stack([min((p[k] - p[c]).double().square().sum() for c in chosen) for k in range(len(p))])
        chosen.append(int(far.argmax()))
    results["farthest points"] = np.array(chosen)

values, dense = floats("values"), floats("dense")
row, column = integers("row"), integers("column")
keep("COO product", summed(rows, row, [values[t] * dense[column[t]] for t in range(len(row))]), values, dense)
sampled = [(a.flatten(1)[row[t]] * a.flatten(1)[column[t]]).sum() for t in range(len(row))]
keep("sampled product", torch.stack(sampled), a)

lengths = integers("lengths")
keep("repeat", torch.repeat_interleave(p, torch.tensor(integers("counts")), 0), p)
runs = p.split(lengths)
keep("padding", torch.nn.utils.rnn.pad_sequence(list(runs), batch_first=True), p)
keep("topk", torch.stack([r.sort().values[-3:] for r in p.T]), p)
index = torch.tensor(o).reshape(-1, 1, 1, 1).expand_as(a)
start = torch.ones(rows, *a.shape[1:], dtype=torch.float64)
for name, reduction in {"sum": "sum", "prod": "prod", "max": "amax", "min": "amin"}.items():
    keep(f"scatter {name}", start.scatter_reduce(0, index, a, reduction), *([a] if name == "sum" else []))

np.savez(sys.argv[2], **results)
