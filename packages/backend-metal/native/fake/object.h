// A stand-in for Objective-C's runtime: objects with counts, classes with methods by selector, pools.
// Whatever Metal's own validation would stop, and more, is a violation: the process ends with a message,
// unless a test expects it.
#pragma once

#include <atomic>
#include <functional>
#include <map>
#include <string>
#include <unordered_map>
#include <vector>

#include "apple/objc.h"

namespace lz::fake {

using apple::Id;
using apple::Integer;
using apple::Sel;
using apple::UInteger;

struct Object;
using Maker = Object* (*)();

struct Method {
  const char* types = nullptr;  // as the headers say
  void* call = nullptr;
};

struct Class;

struct Object {
  const Class* isa = nullptr;
  std::atomic<long> count{1};
  bool is_ready = true;  // false between alloc and init
  bool is_gone = false;
  virtual ~Object() = default;
  // Gives everything back but the object itself, which stays to tell of later use.
  virtual void dealloc() {}
  Id id() { return reinterpret_cast<Id>(this); }
};

struct Class : Object {
  std::string name;
  const Class* super = nullptr;
  Maker make = nullptr;  // of classes that have alloc
  std::unordered_map<Sel, Method> methods, class_methods;
};

// Ends the process, or is noted where a test expects it.
void violation(const std::string& message);
// Notes violations instead of ending until `noted` takes them.
void expect_violations();
std::vector<std::string> noted();

// The object behind a pointer, which must be alive and of the class (or its heir); null after a violation.
Object* living(Id id, const char* of, const char* where);
template <typename T>
T* as(Id id, const char* where) {
  return static_cast<T*>(living(id, T::kName, where));
}

// Puts a new object under the class of its type.
void enroll(Object* object, const char* name);
template <typename T, typename... A>
T* make(A&&... arguments) {
  T* made = new T(std::forward<A>(arguments)...);
  enroll(made, T::kName);
  return made;
}
void retain(Object* object);
void release(Object* object);
Id autoreleased(Object* object);

// Counts of living objects by class, of messages by name, and pools that are open.
std::map<std::string, long> living_objects();
std::map<std::string, long> messages_sent();
long open_pools();
void forget_messages();

// True if the call is the one that is to fail.
bool fails(const char* what);
struct Plan {
  long at = 0;       // the number of the call; 0 fails none
  long calls = 0;    // so far
  int code = 3;      // of the failure of a command buffer; -1 never ends it
  std::string what;  // the call that failed
};
Plan& plan();

// Registers a method by its C++ type, which must be the headers'.
void add_method(const char* of, const char* selector, bool of_class, const char* types, void* call);
void add_class(const char* name, const char* super, Maker make = nullptr);

template <auto method>
struct Implementation;
template <typename T, typename R, typename... A, R (T::*method)(A...)>
struct Implementation<method> {
  static constexpr auto types = apple::method_encoding<R, A...>();
  static R call(Object* self, Sel, A... a) { return (static_cast<T*>(self)->*method)(a...); }
};
template <typename R, typename... A, R (*function)(A...)>
struct Implementation<function> {
  static constexpr auto types = apple::method_encoding<R, A...>();
  static R call(Object*, Sel, A... a) { return function(a...); }
};
template <auto method>
void add(const char* of, const char* selector) {
  using I = Implementation<method>;
  add_method(of, selector, false, I::types.text, reinterpret_cast<void*>(&I::call));
}
template <auto function>
void add_static(const char* of, const char* selector) {
  using I = Implementation<function>;
  add_method(of, selector, true, I::types.text, reinterpret_cast<void*>(&I::call));
}

// Makes the classes, once, and holds their methods to the headers' table.
void open_classes();
void add_foundation();
void add_metal();

}  // namespace lz::fake
