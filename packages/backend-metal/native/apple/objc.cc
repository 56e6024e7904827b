#include "apple/objc.h"

#include <dlfcn.h>

#include <mutex>

#include "apple/messages.h"

namespace lz::apple {

Functions functions;

namespace {
Named*& first_name() {
  static Named* first = nullptr;
  return first;
}
}  // namespace

Named::Named(const char* name) : name_(name), next_(std::exchange(first_name(), this)) {}

void Named::register_all() {
  for (Named* each = first_name(); each; each = each->next_)
    each->sel_ = functions.sel_registerName(each->name_);
}

void open_functions(const std::vector<std::string>& libraries) {
  static std::mutex mutex;
  std::lock_guard<std::mutex> lock(mutex);
  if (functions.objc_msgSend) return;
  std::vector<void*> handles;
  for (const std::string& path : libraries) {
    void* handle = dlopen(path.c_str(), RTLD_NOW | RTLD_LOCAL);
    if (!handle) throw Failure(dlerror());
    handles.push_back(handle);
  }
  Functions found{};
  const auto find = [&](auto& function, const char* name, bool needed = true) {
    for (void* handle : handles)
      if (void* address = dlsym(handle, name)) {
        function = reinterpret_cast<std::decay_t<decltype(function)>>(address);
        return;
      }
    if (needed) throw Failure(std::string("there is no function ") + name);
  };
  find(found.objc_getClass, "objc_getClass");
  find(found.sel_registerName, "sel_registerName");
  find(found.objc_msgSend, "objc_msgSend");
  find(found.objc_autoreleasePoolPush, "objc_autoreleasePoolPush");
  find(found.objc_autoreleasePoolPop, "objc_autoreleasePoolPop");
  find(found.MTLCreateSystemDefaultDevice, "MTLCreateSystemDefaultDevice");
  find(found.MTLCopyAllDevices, "MTLCopyAllDevices");
  find(found.lazuli_expect, "lazuli_expect", false);
  functions = found;
  Named::register_all();
}

Owned::~Owned() {
  if (id_) release(id_);
}
Owned Owned::retained(Id id) { return Owned(id ? retain(id) : nullptr); }

Id class_named(const char* name) {
  if (Id found = functions.objc_getClass(name)) return found;
  throw Failure(std::string("Metal has no class ") + name + " on this system");
}

std::string text_of(Id string) {
  const char* text = string ? utf8String(string) : nullptr;
  return text ? text : "";
}

Id string_of(const std::string& text) {
  if (Id made = stringWithCString(class_named("NSString"), text.c_str(), UTF8StringEncoding)) return made;
  throw Failure("a string is not UTF-8");
}

bool responds(Id object, const Named& message) { return respondsToSelector(object, message.sel()); }

std::string described(Id error, const char* otherwise) {
  const std::string text = error ? text_of(localizedDescription(error)) : "";
  return text.empty() ? otherwise : text;
}

}  // namespace lz::apple
