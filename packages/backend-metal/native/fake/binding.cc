// The functions that tests ask of the fake, and its compiler, which is theirs: they translate Metal source
// for the host.
#include "binding.h"

#include "fake/metal.h"
#include "fake/mistakes.h"
#include "host/library.h"

namespace lz::fake {
namespace {

std::string text(const Napi::Object& of, const char* name) {
  const Napi::Value value = of.Get(name);
  return value.IsString() ? std::string(value.As<Napi::String>()) : std::string();
}
double numeric(const Napi::Object& of, const char* name) { return of.Get(name).ToNumber().DoubleValue(); }

Compiled compiled_of(const Napi::Object& from) {
  Compiled made;
  made.problem = text(from, "problem");
  if (!made.problem.empty()) return made;
  made.number = int(numeric(from, "number"));
  const auto kernels = from.Get("kernels").As<Napi::Array>();
  for (uint32_t i = 0; i < kernels.Length(); i++) {
    const auto kernel = kernels.Get(i).As<Napi::Object>();
    Declared declared;
    declared.name = text(kernel, "name");
    const auto buffers = kernel.Get("buffers").As<Napi::Array>();
    for (uint32_t k = 0; k < buffers.Length(); k++) {
      const auto b = buffers.Get(k).As<Napi::Object>();
      declared.buffers.push_back({uint32_t(numeric(b, "index")), uint32_t(numeric(b, "alignment")),
                                  b.Get("isWritten").ToBoolean(), b.Get("isOptional").ToBoolean()});
    }
    made.kernels.push_back(std::move(declared));
  }
  const auto constants = from.Get("constants").As<Napi::Array>();
  for (uint32_t i = 0; i < constants.Length(); i++) {
    const auto c = constants.Get(i).As<Napi::Object>();
    made.constants.push_back({text(c, "name"), UInteger(numeric(c, "index")), UInteger(numeric(c, "type"))});
  }
  return made;
}

// setCompiler(compile(source, mode) → library, load(number, [index, value, …]) → { path, symbol } or {
// problem })
void set_compiler(Info info) {
  auto compile = std::make_shared<Napi::FunctionReference>(Napi::Persistent(info[0].As<Napi::Function>()));
  auto load = std::make_shared<Napi::FunctionReference>(Napi::Persistent(info[1].As<Napi::Function>()));
  compile->SuppressDestruct();
  load->SuppressDestruct();
  compiler().compile = [compile](const std::string& source, Integer mode) {
    const Napi::Env env = compile->Env();
    return compiled_of(compile->Call({Napi::String::New(env, source), Napi::Number::New(env, double(mode))})
                           .As<Napi::Object>());
  };
  compiler().load = [load](int number, const std::vector<std::pair<UInteger, double>>& constants) {
    const Napi::Env env = load->Env();
    Napi::Array list = Napi::Array::New(env);
    for (const auto& [index, value] : constants) {
      list.Set(list.Length(), double(index));
      list.Set(list.Length(), value);
    }
    const auto answer = load->Call({Napi::Number::New(env, number), list}).As<Napi::Object>();
    Loaded made;
    made.problem = text(answer, "problem");
    if (!made.problem.empty()) return made;
    const Opened opened = open_library(text(answer, "path"), text(answer, "symbol"));
    made.library = opened.library;
    made.is_checked = opened.is_checked;
    made.problem = opened.problem;
    return made;
  };
}

Napi::Value counts(Napi::Env env, const std::map<std::string, long>& all) {
  Napi::Object made = Napi::Object::New(env);
  for (const auto& [name, count] : all)
    if (count != 0) made.Set(name, double(count));
  return made;
}
Napi::Value texts(Napi::Env env, const std::vector<std::string>& all) {
  Napi::Array made = Napi::Array::New(env, all.size());
  for (uint32_t i = 0; i < all.size(); i++) made.Set(i, all[i]);
  return made;
}

// living(): objects by class · messages(): how often each was sent since forgetMessages()
Napi::Value living_by_class(Info info) { return counts(info.Env(), living_objects()); }
Napi::Value messages(Info info) { return counts(info.Env(), messages_sent()); }
void forget(Info info) { forget_messages(); }
Napi::Value pools(Info info) { return Napi::Number::New(info.Env(), double(open_pools())); }
// expect(): notes violations · noted(): those, after which the next one ends the process
void expect(Info info) { expect_violations(); }
Napi::Value take_noted(Info info) { return texts(info.Env(), noted()); }
// failAt(call, code): the call of this number among those that may fail does · calls() → how many there were,
// and which failed
void fail_at(Info info) { plan() = {long(number(info, 0)), 0, int(number(info, 1)), {}}; }
// pretend(what): stands for a system that lacks something
void pretend(Info info) { plan() = {0, 0, 0, std::string(info[0].As<Napi::String>())}; }
Napi::Value calls(Info info) {
  Napi::Object made = Napi::Object::New(info.Env());
  made.Set("calls", double(plan().calls));
  made.Set("failed", plan().what);
  return made;
}
Napi::Value mistakes(Info info) { return texts(info.Env(), mistake_names()); }
// rights(): what is none
Napi::Value rights(Info info) { return texts(info.Env(), right_names()); }
// mistake(name, library): makes it, with what it needs of kernels · gives what was said
Napi::Value mistake(Info info) { return texts(info.Env(), make_mistake(info[0].As<Napi::String>())); }

constexpr int kProtocol = 1;
Napi::Value protocol(Info info) { return Napi::Number::New(info.Env(), kProtocol); }

}  // namespace

Napi::Object start(Napi::Env env, Napi::Object exports) {
  open_classes();
  const auto add = [&](const char* name, auto call) {
    exports.Set(name, Napi::Function::New(env, call, name));
  };
  add("protocol", protocol);
  add("setCompiler", set_compiler);
  add("living", living_by_class);
  add("messages", messages);
  add("forgetMessages", forget);
  add("openPools", pools);
  add("expect", expect);
  add("noted", take_noted);
  add("failAt", fail_at);
  add("pretend", pretend);
  add("calls", calls);
  add("mistakes", mistakes);
  add("rights", rights);
  add("mistake", mistake);
  return exports;
}

}  // namespace lz::fake

static Napi::Object Start(Napi::Env env, Napi::Object exports) { return lz::fake::start(env, exports); }
NODE_API_MODULE(lazuli_metal_fake, Start)
