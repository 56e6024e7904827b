// `mx`: the arrays of core together with the transforms and the compiler, as MLX has them in one namespace.

export * from '@lazuli/compile'
export * from '@lazuli/core'
export * from '@lazuli/transforms'
