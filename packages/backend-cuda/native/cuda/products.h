// Products of matrices by cuBLASLt, opened when it is first asked for. Matrices lie by columns, as the
// library has it.
#pragma once

#include <cstdint>
#include <string>
#include <unordered_map>
#include <vector>

#include "cuda/driver.h"

namespace lz {

// D = alpha · op(A) · op(B) + beta · C + bias, of m × n over k, and what is done with it.
struct Product {
  int type;     // cudaDataType of all matrices
  int compute;  // cublasComputeType_t
  int transposed_a, transposed_b;
  int64_t m, n, k;
  int64_t row_a, row_b, row_c, row_d;  // from a column to the next, in elements
  int64_t batch;
  int64_t step_a, step_b, step_c, step_d;  // from a matrix of the batch to the next
  int64_t epilogue;                        // cublasLtEpilogue_t, or 0 for none
  double alpha, beta;
};
struct Operands {
  DevicePointer a, b, c, d, bias;
};

// Opens the library. Returns what is wrong, or an empty string.
std::string open_products(const std::vector<std::string>& candidates, std::string* path);

class Products {
 public:
  Products() = default;
  Products(const Products&) = delete;
  ~Products();

  // Adds a product to a stream. Returns what is wrong, or an empty string.
  std::string run(const Driver& driver, const Product& product, const Operands& operands, Stream stream);
  void close(const Driver& driver);

 private:
  struct Prepared {
    void *operation, *a, *b, *c, *d;
    uint64_t algorithm[8];
    size_t workspace;
  };
  std::string prepare(const Product& product, int alignment, Prepared* made);

  void* handle_ = nullptr;
  DevicePointer workspace_ = 0;
  std::unordered_map<std::string, Prepared> prepared_;
};

}  // namespace lz
