// A call from JavaScript: arguments with their checks, results, and the way from a C++ exception to a
// JavaScript error. Part of binding.cc, and like it allowed to know Node-API.
#ifndef LAZULI_RUNTIME_BINDING_CALL_H
#define LAZULI_RUNTIME_BINDING_CALL_H

#include <node_api.h>

#include <cmath>
#include <cstdint>
#include <cstring>
#include <stdexcept>
#include <string>
#include <vector>

namespace lazuli {

struct Instance;

// A bad argument: becomes a TypeError.
struct ArgumentError : std::runtime_error {
  using std::runtime_error::runtime_error;
};
// JavaScript threw already.
struct Pending {};

struct Bytes {
  char* data;
  size_t size;
};

class Call {
 public:
  Call(napi_env env, napi_callback_info info, const char* name) : env(env), name_(name) {
    size_t count = kMaxArguments;
    void* data;
    check(napi_get_cb_info(env, info, &count, arguments_, nullptr, &data));
    count_ = count < kMaxArguments ? count : size_t(kMaxArguments);
    instance = static_cast<Instance*>(data);
  }

  napi_env env;
  Instance* instance;

  [[noreturn]] void refuse(const std::string& what) const {
    throw ArgumentError(std::string("[") + name_ + "] " + what);
  }
  void check(napi_status status) const {
    if (status == napi_ok) [[likely]]
      return;
    if (status == napi_pending_exception) throw Pending{};
    const napi_extended_error_info* info = nullptr;
    napi_get_last_error_info(env, &info);
    refuse(info && info->error_message ? info->error_message : "Node-API failed");
  }

  bool has(size_t index) const {
    if (index >= count_) return false;
    napi_valuetype type;
    check(napi_typeof(env, arguments_[index], &type));
    return type != napi_undefined && type != napi_null;
  }
  napi_value value(size_t index, const char* what) const {
    if (index >= count_) refuse(std::string(what) + " is missing");
    return arguments_[index];
  }
  // An integer that a double holds exactly, not below `low`.
  int64_t integer(size_t index, const char* what, int64_t low = 0, int64_t high = int64_t(1) << 53) const {
    double number;
    if (napi_get_value_double(env, value(index, what), &number) != napi_ok)
      refuse(std::string(what) + " must be a number");
    if (!(number >= double(low) && number <= double(high)) || std::floor(number) != number) {
      refuse(std::string(what) + " must be an integer from " + std::to_string(low) + " to " +
             std::to_string(high) + ", received " + std::to_string(number));
    }
    return int64_t(number);
  }
  uint64_t address(size_t index, const char* what) const {
    uint64_t number;
    bool exact;
    if (napi_get_value_bigint_uint64(env, value(index, what), &number, &exact) != napi_ok || !exact) {
      refuse(std::string(what) + " must be a bigint below 2^64");
    }
    return number;
  }
  std::string text(size_t index, const char* what) const {
    size_t length;
    if (napi_get_value_string_utf8(env, value(index, what), nullptr, 0, &length) != napi_ok) {
      refuse(std::string(what) + " must be a string");
    }
    std::string out(length, '\0');
    check(napi_get_value_string_utf8(env, arguments_[index], out.data(), length + 1, &length));
    return out;
  }
  // The bytes of a typed array, a DataView or an ArrayBuffer.
  Bytes bytes(size_t index, const char* what) const {
    const napi_value it = value(index, what);
    bool is = false;
    void* data = nullptr;
    size_t size = 0;
    if (check(napi_is_typedarray(env, it, &is)), is) {
      napi_typedarray_type type;
      check(napi_get_typedarray_info(env, it, &type, &size, &data, nullptr, nullptr));
      constexpr uint8_t log_size[] = {0, 0, 0, 1, 1, 2, 2, 2, 3, 3, 3};
      // Kinds that came later have two bytes (Float16Array).
      size <<= size_t(type) < sizeof log_size ? log_size[type] : 1;
    } else if (check(napi_is_arraybuffer(env, it, &is)), is) {
      check(napi_get_arraybuffer_info(env, it, &data, &size));
    } else if (check(napi_is_dataview(env, it, &is)), is) {
      check(napi_get_dataview_info(env, it, &size, &data, nullptr, nullptr));
    } else {
      refuse(std::string(what) + " must be a typed array, a DataView or an ArrayBuffer");
    }
    return {static_cast<char*>(data), data ? size : 0};
  }
  // 64-bit words, copied so that they are aligned and stay.
  std::vector<int64_t> words(size_t index, const char* what) const {
    const Bytes from = bytes(index, what);
    if (from.size % 8) refuse(std::string(what) + " must hold whole 64-bit words");
    std::vector<int64_t> out(from.size / 8);
    if (from.size) std::memcpy(out.data(), from.data, from.size);
    return out;
  }
  struct Integers {
    int32_t* data;
    size_t count;
  };
  Integers int32s(size_t index, const char* what) const {
    const napi_value it = value(index, what);
    bool is = false;
    napi_typedarray_type type = napi_uint8_array;
    void* data = nullptr;
    size_t count = 0;
    check(napi_is_typedarray(env, it, &is));
    if (is) check(napi_get_typedarray_info(env, it, &type, &count, &data, nullptr, nullptr));
    if (!is || type != napi_int32_array) refuse(std::string(what) + " must be an Int32Array");
    return {static_cast<int32_t*>(data), data ? count : 0};
  }

  napi_value number(double value) const {
    napi_value out;
    check(napi_create_double(env, value, &out));
    return out;
  }
  napi_value boolean(bool value) const {
    napi_value out;
    check(napi_get_boolean(env, value, &out));
    return out;
  }
  napi_value string(const std::string& value) const {
    napi_value out;
    check(napi_create_string_utf8(env, value.data(), value.size(), &out));
    return out;
  }
  template <class Range, class F>
  napi_value array(const Range& range, F&& element) const {
    napi_value out;
    check(napi_create_array_with_length(env, range.size(), &out));
    uint32_t i = 0;
    for (const auto& each : range) check(napi_set_element(env, out, i++, element(each)));
    return out;
  }
  napi_value object(std::initializer_list<std::pair<const char*, napi_value>> fields) const {
    napi_value out;
    check(napi_create_object(env, &out));
    for (const auto& [key, value] : fields) check(napi_set_named_property(env, out, key, value));
    return out;
  }

 private:
  static constexpr size_t kMaxArguments = 6;
  const char* name_;
  size_t count_ = 0;
  napi_value arguments_[kMaxArguments];
};

}  // namespace lazuli

#endif
