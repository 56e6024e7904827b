#include "fake/object.h"

#include <cstdio>
#include <cstdlib>
#include <cstring>
#include <deque>
#include <memory>
#include <mutex>
#include <set>
#include <unordered_set>

namespace lz::apple {
struct Selector {
  std::string name;
};
}  // namespace lz::apple

namespace lz::fake {
namespace {

// Objects that are gone are remembered, the latest of them, so that their use is found.
constexpr size_t kRemembered = 200'000;

struct Known {
  std::mutex mutex;
  std::unordered_set<const Object*> objects;
  std::deque<Object*> gone;
  std::map<std::string, long> living, sent;
  std::map<std::string, std::unique_ptr<Class>> classes;
  std::map<std::string, std::unique_ptr<apple::Selector>> selectors;
  std::map<std::string, std::string> table;  // the headers': class and selector → types
  std::set<std::string> implemented;
  bool expected = false;
  std::vector<std::string> violations;
};
Known& known() {
  static Known* all = new Known;  // threads outlive main
  return *all;
}

struct Expected {
  Id to = nullptr;
  Sel sel = nullptr;
  const char* types = nullptr;
};
thread_local Expected expected;
thread_local std::vector<std::vector<Object*>> pools;
std::atomic<long> pool_count{0};

Sel selector(const std::string& name) {
  Known& k = known();
  std::lock_guard<std::mutex> lock(k.mutex);
  auto& made = k.selectors[name];
  if (!made) made.reset(new apple::Selector{name});
  return made.get();
}

const Method* find_method(const Class* of, Sel sel, bool of_class) {
  for (; of; of = of->super) {
    const auto& all = of_class ? of->class_methods : of->methods;
    const auto found = all.find(sel);
    if (found != all.end()) return &found->second;
  }
  return nullptr;
}

bool is_kind_of(const Class* of, const char* name) {
  for (; of; of = of->super)
    if (of->name == name) return true;
  return false;
}

// The result of a message after a violation.
extern "C" UInteger lazuli_nothing() { return 0; }

// The methods of every object.
Id alloc_object(Object* self, Sel) {
  const Class* of = static_cast<const Class*>(self);
  if (!of->make) {
    violation(of->name + " has no objects of its own to allocate");
    return nullptr;
  }
  Object* made = of->make();
  enroll(made, of->name.c_str());
  made->is_ready = false;
  return made->id();
}
Id init_object(Object* self, Sel) {
  if (self->is_ready) violation("an " + self->isa->name + " is initialized twice");
  self->is_ready = true;
  return self->id();
}
Id retain_object(Object* self, Sel) {
  retain(self);
  return self->id();
}
void release_object(Object* self, Sel) { release(self); }
bool responds(Object* self, Sel, Sel sel) {
  const bool is_class = self->isa == nullptr;
  return find_method(is_class ? static_cast<const Class*>(self) : self->isa, sel, is_class) != nullptr &&
         !(plan().what == "old system" && sel->name.find("MathMode") != std::string::npos);
}

}  // namespace

void violation(const std::string& message) {
  Known& k = known();
  {
    std::lock_guard<std::mutex> lock(k.mutex);
    if (k.expected) {
      k.violations.push_back(message);
      return;
    }
  }
  std::fprintf(stderr, "fake Metal: %s\n", message.c_str());
  std::abort();
}
void expect_violations() {
  std::lock_guard<std::mutex> lock(known().mutex);
  known().expected = true;
}
std::vector<std::string> noted() {
  std::lock_guard<std::mutex> lock(known().mutex);
  known().expected = false;
  return std::move(known().violations);
}

void enroll(Object* object, const char* name) {
  Known& k = known();
  std::lock_guard<std::mutex> lock(k.mutex);
  object->isa = k.classes.at(name).get();
  k.objects.insert(object);
  k.living[name]++;
}
void retain(Object* object) { object->count++; }
void release(Object* object) {
  const long left = --object->count;
  if (left > 0) return;
  object->is_gone = true;
  object->dealloc();
  Known& k = known();
  Object* forgotten = nullptr;
  {
    std::lock_guard<std::mutex> lock(k.mutex);
    k.living[object->isa->name]--;
    k.gone.push_back(object);
    if (k.gone.size() > kRemembered) {
      forgotten = k.gone.front();
      k.gone.pop_front();
      k.objects.erase(forgotten);
    }
  }
  delete forgotten;
}
Id autoreleased(Object* object) {
  if (pools.empty())
    violation("an " + object->isa->name + " is autoreleased with no pool in place");
  else
    pools.back().push_back(object);
  return object->id();
}

Object* living(Id id, const char* of, const char* where) {
  Object* object = reinterpret_cast<Object*>(id);
  if (!object) {
    violation(std::string(where) + " is given nil for an " + of);
    return nullptr;
  }
  {
    std::lock_guard<std::mutex> lock(known().mutex);
    if (!known().objects.count(object)) object = nullptr;
  }
  if (!object)
    violation(std::string(where) + " is given what is no object");
  else if (object->is_gone)
    violation(std::string(where) + " is given an " + object->isa->name + " that was released");
  else if (!object->is_ready)
    violation(std::string(where) + " is given an " + object->isa->name + " before init");
  else if (!is_kind_of(object->isa, of))
    violation(std::string(where) + " is given an " + object->isa->name + " for an " + of);
  else
    return object;
  return nullptr;
}

std::map<std::string, long> living_objects() {
  std::lock_guard<std::mutex> lock(known().mutex);
  return known().living;
}
std::map<std::string, long> messages_sent() {
  std::lock_guard<std::mutex> lock(known().mutex);
  return known().sent;
}
void forget_messages() {
  std::lock_guard<std::mutex> lock(known().mutex);
  known().sent.clear();
}
long open_pools() { return pool_count; }

Plan& plan() {
  static Plan made;
  return made;
}
bool fails(const char* what) {
  Plan& p = plan();
  if (++p.calls != p.at) return false;
  p.what = what;
  return true;
}

void add_class(const char* name, const char* super, Maker make) {
  auto made = std::make_unique<Class>();
  made->name = name;
  made->make = make;
  Known& k = known();
  if (super) made->super = k.classes.at(super).get();
  k.objects.insert(made.get());
  k.classes[name] = std::move(made);
}
void add_method(const char* of, const char* name, bool of_class, const char* types, void* call) {
  Known& k = known();
  const std::string both = std::string(of) + " " + name;
  const auto entry = k.table.find(both);
  if (entry == k.table.end() || entry->second != types) {
    std::fprintf(stderr, "fake Metal: %s is %s here, and %s in the headers\n", both.c_str(), types,
                 entry == k.table.end() ? "nothing" : entry->second.c_str());
    std::abort();
  }
  k.implemented.insert(both);
  Class& c = *k.classes.at(of);
  (of_class ? c.class_methods : c.methods)[selector(name)] = {entry->second.c_str(), call};
}

void open_classes() {
  static std::once_flag once;
  std::call_once(once, [] {
    Known& k = known();
#define METHOD(of, name, types) k.table[of " " name] = types;
#include "fake/methods.inc"
#undef METHOD
    add_class("NSObject", nullptr);
    const auto every = [](const char* name, const char* types, auto call) {
      for (const bool of_class : {false, true})
        add_method("NSObject", name, of_class, types, reinterpret_cast<void*>(call));
    };
    add_method("NSObject", "alloc", true, "@@:", reinterpret_cast<void*>(&alloc_object));
    add_method("NSObject", "init", false, "@@:", reinterpret_cast<void*>(&init_object));
    every("retain", "@@:", &retain_object);
    every("release", "v@:", &release_object);
    every("respondsToSelector:", "B@::", &responds);
    add_foundation();
    add_metal();
    for (const auto& [name, types] : k.table)
      if (!k.implemented.count(name)) {
        std::fprintf(stderr, "fake Metal: %s is not there\n", name.c_str());
        std::abort();
      }
  });
}

}  // namespace lz::fake

using namespace lz::fake;

extern "C" {

#define EXPORTED __attribute__((visibility("default")))

EXPORTED Id objc_getClass(const char* name) {
  open_classes();
  if (fails("objc_getClass")) return nullptr;
  const auto found = known().classes.find(name);
  if (found == known().classes.end()) {
    violation(std::string("there is no class ") + name);
    return nullptr;
  }
  return found->second->id();
}
EXPORTED Sel sel_registerName(const char* name) {
  open_classes();
  return selector(name);
}
EXPORTED void* objc_autoreleasePoolPush() {
  pools.emplace_back();
  pool_count++;
  return reinterpret_cast<void*>(pools.size());
}
EXPORTED void objc_autoreleasePoolPop(void* pool) {
  if (reinterpret_cast<size_t>(pool) != pools.size() || pools.empty()) {
    violation("pools are closed out of order");
    return;
  }
  const std::vector<Object*> all = std::move(pools.back());
  pools.pop_back();
  pool_count--;
  for (Object* each : all) {
    if (each->is_gone)
      violation("an autoreleased " + each->isa->name + " was released already");
    else
      release(each);
  }
}
EXPORTED void lazuli_expect(Id to, Sel sel, const char* types) { expected = {to, sel, types}; }

// The code behind a message.
void* lazuli_lookup(Object* to, Sel sel) {
  const Expected told = std::exchange(expected, {});
  void* const nothing = reinterpret_cast<void*>(&lazuli_nothing);
  Known& k = known();
  const std::string name = sel ? sel->name : "(none)";
  const auto wrong = [&](const std::string& message) {
    violation(message);
    return nothing;
  };
  if (!sel) return wrong("a message has no selector");
  if (!to) return wrong(name + " is sent to nil");
  bool is_object;
  {
    std::lock_guard<std::mutex> lock(k.mutex);
    is_object = k.objects.count(to) > 0;
  }
  if (!is_object) return wrong(name + " is sent to what is no object");
  const bool is_class = to->isa == nullptr;
  const Class* of = is_class ? static_cast<const Class*>(to) : to->isa;
  if (to->is_gone) return wrong(name + " is sent to an " + of->name + " that was released");
  if (!to->is_ready && name != "init") return wrong(name + " is sent to an " + of->name + " before init");
  const Method* method = find_method(of, sel, is_class);
  if (!method) return wrong((is_class ? "+[" : "-[") + of->name + " " + name + "]: unrecognized selector");
  if (told.to != to->id() || told.sel != sel) return wrong(name + " is sent without types");
  if (std::strcmp(told.types, method->types) != 0)
    return wrong("-[" + of->name + " " + name + "] takes " + method->types + " and is sent " + told.types);
  {
    std::lock_guard<std::mutex> lock(k.mutex);
    k.sent[of->name + " " + name]++;
  }
  return method->call;
}

// Finds the method and jumps there, with all registers that carry arguments as they were.
#if defined(__x86_64__)
__asm__(
    ".text\n.globl objc_msgSend\n.type objc_msgSend, @function\nobjc_msgSend:\n"
    "pushq %rbp\nmovq %rsp, %rbp\nsubq $64, %rsp\n"
    "movq %rdi, -8(%rbp)\nmovq %rsi, -16(%rbp)\nmovq %rdx, -24(%rbp)\nmovq %rcx, -32(%rbp)\n"
    "movq %r8, -40(%rbp)\nmovq %r9, -48(%rbp)\n"
    "call lazuli_lookup@PLT\nmovq %rax, %r11\n"
    "movq -8(%rbp), %rdi\nmovq -16(%rbp), %rsi\nmovq -24(%rbp), %rdx\nmovq -32(%rbp), %rcx\n"
    "movq -40(%rbp), %r8\nmovq -48(%rbp), %r9\n"
    "leave\njmpq *%r11\n.size objc_msgSend, .-objc_msgSend\n");
#elif defined(__aarch64__)
__asm__(
    ".text\n.globl objc_msgSend\n.type objc_msgSend, %function\nobjc_msgSend:\n"
    "stp x29, x30, [sp, #-96]!\nmov x29, sp\n"
    "stp x0, x1, [sp, #16]\nstp x2, x3, [sp, #32]\nstp x4, x5, [sp, #48]\nstp x6, x7, [sp, #64]\nstr x8, "
    "[sp, #80]\n"
    "bl lazuli_lookup\nmov x16, x0\n"
    "ldp x0, x1, [sp, #16]\nldp x2, x3, [sp, #32]\nldp x4, x5, [sp, #48]\nldp x6, x7, [sp, #64]\nldr x8, "
    "[sp, #80]\n"
    "ldp x29, x30, [sp], #96\nbr x16\n.size objc_msgSend, .-objc_msgSend\n");
#endif

}  // extern "C"
