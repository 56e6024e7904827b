/**
 * Loss functions. Each ends with a reduction: `none` returns one value per example, `mean` and `sum` a scalar.
 */
export * from "./classification"
export type { Loss, Reduction } from "./reduction"
export * from "./regression"
export * from "./similarity"
