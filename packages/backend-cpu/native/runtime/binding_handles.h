// Weak references to JavaScript objects under numbers, and the walk that finds whose objects are gone.
// JavaScript runs no finalizers in synchronous code, but a weak reference is empty as soon as the collector
// has run. Part of binding.cc, and like it allowed to know Node-API.
#ifndef LAZULI_RUNTIME_BINDING_HANDLES_H
#define LAZULI_RUNTIME_BINDING_HANDLES_H

#include <node_api.h>

#include <cstdint>
#include <vector>

#include "runtime/paged_table.h"

namespace lazuli {

class Handles {
 public:
  // False when the number is out of range or the object cannot be referred to.
  bool track(napi_env env, napi_value object, uint32_t id) {
    Entry* entry = entries_.make(id);
    if (!entry) return false;
    if (entry->reference) untrack(env, id);
    if (napi_create_reference(env, object, 0, &entry->reference) != napi_ok) {
      entry->reference = nullptr;
      return false;
    }
    entry->polls = 0;
    add(young_, id, false);
    return true;
  }

  void untrack(napi_env env, uint32_t id) {
    Entry* entry = entries_.find(id);
    if (!entry || !entry->reference) return;
    napi_delete_reference(env, entry->reference);
    entry->reference = nullptr;
    take_out(*entry);
  }

  // Forgets all.
  void clear(napi_env env) {
    for (const auto* list : {&young_, &old_})
      for (const uint32_t id : *list) {
        Entry& entry = *entries_.find(id);
        napi_delete_reference(env, entry.reference);
        entry.reference = nullptr;
      }
    young_.clear();
    old_.clear();
  }

  // True if the object is there, as far as the collector has looked.
  bool alive(napi_env env, uint32_t id) const {
    const Entry* entry = entries_.find(id);
    napi_value object = nullptr;
    if (entry && entry->reference) napi_get_reference_value(env, entry->reference, &object);
    return object != nullptr;
  }

  // Writes at most `capacity` numbers of objects that are gone, and forgets those. References that survive
  // two walks of the young become old, and only a walk of all sees them again.
  size_t poll(napi_env env, bool all, int32_t* out, size_t capacity) {
    size_t found = walk(env, young_, true, out, capacity);
    if (all) found += walk(env, old_, false, out + found, capacity - found);
    return found;
  }

 private:
  struct Entry {
    napi_ref reference = nullptr;
    uint32_t position = 0;  // in its list
    uint8_t polls = 0;
    bool old = false;
  };

  void add(std::vector<uint32_t>& list, uint32_t id, bool old) {
    Entry& entry = *entries_.find(id);
    entry.position = uint32_t(list.size());
    entry.old = old;
    list.push_back(id);
  }

  void take_out(Entry& entry) {
    auto& list = entry.old ? old_ : young_;
    const uint32_t last = list.back();
    list[entry.position] = last;
    entries_.find(last)->position = entry.position;
    list.pop_back();
  }

  // Numbers come in the order in which their references were made: of what is given back, the block that the
  // next allocation takes is then the one written last.
  size_t walk(napi_env env, std::vector<uint32_t>& list, bool ages, int32_t* out, size_t capacity) {
    constexpr size_t kBatch = 256;
    size_t found = 0, kept = 0;
    for (size_t i = 0; i < list.size();) {
      // A scope a batch: every living object costs a handle until its scope closes.
      napi_handle_scope scope = nullptr;
      const bool looks = found < capacity && napi_open_handle_scope(env, &scope) == napi_ok;
      for (size_t n = 0; n < kBatch && i < list.size(); n++) {
        const uint32_t id = list[i++];
        Entry& entry = *entries_.find(id);
        napi_value object = nullptr;
        if (looks && found < capacity) {
          napi_get_reference_value(env, entry.reference, &object);
          if (!object) {
            napi_delete_reference(env, entry.reference);
            entry.reference = nullptr;
            out[found++] = int32_t(id);
            continue;
          }
          if (ages && ++entry.polls >= 2) {
            add(old_, id, true);
            continue;
          }
        }
        entry.position = uint32_t(kept);
        list[kept++] = id;
      }
      if (looks) napi_close_handle_scope(env, scope);
    }
    list.resize(kept);
    return found;
  }

  PagedTable<Entry> entries_;
  std::vector<uint32_t> young_, old_;
};

}  // namespace lazuli

#endif
