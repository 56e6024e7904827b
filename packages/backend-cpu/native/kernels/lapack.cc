// The one function of the Fortran runtime that LAPACK's routines call, for builds that link OpenBLAS
// statically: a package with a binary should not ask for a Fortran compiler's library.
#if !defined(LAZULI_ACCELERATE)

#include <algorithm>
#include <cstddef>

// a // b into `to`, cut or padded with blanks to its length.
extern "C" void _gfortran_concat_string(std::size_t length, char* to, std::size_t a_length, const char* a,
                                        std::size_t b_length, const char* b) {
  const std::size_t first = std::min(a_length, length), second = std::min(b_length, length - first);
  std::copy_n(a, first, to);
  std::copy_n(b, second, to + first);
  std::fill_n(to + first + second, length - first - second, ' ');
}

#endif
