// Elements of arrays by cudaDataType, for the doubles of CUDA's libraries.
#pragma once

#include <cstdint>
#include <cstdlib>
#include <cstring>
#include <string>

namespace lz {

inline float from_half(uint16_t h) {
  _Float16 f;
  std::memcpy(&f, &h, 2);
  return float(f);
}
inline double read(const void* at, int type, int64_t i) {
  switch (type) {
    case 0:
      return static_cast<const float*>(at)[i];
    case 1:
      return static_cast<const double*>(at)[i];
    case 2:
      return from_half(static_cast<const uint16_t*>(at)[i]);
    default: {
      const uint32_t bits = uint32_t(static_cast<const uint16_t*>(at)[i]) << 16;
      float f;
      std::memcpy(&f, &bits, 4);
      return f;
    }
  }
}
inline void write(void* at, int type, int64_t i, double v) {
  switch (type) {
    case 0:
      static_cast<float*>(at)[i] = float(v);
      break;
    case 1:
      static_cast<double*>(at)[i] = v;
      break;
    case 2: {
      const _Float16 h = _Float16(v);
      std::memcpy(static_cast<uint16_t*>(at) + i, &h, 2);
      break;
    }
    default: {
      const float f = float(v);
      uint32_t bits;
      std::memcpy(&bits, &f, 4);
      bits += 0x7fff + (bits >> 16 & 1);
      static_cast<uint16_t*>(at)[i] = uint16_t(bits >> 16);
    }
  }
}

// True where LAZULI_CUDA_DOUBLE names a failure, among others.
inline bool asked(const char* failure) {
  const char* all = std::getenv("LAZULI_CUDA_DOUBLE");
  return all && (std::string(",") + all + ",").find(std::string(",") + failure + ",") != std::string::npos;
}

}  // namespace lz
