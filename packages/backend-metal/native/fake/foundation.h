// The few classes of Foundation that Metal speaks by.
#pragma once

#include "fake/object.h"

namespace lz::fake {

struct String : Object {
  static constexpr const char* kName = "NSString";
  std::string text;
  explicit String(std::string t = "") : text(std::move(t)) {}
  const char* utf8() { return text.c_str(); }
};
struct Error : Object {
  static constexpr const char* kName = "NSError";
  Integer number = 0;
  std::string message;
  Error(Integer n = 0, std::string m = "") : number(n), message(std::move(m)) {}
  Integer code() { return number; }
  Id description() { return autoreleased(make<String>(message)); }
};
struct Array : Object {
  static constexpr const char* kName = "NSArray";
  std::vector<Object*> all;  // retained
  UInteger size() { return all.size(); }
  Id at(UInteger i);
  void dealloc() override;
};
struct Dictionary : Object {
  static constexpr const char* kName = "NSDictionary";
  std::vector<std::pair<Object*, Object*>> all;  // retained
  Id keys();
  Id object(Id key);
  void dealloc() override;
};
struct Enumerator : Object {
  static constexpr const char* kName = "NSEnumerator";
  Dictionary* of = nullptr;
  size_t at = 0;
  Id next();
  void dealloc() override;
};
struct Url : Object {
  static constexpr const char* kName = "NSURL";
  std::string path;
};

// Puts an error where the caller wants it, and gives nil.
Id refuse(Id* error, Integer code, const std::string& message);
// A text of a living NSString.
std::string text_of(Id string, const char* where);

}  // namespace lz::fake
