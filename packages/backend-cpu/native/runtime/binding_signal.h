// Tells JavaScript from any thread that something is done: a call on its thread, many at a time as one. Part
// of binding.cc, and like it allowed to know Node-API.
#ifndef LAZULI_RUNTIME_BINDING_SIGNAL_H
#define LAZULI_RUNTIME_BINDING_SIGNAL_H

#include <node_api.h>

#include <atomic>

namespace lazuli {

class Signal {
 public:
  // False when `callback` is no function. The signal does not keep the process alive until it is held.
  bool open(napi_env env, napi_value callback) {
    napi_value name;
    return napi_create_string_utf8(env, "lazuli", NAPI_AUTO_LENGTH, &name) == napi_ok &&
           napi_create_threadsafe_function(env, callback, nullptr, name, 0, 1, nullptr, nullptr, this,
                                           deliver, &function_) == napi_ok &&
           napi_unref_threadsafe_function(env, function_) == napi_ok;
  }

  void hold(napi_env env, bool held) {
    if (!function_) return;
    if (held) {
      napi_ref_threadsafe_function(env, function_);
    } else {
      napi_unref_threadsafe_function(env, function_);
    }
  }

  // For any thread.
  void raise() {
    if (!raised_.exchange(true)) napi_call_threadsafe_function(function_, nullptr, napi_tsfn_nonblocking);
  }

 private:
  static void deliver(napi_env env, napi_value callback, void* self, void*) {
    if (!env) return;
    static_cast<Signal*>(self)->raised_ = false;
    napi_value nothing;
    if (napi_get_undefined(env, &nothing) == napi_ok)
      napi_call_function(env, nothing, callback, 0, nullptr, nullptr);
  }

  napi_threadsafe_function function_ = nullptr;
  std::atomic<bool> raised_{false};
};

}  // namespace lazuli

#endif
