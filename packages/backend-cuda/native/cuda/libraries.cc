// Commands that CUDA's libraries carry out: their words, as the files of src/ write them, and the operands.
#include <algorithm>
#include <cstring>

#include "cuda/device.h"

namespace lz {

std::string Gpu::product(const Binding* bindings, const uint32_t* words, uint32_t count) {
  // 64-bit integers in pairs of words, and two doubles; src/products.ts writes them.
  int64_t v[16];
  if (count != 2 * 18) return "the record is malformed";
  std::memcpy(v, words, sizeof v);
  Product q{};
  q.type = int(v[0]);
  q.compute = int(v[1]);
  q.transposed_a = int(v[2]);
  q.transposed_b = int(v[3]);
  q.m = v[4];
  q.n = v[5];
  q.k = v[6];
  q.row_a = v[7];
  q.row_b = v[8];
  q.row_c = v[9];
  q.row_d = q.m;
  q.batch = v[10];
  q.step_a = v[11];
  q.step_b = v[12];
  q.step_c = v[13];
  q.step_d = v[14];
  q.epilogue = v[15];
  std::memcpy(&q.alpha, words + 32, sizeof(double));
  std::memcpy(&q.beta, words + 34, sizeof(double));
  const DevicePointer d = bindings[2].pointer;
  // Without an addend the result stands for it: a factor of 0 leaves it unread.
  const DevicePointer c = q.beta == 0 ? d : bindings[3].pointer;
  return current_->products.run(
      *driver_, q, {bindings[0].pointer, bindings[1].pointer, c, d, bindings[3].pointer}, current_->stream);
}

std::string Gpu::convolution(const Binding* bindings, const uint32_t* words, uint32_t count) {
  Convolution work;
  if (count != kConvolutionWords) return "the record is malformed";
  std::memcpy(&work, words, sizeof work);
  return current_->convolutions.run(
      *driver_, work, {bindings[0].pointer, bindings[1].pointer, bindings[2].pointer}, current_->stream);
}

std::string Gpu::transform(const Binding* bindings, const uint32_t* words, uint32_t count) {
  Transform work;
  if (count != kTransformWords) return "the record is malformed";
  std::memcpy(&work, words, sizeof work);
  return current_->transforms.run(*driver_, work, bindings[0].pointer, bindings[1].pointer, current_->stream);
}

std::string Gpu::factorization(const Binding* bindings, const uint32_t* words, uint32_t count, size_t at) {
  Factorization work;
  if (count != kFactorizationWords) return "the record is malformed";
  std::memcpy(&work, words, sizeof work);
  DevicePointer arrays[kFactorizationArrays];
  for (size_t i = 0; i < kFactorizationArrays; i++) arrays[i] = bindings[i].pointer;
  if (std::string error = current_->factorizations.run(*driver_, work, arrays, current_->stream);
      !error.empty())
    return error;
  for (size_t first = 0; work.verdict >= 0 && first < size_t(work.count); first += Verdicts::kMost) {
    const size_t each = std::min(Verdicts::kMost, size_t(work.count) - first);
    if (!verdicts_.fits(each)) {
      if (std::string error = synchronize(-1); !error.empty()) return error;
      verdicts_.conclude();
    }
    if (std::string error = verdicts_.add(*driver_, arrays[1] + first * sizeof(int), each,
                                          {runs_, at, work.verdict}, current_->stream);
        !error.empty())
      return error;
  }
  return {};
}

std::string Gpu::collective(const Binding* bindings, const uint32_t* words, uint32_t count,
                            const Queue& queue) {
  const uint32_t parts = count < kCollectiveWords ? 0 : (count - kCollectiveWords) / kPartWords;
  if (parts == 0 || count != kCollectiveWords + parts * kPartWords || 2 * parts > kBuffers)
    return "the record is malformed";
  Collective work{int(words[0]), int(words[1]), int(words[2]), int(words[3]), {}};
  for (uint32_t i = 0; i < parts; i++) {
    const uint32_t* w = words + kCollectiveWords + i * kPartWords;
    work.parts.push_back({int(w[0]), {w[1], w[2]}, bindings[2 * i].pointer, bindings[2 * i + 1].pointer});
  }
  return collectives_.run(work, queue.stream);
}

std::string Gpu::begin_join(const CollectiveId& id, int rank, int size) {
  if (std::string error = enter(); !error.empty()) return error;
  return collectives_.begin_join(id, rank, size, [driver = driver_, context = context_] {
    const Result r = driver->CtxSetCurrent(context);
    return r ? "cuCtxSetCurrent failed: " + driver->describe(r) : std::string();
  });
}

std::string Gpu::operation_graph(const Binding* bindings, const uint32_t* words, uint32_t count) {
  const size_t arrays = count == 1 ? operation_graphs_.arrays(words[0]) : 0;
  if (arrays == 0 || arrays > kBuffers) return "the record is malformed";
  std::vector<DevicePointer> at;
  for (size_t i = 0; i < arrays; i++) at.push_back(bindings[i].pointer);
  return operation_graphs_.run(*driver_, words[0], at, current_->stream);
}

}  // namespace lz
