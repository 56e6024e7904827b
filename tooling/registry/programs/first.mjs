// The time to import a set of packages, and to the first result. The set is the argument; the packages are those of the folder that this
// file lies in.
const sets = {
  core: async () => {
    const mx = await import("@lazuli/core")
    return [() => mx.array([1, 2]).add(1).tolist(), [2, 3]]
  },
  cpu: async () => {
    const [mx] = await Promise.all([import("@lazuli/core"), import("@lazuli/backend-cpu")])
    return [
      () =>
        mx.linalg
          .inv(
            mx.array([
              [2, 0],
              [0, 4],
            ]),
          )
          .tolist(),
      [
        [0.5, 0],
        [0, 0.25],
      ],
    ]
  },
  lazuli: async () => {
    const { mx } = await import("lazuli")
    return [
      () =>
        mx
          .grad((x) => x.square().sum())(mx.array([1, 2]))
          .tolist(),
      [2, 4],
    ]
  },
  metal: async () => {
    const [mx] = await Promise.all([import("@lazuli/core"), import("@lazuli/backend-metal")])
    mx.setDefaultDevice(mx.gpu)
    return [() => mx.array([1, 2]).add(1).tolist(), [2, 3]]
  },
  axpby: async () => {
    const [{ mx }, { axpby }] = await Promise.all([import("lazuli"), import("@lazuli/ext-axpby")])
    return [() => axpby(mx.array([1, 2]), mx.array([10, 20]), 3, 0.5).tolist(), [8, 16]]
  },
  distributed: async () => {
    const [mx] = await Promise.all([
      import("@lazuli/core"),
      import("@lazuli/backend-cpu"),
      import("@lazuli/distributed"),
    ])
    return [
      () => [mx.distributed.init().size(), mx.distributed.allSum(mx.array([1, 2])).tolist()],
      [1, [1, 2]],
    ]
  },
  lm: async () => {
    const [{ mx }, lm] = await Promise.all([import("lazuli"), import("@lazuli/lm")])
    return [() => [typeof lm.generate, mx.array([1, 2]).add(1).tolist()], ["function", [2, 3]]]
  },
  pointcloud: async () => {
    const [{ mx }, { knn }] = await Promise.all([import("lazuli"), import("@lazuli/ext-pointcloud")])
    const points = mx.array([
      [0, 0],
      [1, 0],
      [5, 5],
    ])
    return [
      () => knn(points, points, 2).tolist(),
      [
        [0, 1],
        [1, 0],
        [2, 1],
      ],
    ]
  },
}

const start = performance.now()
const [first, want] = await sets[process.argv[2]]()
const imported = performance.now() - start
const result = JSON.stringify(first())
if (result !== JSON.stringify(want)) throw new Error(`expected ${JSON.stringify(want)}, received ${result}`)
console.log(JSON.stringify({ imported, first: performance.now() - start }))
