// ONNX Runtime on its CPU provider, a model of a node or a few for each workload, as a contestant. It runs models, not arrays: rows that
// build arrays or train stay empty.
import onnxProto from "onnx-proto"
import { InferenceSession, Tensor } from "onnxruntime-node"
import { numbers, serve } from "../dist/serve.js"

const { onnx } = onnxProto
const FLOAT = onnx.TensorProto.DataType.FLOAT
const size = (shape) => shape.reduce((a, b) => a * b, 1)
const described = (name, shape) => ({
  name,
  type: { tensorType: { elemType: FLOAT, shape: { dim: (shape ?? []).map((dimValue) => ({ dimValue })) } } },
})
const kinds = { int: 2, ints: 7, string: 3 }
const attribute = ([name, value]) =>
  Array.isArray(value)
    ? { name, type: kinds.ints, ints: value }
    : typeof value === "string"
      ? { name, type: kinds.string, s: new TextEncoder().encode(value) }
      : { name, type: kinds.int, i: value }
const node = (opType, input, output, attributes = {}) => ({
  opType,
  input,
  output: [output],
  attribute: Object.entries(attributes).map(attribute),
})
/** A number that the model holds, or a list of axes. */
const scalar = (name, value) => ({ name, dataType: FLOAT, dims: [], floatData: [value] })
const axes = (...values) => ({
  name: "axes",
  dataType: onnx.TensorProto.DataType.INT64,
  dims: [values.length],
  int64Data: values,
})

/** Runs nodes over inputs named x, y, z; the last one writes "out". */
const model =
  (nodes, shapes, { initializer = [], elemType = FLOAT } = {}) =>
  async () => {
    const names = ["x", "y", "z"].slice(0, shapes.length)
    const bytes = onnx.ModelProto.encode({
      irVersion: 8,
      opsetImport: [{ domain: "", version: 20 }],
      graph: {
        name: "workload",
        node: nodes,
        initializer,
        input: names.map((name, i) => described(name, shapes[i])),
        output: [{ name: "out", type: { tensorType: { elemType } } }],
      },
    }).finish()
    const session = await InferenceSession.create(bytes, { graphOptimizationLevel: "all" })
    const feeds = Object.fromEntries(
      names.map((name, i) => [name, new Tensor("float32", numbers(size(shapes[i])), shapes[i])]),
    )
    return () => session.run(feeds)
  }
const one = (opType, shapes, attributes, rest) =>
  model([node(opType, ["x", "y", "z"].slice(0, shapes.length), "out", attributes)], shapes, rest)
const reduce = (opType, ...over) =>
  model([node(opType, ["x", "axes"], "out", { keepdims: 0 })], [big], { initializer: [axes(...over)] })

const big = [4096, 4096]
const wide = [8, 1000, 1024]
const composedGelu = (shape) =>
  model(
    [
      node("Div", ["x", "root"], "a"),
      node("Erf", ["a"], "b"),
      node("Add", ["b", "one"], "c"),
      node("Mul", ["x", "c"], "d"),
      node("Div", ["d", "two"], "out"),
    ],
    [shape],
    { initializer: [scalar("root", Math.SQRT2), scalar("one", 1), scalar("two", 2)] },
  )

await serve({
  "one add, one eval (16 elements)": one("Add", [[16], [16]]),
  "add 4096²": one("Add", [big, big]),
  "multiply 4096²": one("Mul", [big, big]),
  "copy 4096²": one("Identity", [big]),
  "axpby 4096²": model(
    [node("Mul", ["x", "a"], "p"), node("Mul", ["y", "b"], "q"), node("Add", ["p", "q"], "out")],
    [big, big],
    { initializer: [scalar("a", 4), scalar("b", 2)] },
  ),
  "exp 8×1000×1024": one("Exp", [wide]),
  "erf 8×1000×1024": one("Erf", [wide]),
  "tanh 8×1000×1024": one("Tanh", [wide]),
  "gelu 8×1000×1024": one("Gelu", [wide]),
  "composed gelu 8×1000×1024": composedGelu(wide),
  "composed gelu 32×1000×4096": composedGelu([32, 1000, 4096]),
  "sum 4096², axis 0": reduce("ReduceSum", 0),
  "sum 4096², axis 1": reduce("ReduceSum", 1),
  "sum 4096², all": reduce("ReduceSum", 0, 1),
  "max 4096², axis 1": reduce("ReduceMax", 1),
  "argmax 4096², axis 1": one(
    "ArgMax",
    [big],
    { axis: 1, keepdims: 0 },
    { elemType: onnx.TensorProto.DataType.INT64 },
  ),
  "softmax 4096²": one("Softmax", [big], { axis: -1 }),
  "logsumexp 4096²": reduce("ReduceLogSumExp", 1),
  "layerNorm 4096×1024": one("LayerNormalization", [[4096, 1024], [1024], [1024]], { axis: -1 }),
  "matmul 64": one("MatMul", [
    [64, 64],
    [64, 64],
  ]),
  "matmul 512": one("MatMul", [
    [512, 512],
    [512, 512],
  ]),
  "matmul 1024": one("MatMul", [
    [1024, 1024],
    [1024, 1024],
  ]),
  "matmul 2048": one("MatMul", [
    [2048, 2048],
    [2048, 2048],
  ]),
  "matmul 1024, second transposed": one(
    "Gemm",
    [
      [1024, 1024],
      [1024, 1024],
    ],
    { transB: 1 },
  ),
  "matmul 64 × 128²": one("MatMul", [
    [64, 128, 128],
    [64, 128, 128],
  ]),
  // Channels come first in ONNX: the same work in another order.
  "conv2d 8×64×64×32, 64 of 3×3": one(
    "Conv",
    [
      [8, 32, 64, 64],
      [64, 32, 3, 3],
    ],
    { pads: [1, 1, 1, 1], strides: [1, 1] },
  ),
  "conv2d 8×56×56×256, 64 of 1×1": one("Conv", [
    [8, 256, 56, 56],
    [64, 256, 1, 1],
  ]),
  "conv2d 8×56×56×96, depthwise 7×7": one(
    "Conv",
    [
      [8, 96, 56, 56],
      [96, 1, 7, 7],
    ],
    { pads: [3, 3, 3, 3], group: 96 },
  ),
  "cumsum 1e7": model([node("CumSum", ["x", "axis"], "out")], [[10_000_000]], {
    initializer: [{ name: "axis", dataType: onnx.TensorProto.DataType.INT64, dims: [], int64Data: [0] }],
  }),
})
