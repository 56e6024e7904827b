// Weak references to JavaScript's objects, as the engine asks for them: with this addon alone, programs that
// never yield get their memory back too.
#include "cuda/handles.h"

#include <algorithm>

#include "runtime/binding_handles.h"

namespace lz {
namespace {

using lazuli::Handles;

Handles* arguments(napi_env env, napi_callback_info info, napi_value* argv, size_t count) {
  void* data = nullptr;
  for (size_t i = 0; i < count; i++) argv[i] = nullptr;
  napi_get_cb_info(env, info, &count, argv, nullptr, &data);
  return static_cast<Handles*>(data);
}

int32_t integer(napi_env env, napi_value value) {
  int32_t number = -1;
  if (value) napi_get_value_int32(env, value, &number);
  return number;
}

int32_t* integers(napi_env env, napi_value value, size_t* count) {
  napi_typedarray_type type;
  void* data = nullptr;
  *count = 0;
  if (!value || napi_get_typedarray_info(env, value, &type, count, &data, nullptr, nullptr) != napi_ok ||
      type != napi_int32_array)
    *count = 0;
  return static_cast<int32_t*>(data);
}

// track(objects, count, ids)
napi_value track(napi_env env, napi_callback_info info) {
  napi_value argv[3];
  Handles* handles = arguments(env, info, argv, 3);
  size_t room = 0;
  const int32_t* ids = integers(env, argv[2], &room);
  const int32_t count = integer(env, argv[1]);
  constexpr int32_t kBatch = 256;
  if (count < 0 || size_t(count) > room) {
    napi_throw_error(env, "ERR_LAZULI_NATIVE", "ids is shorter than count");
    return nullptr;
  }
  for (int32_t from = 0; from < count; from += kBatch) {
    napi_handle_scope scope;
    if (napi_open_handle_scope(env, &scope) != napi_ok) return nullptr;
    bool ok = true;
    for (int32_t i = from; i < std::min(count, from + kBatch) && ok; i++) {
      napi_value object = nullptr;
      ok = ids[i] >= 0 && napi_get_element(env, argv[0], uint32_t(i), &object) == napi_ok &&
           handles->track(env, object, uint32_t(ids[i]));
    }
    napi_close_handle_scope(env, scope);
    if (!ok) {
      napi_throw_error(env, "ERR_LAZULI_NATIVE", "an object or a number cannot be tracked");
      return nullptr;
    }
  }
  return nullptr;
}

// untrack(id)
napi_value untrack(napi_env env, napi_callback_info info) {
  napi_value argv[1];
  Handles* handles = arguments(env, info, argv, 1);
  handles->untrack(env, uint32_t(integer(env, argv[0])));
  return nullptr;
}

// isAlive(id)
napi_value is_alive(napi_env env, napi_callback_info info) {
  napi_value argv[1], made = nullptr;
  Handles* handles = arguments(env, info, argv, 1);
  napi_get_boolean(env, handles->alive(env, uint32_t(integer(env, argv[0]))), &made);
  return made;
}

// poll(all, out) → how many
napi_value poll(napi_env env, napi_callback_info info) {
  napi_value argv[2], made = nullptr;
  Handles* handles = arguments(env, info, argv, 2);
  size_t room = 0;
  int32_t* out = integers(env, argv[1], &room);
  napi_create_double(env, double(handles->poll(env, integer(env, argv[0]) == 1, out, room)), &made);
  return made;
}

// V8 collects at once when it is told of more memory outside its heap than it tolerates.
napi_value press_collector(napi_env env, napi_callback_info info) {
  constexpr int64_t kMuch = int64_t(1) << 50;
  int64_t now;
  napi_adjust_external_memory(env, kMuch, &now);
  napi_adjust_external_memory(env, -kMuch, &now);
  return nullptr;
}

}  // namespace

void add_handles(napi_env env, napi_value exports) {
  auto* handles = new Handles;
  struct Ending {
    napi_env env;
    Handles* handles;
  };
  // An environment that ends deletes no reference by itself.
  napi_add_env_cleanup_hook(
      env,
      [](void* data) {
        auto* ending = static_cast<Ending*>(data);
        ending->handles->clear(ending->env);
        delete ending->handles;
        delete ending;
      },
      new Ending{env, handles});
  const struct {
    const char* name;
    napi_callback call;
  } all[] = {{"track", track},
             {"untrack", untrack},
             {"isAlive", is_alive},
             {"poll", poll},
             {"pressCollector", press_collector}};
  for (const auto& [name, call] : all) {
    napi_value f;
    napi_create_function(env, name, NAPI_AUTO_LENGTH, call, handles, &f);
    napi_set_named_property(env, exports, name, f);
  }
}

}  // namespace lz
