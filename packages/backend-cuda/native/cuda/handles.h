// Weak references to JavaScript's objects under numbers: track, untrack, isAlive, poll, and pressCollector.
#pragma once

#include <node_api.h>

namespace lz {

void add_handles(napi_env env, napi_value exports);

}  // namespace lz
