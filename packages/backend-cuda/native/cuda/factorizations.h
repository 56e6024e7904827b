// Factorizations of matrices by cuSOLVER, opened when it is first asked for. Matrices lie by columns, as the
// library has it.
#pragma once

#include <cstdint>
#include <string>
#include <utility>
#include <vector>

#include "cuda/driver.h"

namespace lz {

// Work on each matrix of a batch. src/factorizations.ts writes it.
struct Factorization {
  enum Work : int {
    kLu = 0,        // pivots, from 1 on
    kSolve = 1,     // with such factors and pivots, what is asked for follows them
    kCholesky = 2,  // option: the triangle
    kQr = 3,        // reflections and their factors
    kQ = 4,         // the first columns of their product, in place
    kEigen = 5,     // option: the triangle, and 2 where vectors are asked for
    kSvd = 6,       // option: 'A', 'S' or 'N'; at least as many rows as columns
    kVerdict = 7,   // nothing but the verdict
  };
  int work;
  int type;  // cudaDataType
  int count, rows, columns;
  int step;     // elements from a matrix to the next
  int others;   // columns of what is solved for
  int option;   // of kSolve: cublasOperation_t
  int verdict;  // the caller's number for what has no result, or −1 where all have
};
constexpr size_t kFactorizationWords = sizeof(Factorization) / sizeof(int);
// Matrices, an integer for each of them that tells whether there is a result, and up to three more arrays.
constexpr size_t kFactorizationArrays = 5;

// Opens the library. Returns what is wrong, or an empty string.
std::string open_factorizations(const std::vector<std::string>& candidates, std::string* path);

class Factorizations {
 public:
  Factorizations() = default;
  Factorizations(const Factorizations&) = delete;

  // Adds work to a stream. Returns what is wrong, or an empty string.
  std::string run(const Driver& driver, const Factorization& work,
                  const DevicePointer (&at)[kFactorizationArrays], Stream stream);
  void close(const Driver& driver);

 private:
  std::string open(Stream stream);
  std::string reserve(const Driver& driver, Stream stream, size_t device, size_t host);

  void *handle_ = nullptr, *parameters_ = nullptr;
  DevicePointer workspace_ = 0;
  size_t workspace_size_ = 0;
  std::vector<char> host_workspace_;
};

// Integers that tell which matrices had results, on their way to the host.
class Verdicts {
 public:
  // A run of commands, the word of one of them, and the caller's number for what it came to.
  struct Failed {
    double run;
    size_t word;
    int verdict;
  };

  Verdicts() = default;
  Verdicts(const Verdicts&) = delete;

  // True if there is room for more; otherwise the streams must be waited for, and conclude() makes some.
  bool fits(size_t count) const { return used_ + count <= kMost; }
  static constexpr size_t kMost = 16384;
  // Adds the transfer of at most kMost integers to a stream.
  std::string add(const Driver& driver, DevicePointer from, size_t count, const Failed& if_any,
                  Stream stream);
  // Once all work is done.
  void conclude();
  std::vector<Failed> take() { return std::exchange(failed_, {}); }
  void close(const Driver& driver);

 private:
  struct Awaited {
    size_t first, count;
    Failed if_any;
  };
  int* data_ = nullptr;  // page-locked
  size_t used_ = 0;
  std::vector<Awaited> awaited_;
  std::vector<Failed> failed_;
};

}  // namespace lz
