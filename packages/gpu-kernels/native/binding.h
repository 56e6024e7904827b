// The common part of the bindings of GPU backends: arguments as C++ has them, and errors with the code that
// JavaScript knows.
#ifndef LAZULI_GPU_BINDING_H
#define LAZULI_GPU_BINDING_H

#include <napi.h>

#include <iterator>
#include <string>

namespace lz {

using Info = const Napi::CallbackInfo&;

inline Napi::Error error(Napi::Env env, const std::string& message, const char* code = "ERR_LAZULI_NATIVE") {
  Napi::Error made = Napi::Error::New(env, message);
  made.Set("code", code);
  return made;
}

// An argument as a number; 0 where it is none.
inline double number(Info info, size_t i) {
  double value = 0;
  napi_get_value_double(info.Env(), info[i], &value);
  return value;
}

struct Bytes {
  char* data;
  size_t length;
};
// The bytes of a view or of an ArrayBuffer. By Node-API's functions, because it is part of every run: the
// wrapper's classes ask four questions of a typed array where these ask two.
inline Bytes bytes(napi_env env, napi_value value, const char* expected) {
  napi_typedarray_type type;
  void* data = nullptr;
  size_t length = 0;
  if (napi_get_typedarray_info(env, value, &type, &length, &data, nullptr, nullptr) == napi_ok) {
    constexpr size_t kSizes[] = {1, 1, 1, 2, 2, 4, 4, 4, 8, 8, 8};
    if (size_t(type) < std::size(kSizes)) return {static_cast<char*>(data), length * kSizes[type]};
  }
  if (napi_get_dataview_info(env, value, &length, &data, nullptr, nullptr) == napi_ok ||
      napi_get_arraybuffer_info(env, value, &data, &length) == napi_ok)
    return {static_cast<char*>(data), length};
  throw error(env, expected);
}
inline Bytes bytes(Info info, size_t i, const char* expected) { return bytes(info.Env(), info[i], expected); }

}  // namespace lz

#endif
