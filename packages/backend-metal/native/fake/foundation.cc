#include "fake/foundation.h"

namespace lz::fake {

Id Array::at(UInteger i) {
  if (i < all.size()) return all[i]->id();
  violation("objectAtIndex: is beyond the end of an NSArray");
  return nullptr;
}
void Array::dealloc() {
  for (Object* each : all) release(each);
}
Id Dictionary::keys() {
  auto* made = make<Enumerator>();
  made->of = this;
  retain(this);
  return autoreleased(made);
}
Id Dictionary::object(Id key) {
  for (const auto& [k, value] : all)
    if (k->id() == key) return value->id();
  return nullptr;
}
void Dictionary::dealloc() {
  for (const auto& [key, value] : all) {
    release(key);
    release(value);
  }
}
Id Enumerator::next() { return at < of->all.size() ? of->all[at++].first->id() : nullptr; }
void Enumerator::dealloc() { release(of); }

Id refuse(Id* error, Integer code, const std::string& message) {
  if (error) *error = autoreleased(make<Error>(code, message));
  return nullptr;
}

std::string text_of(Id string, const char* where) {
  const String* s = as<String>(string, where);
  return s ? s->text : "";
}

namespace {
Id string_with(const char* text, UInteger encoding) {
  if (encoding != 4) violation("stringWithCString:encoding: is not given UTF-8");
  return text ? autoreleased(make<String>(text)) : nullptr;
}
Id url_of(Id path) {
  auto* made = make<Url>();
  made->path = text_of(path, "fileURLWithPath:");
  return autoreleased(made);
}
}  // namespace

void add_foundation() {
  for (const char* name :
       {String::kName, Error::kName, Array::kName, Dictionary::kName, Enumerator::kName, Url::kName})
    add_class(name, "NSObject");
  add_static<&string_with>(String::kName, "stringWithCString:encoding:");
  add<&String::utf8>(String::kName, "UTF8String");
  add<&Error::description>(Error::kName, "localizedDescription");
  add<&Error::code>(Error::kName, "code");
  add<&Array::size>(Array::kName, "count");
  add<&Array::at>(Array::kName, "objectAtIndex:");
  add<&Dictionary::keys>(Dictionary::kName, "keyEnumerator");
  add<&Dictionary::object>(Dictionary::kName, "objectForKey:");
  add<&Enumerator::next>(Enumerator::kName, "nextObject");
  add_static<&url_of>(Url::kName, "fileURLWithPath:");
}

}  // namespace lz::fake
