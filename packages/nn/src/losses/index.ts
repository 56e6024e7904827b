/**
 * Loss functions. Each ends with a reduction: `none` gives one value an example, `mean` and `sum` one for all.
 */
export * from "./classification"
export type { Loss, Reduction } from "./reduction"
export * from "./regression"
export * from "./similarity"
