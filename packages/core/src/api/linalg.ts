/**
 * `mx.linalg`: matrix factorizations, linear solvers, eigenvalues, determinants and norms, over the last two axes.
 */
export { cholesky, choleskyInv } from "../ops/linalg/cholesky"
export { cross } from "../ops/linalg/cross"
export { det, slogdet } from "../ops/linalg/det"
export { eig, eigvals } from "../ops/linalg/eig"
export { eigh, eigvalsh } from "../ops/linalg/eigh"
export { lu, luFactor } from "../ops/linalg/lu"
export { type NormOrder, norm } from "../ops/linalg/norm"
export { qr } from "../ops/linalg/qr"
export { inv, solve } from "../ops/linalg/solve"
export { pinv, svd } from "../ops/linalg/svd"
export { solveTriangular, triInv } from "../ops/linalg/triangular"
