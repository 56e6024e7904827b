// Messages to Objective-C objects from C++: the runtime's functions are found by name when Metal is opened,
// so that this compiles anywhere and runs on whatever library offers those names. Messages are typed: their
// C++ types say how Objective-C encodes them.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <stdexcept>
#include <string>
#include <string_view>
#include <type_traits>
#include <utility>
#include <vector>

namespace lz::apple {

struct Object;  // of Objective-C
struct Selector;
using Id = Object*;
using Sel = const Selector*;
using UInteger = unsigned long;
using Integer = long;
struct Size {
  UInteger width, height, depth;
};

// A failure with the code that JavaScript knows.
struct Failure : std::runtime_error {
  const char* code;
  Failure(const std::string& message, const char* code = "ERR_LAZULI_NATIVE")
      : std::runtime_error(message), code(code) {}
};

// The functions of Objective-C's runtime and Metal that are called as functions.
struct Functions {
  Id (*objc_getClass)(const char*);
  Sel (*sel_registerName)(const char*);
  void (*objc_msgSend)();
  void* (*objc_autoreleasePoolPush)();
  void (*objc_autoreleasePoolPop)(void*);
  Id (*MTLCreateSystemDefaultDevice)();
  Id (*MTLCopyAllDevices)();
  // Told of the types of each message before it is sent; no library of Apple's has it.
  void (*lazuli_expect)(Id, Sel, const char*);
};
extern Functions functions;

// Opens the libraries and finds the functions in them, once. Throws Failure that names what is missing.
void open_functions(const std::vector<std::string>& libraries);

// An encoding of Objective-C, as characters.
template <size_t N>
struct Encoding {
  char text[N + 1] = {};
  constexpr Encoding(const char (&from)[N + 1]) {
    for (size_t i = 0; i < N; i++) text[i] = from[i];
  }
  constexpr Encoding() = default;
};
template <size_t N>
Encoding(const char (&)[N]) -> Encoding<N - 1>;

template <typename T>
constexpr auto encoding_of() {
  if constexpr (std::is_void_v<T>)
    return Encoding("v");
  else if constexpr (std::is_same_v<T, Id>)
    return Encoding("@");
  else if constexpr (std::is_same_v<T, Sel>)
    return Encoding(":");
  else if constexpr (std::is_same_v<T, bool>)
    return Encoding("B");
  else if constexpr (std::is_same_v<T, double>)
    return Encoding("d");
  else if constexpr (std::is_same_v<T, const char*>)
    return Encoding("*");
  else if constexpr (std::is_same_v<T, Id*> || std::is_same_v<T, const Id*>)
    return Encoding("^@");
  else if constexpr (std::is_same_v<T, void*> || std::is_same_v<T, const void*>)
    return Encoding("^v");
  else if constexpr (std::is_same_v<T, Size>)
    return Encoding("{MTLSize=QQQ}");
  else if constexpr (std::is_integral_v<T> && sizeof(T) == 8)
    return std::is_signed_v<T> ? Encoding("q") : Encoding("Q");
  else
    static_assert(sizeof(T) == 0, "messages have no such type");
}

// The encoding of a method: what it gives, the receiver and the selector, and the arguments.
template <typename R, typename... A>
constexpr auto method_encoding() {
  constexpr auto length = [](const auto& e) { return sizeof(e.text) - 1; };
  Encoding<length(encoding_of<R>()) + 2 + (0 + ... + length(encoding_of<A>()))> all;
  size_t at = 0;
  const auto add = [&](const auto& e) {
    for (size_t i = 0; i + 1 < sizeof(e.text); i++) all.text[at++] = e.text[i];
  };
  add(encoding_of<R>());
  add(Encoding("@:"));
  (add(encoding_of<A>()), ...);
  return all;
}

// A selector by name; those that exist when the functions are found are registered then.
class Named {
 public:
  explicit Named(const char* name);
  Sel sel() const { return sel_; }
  const char* name() const { return name_; }
  static void register_all();

 private:
  const char* name_;
  Sel sel_ = nullptr;
  Named* next_;
};

// A message: the class or protocol that declares it, for the check against Apple's headers, and its selector.
template <typename Signature>
class Message;
template <typename R, typename... A>
class Message<R(A...)> : public Named {
 public:
  Message(const char*, const char* selector) : Named(selector) {}
  R operator()(Id to, A... arguments) const {
    static constexpr auto types = method_encoding<R, A...>();
    if (functions.lazuli_expect) functions.lazuli_expect(to, sel(), types.text);
    return reinterpret_cast<R (*)(Id, Sel, A...)>(functions.objc_msgSend)(to, sel(), arguments...);
  }
};

// Objects that are autoreleased while it lives go with it.
class Pool {
 public:
  Pool() : pool_(functions.objc_autoreleasePoolPush()) {}
  ~Pool() { functions.objc_autoreleasePoolPop(pool_); }
  Pool(const Pool&) = delete;
  Pool& operator=(const Pool&) = delete;

 private:
  void* pool_;
};

// An object that is owned: released once.
class Owned {
 public:
  Owned() = default;
  explicit Owned(Id owned) : id_(owned) {}
  Owned(Owned&& other) noexcept : id_(std::exchange(other.id_, nullptr)) {}
  Owned& operator=(Owned&& other) noexcept {
    std::swap(id_, other.id_);
    return *this;
  }
  ~Owned();
  // Of an object that somebody else owns.
  static Owned retained(Id id);
  // Leaves it to somebody else to release.
  void forget() { id_ = nullptr; }
  operator Id() const { return id_; }

 private:
  Id id_ = nullptr;
};

Id class_named(const char* name);
std::string text_of(Id string);
// Autoreleased.
Id string_of(const std::string& text);
bool responds(Id object, const Named& message);
// An error's description, or `otherwise` where there is no error.
std::string described(Id error, const char* otherwise);

}  // namespace lz::apple
