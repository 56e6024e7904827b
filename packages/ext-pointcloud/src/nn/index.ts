/**
 * Networks for point clouds, for those who have @lazuli/nn: PointCNN and PointNet.
 */
export {
  type EncodedClouds,
  PointCNN,
  PointCNNEncoder,
  type PointCNNLayer,
  PointCNNSegmenter,
} from "./point-cnn"
export {
  type ConvolutionOptions,
  type LocalFrame,
  PointCNNConv,
  type PointCNNConvOptions,
} from "./point-cnn-conv"
export { PointNet } from "./point-net"
