// Node-API: the only file that knows JavaScript.
#include <node_api.h>

#include "runtime/registry.h"
#include "simd/targets.h"

namespace {

napi_value kernels(napi_env env, napi_callback_info) {
  const auto names = lazuli::registry().names();
  napi_value out;
  napi_create_array_with_length(env, names.size(), &out);
  for (size_t i = 0; i < names.size(); i++) {
    napi_value name;
    napi_create_string_utf8(env, names[i].data(), names[i].size(), &name);
    napi_set_element(env, out, uint32_t(i), name);
  }
  return out;
}

napi_value simd_target(napi_env env, napi_callback_info) {
  napi_value out;
  napi_create_string_utf8(env, lazuli::simd_target_name(), NAPI_AUTO_LENGTH, &out);
  return out;
}

}  // namespace

NAPI_MODULE_INIT() {
  const napi_property_descriptor properties[] = {
      {"kernels", nullptr, kernels, nullptr, nullptr, nullptr, napi_enumerable, nullptr},
      {"simdTarget", nullptr, simd_target, nullptr, nullptr, nullptr, napi_enumerable, nullptr},
  };
  napi_define_properties(env, exports, sizeof properties / sizeof *properties, properties);
  return exports;
}
