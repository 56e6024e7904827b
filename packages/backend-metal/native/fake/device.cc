#include <dlfcn.h>
#include <fcntl.h>
#include <unistd.h>

#include <algorithm>
#include <cstring>
#include <fstream>
#include <sstream>

#include "fake/metal.h"
#include "host/executor.h"

namespace lz::fake {
namespace {

std::atomic<uint64_t> allocated{0};

Device* the_device() {
  static Device* device = [] {
    open_classes();
    return make<Device>();
  }();
  return device;
}
CaptureManager* the_manager() {
  static CaptureManager* manager = make<CaptureManager>();
  return manager;
}
Id shared_manager() { return the_manager()->id(); }

bool valid_options(UInteger options, const char* where) {
  if (options == ((0u) | (1u << 8))) return true;
  violation(std::string(where) + " the options " + std::to_string(options) +
            " are not those of shared, untracked memory");
  return false;
}

bool is_mapped(const void* address, size_t length) {
  // A system call reads the pages, and refuses those that are not there.
  int ends[2];
  if (pipe(ends) != 0) return true;
  bool all = true;
  for (size_t at = 0; at < length && all; at += 4096)
    all = write(ends[1], static_cast<const char*>(address) + at, 1) == 1 && [&] {
      char byte;
      return ::read(ends[0], &byte, 1) == 1;
    }();
  close(ends[0]);
  close(ends[1]);
  return all;
}

}  // namespace

Compiler& compiler() {
  static thread_local Compiler made;
  return made;
}

Id Device::name() { return autoreleased(make<String>("Fake Metal")); }
Id Device::architecture() { return autoreleased(make<Architecture>()); }
Id Architecture::name() { return autoreleased(make<String>("fakegpu_g00")); }
UInteger Device::current_allocated_size() { return allocated; }
Id Device::new_command_queue() { return fails("newCommandQueue") ? nullptr : make<Queue>()->id(); }
Id Device::new_fence() { return fails("newFence") ? nullptr : make<Fence>()->id(); }
Id Device::new_shared_event() { return fails("newSharedEvent") ? nullptr : make<Event>()->id(); }

Id Device::new_buffer(UInteger length, UInteger options) {
  if (!valid_options(options, "newBufferWithLength:")) return nullptr;
  if (length == 0 || length > kMaxBuffer) {
    violation("newBufferWithLength: is given a length of " + std::to_string(length));
    return nullptr;
  }
  if (fails("newBufferWithLength:")) return nullptr;
  Block* block = allocate_block(length, false);
  if (!block) return nullptr;
  auto* made = make<Buffer>();
  made->block = block;
  allocated += length;
  return made->id();
}
Id Device::new_buffer_no_copy(const void* bytes, UInteger length, UInteger options, Id deallocator) {
  constexpr const char* where = "newBufferWithBytesNoCopy:";
  if (!valid_options(options, where)) return nullptr;
  if (reinterpret_cast<uintptr_t>(bytes) % kPage != 0)
    violation(std::string(where) + " is given an address within a page");
  if (length == 0 || length % kPage != 0)
    violation(std::string(where) + " is given a length of parts of pages");
  if (deallocator) violation(std::string(where) + " is given a deallocator, which the fake does not call");
  if (reinterpret_cast<uintptr_t>(bytes) % kPage != 0 || length == 0 || length % kPage != 0 || deallocator)
    return nullptr;
  if (!is_mapped(bytes, length)) {
    violation(std::string(where) + " is given memory that is not mapped");
    return nullptr;
  }
  if (fails(where)) return nullptr;
  auto* made = make<Buffer>();
  made->block = borrow_block(static_cast<char*>(const_cast<void*>(bytes)), length);
  allocated += length;
  return made->id();
}
void Buffer::dealloc() {
  if (in_flight > 0) violation("an MTLBuffer goes while the GPU uses it");
  if (residency_sets > 0) violation("an MTLBuffer goes while a residency set has it");
  allocated -= block->length;
  drop_block(block);
  accesses.clear();
}

// Residency

Id Device::new_residency_set(Id descriptor, Id* error) {
  as<ResidencyDescriptor>(descriptor, "newResidencySetWithDescriptor:");
  if (fails("newResidencySetWithDescriptor:")) return refuse(error, 1, "no residency set today");
  return make<Residency>()->id();
}
void Residency::add(Id allocation) {
  Buffer* buffer = as<Buffer>(allocation, "addAllocation:");
  if (!buffer) return;
  if (!all.insert(buffer).second) violation("addAllocation: is given a buffer that the set has");
  buffer->residency_sets++;
  is_changed = true;
}
void Residency::remove(Id allocation) {
  Buffer* buffer = as<Buffer>(allocation, "removeAllocation:");
  if (!buffer) return;
  if (all.erase(buffer) == 0) return violation("removeAllocation: is given a buffer that the set has not");
  buffer->residency_sets--;
  is_changed = true;
}
void Residency::request() {
  if (is_changed) violation("requestResidency comes before commit");
}
void Residency::dealloc() {
  for (Buffer* each : all) each->residency_sets--;
}

// Libraries

void Options::set_language(UInteger version) {
  if (version != 196609) violation("setLanguageVersion: is given " + std::to_string(version));
  language = version;
}
void Options::set_mode(Integer m) {
  if (m < 0 || m > 2) violation("setMathMode: is given " + std::to_string(m));
  mode = m;
}

Id Device::new_library(Id source, Id options, Id* error) {
  const std::string text = text_of(source, "newLibraryWithSource:");
  const Options* chosen = as<Options>(options, "newLibraryWithSource:");
  if (!chosen) return nullptr;
  if (fails("newLibraryWithSource:")) return refuse(error, 2, "the compiler is not there");
  if (!compiler().compile) return refuse(error, 2, "the fake has no compiler");
  Compiled compiled = compiler().compile(text, chosen->mode);
  if (!compiled.problem.empty()) return refuse(error, 3, compiled.problem);
  auto* made = make<LibraryObject>();
  made->compiled = std::move(compiled);
  return made->id();
}
Id Device::new_library_with_url(Id url, Id* error) {
  const Url* u = as<Url>(url, "newLibraryWithURL:");
  if (!u) return nullptr;
  if (fails("newLibraryWithURL:")) return refuse(error, 6, "the file cannot be read");
  // The fake's own libraries are sources behind a line that says so.
  std::ifstream file(u->path);
  std::string first;
  if (!std::getline(file, first) || first != "fake metallib")
    return refuse(error, 1, "the file is no library");
  std::stringstream rest;
  rest << file.rdbuf();
  Compiled compiled = compiler().compile(rest.str(), 0);
  if (!compiled.problem.empty()) return refuse(error, 3, compiled.problem);
  auto* made = make<LibraryObject>();
  made->compiled = std::move(compiled);
  return made->id();
}
Id LibraryObject::names() {
  auto* made = make<Array>();
  for (const Declared& each : compiled.kernels) made->all.push_back(make<String>(each.name));
  return autoreleased(made);
}
const Declared* LibraryObject::find(const std::string& name) const {
  for (const Declared& each : compiled.kernels)
    if (each.name == name) return &each;
  return nullptr;
}
Id LibraryObject::function(Id name) {
  const Declared* declared = find(text_of(name, "newFunctionWithName:"));
  if (!declared || fails("newFunctionWithName:")) return nullptr;
  auto* made = make<Function>();
  retain(this);
  made->library = this;
  made->declared = declared;
  if (compiled.constants.empty()) {
    const Loaded loaded = compiler().load(compiled.number, {});
    made->is_special = true;
    for (uint32_t i = 0; loaded.library && i < loaded.library->count; i++)
      if (declared->name == loaded.library->kernels[i].name) made->kernel = &loaded.library->kernels[i];
    made->is_checked = loaded.is_checked;
  }
  return made->id();
}
Id LibraryObject::function_with(Id name, Id values, Id* error) {
  constexpr const char* where = "newFunctionWithName:constantValues:";
  const std::string text = text_of(name, where);
  const Values* given = as<Values>(values, where);
  if (!given) return nullptr;
  const Declared* declared = find(text);
  if (!declared) return refuse(error, 5, "there is no function " + text);
  if (fails(where)) return refuse(error, 3, "the function cannot be made");
  std::vector<std::pair<UInteger, double>> numbers;
  for (const auto& [index, value] : given->all) {
    const auto found = std::find_if(compiled.constants.begin(), compiled.constants.end(),
                                    [i = index](const DeclaredConstant& c) { return c.index == i; });
    if (found == compiled.constants.end())
      violation(std::string(where) + " sets constant " + std::to_string(index) + ", which is not there");
    else if (found->type != value.type)
      violation(std::string(where) + " sets constant " + std::to_string(index) + " of type " +
                std::to_string(found->type) + " as type " + std::to_string(value.type));
    numbers.emplace_back(index, value.number);
  }
  const Loaded loaded = compiler().load(compiled.number, numbers);
  if (!loaded.library) return refuse(error, 3, loaded.problem);
  auto* made = make<Function>();
  retain(this);
  made->library = this;
  made->declared = declared;
  made->is_special = true;
  made->is_checked = loaded.is_checked;
  for (uint32_t i = 0; i < loaded.library->count; i++)
    if (declared->name == loaded.library->kernels[i].name) made->kernel = &loaded.library->kernels[i];
  return made->id();
}
Id Function::constants() {
  auto* made = make<Dictionary>();
  for (const DeclaredConstant& each : library->compiled.constants) {
    auto* constant = make<Constant>();
    constant->declared = each;
    made->all.emplace_back(make<String>(each.name), constant);
  }
  return autoreleased(made);
}
void Values::set(const void* value, UInteger type, UInteger index) {
  if (!value) return violation("setConstantValue: is given no value");
  double number = 0;
  const auto read = [&](auto kind) {
    std::memcpy(&kind, value, sizeof kind);
    number = double(kind);
  };
  switch (type) {
    case 53:
      read(uint8_t{});
      break;
    case 45:
      read(int8_t{});
      break;
    case 49:
      read(uint8_t{});
      break;
    case 37:
      read(int16_t{});
      break;
    case 41:
      read(uint16_t{});
      break;
    case 29:
      read(int32_t{});
      break;
    case 33:
      read(uint32_t{});
      break;
    case 81:
      read(int64_t{});
      break;
    case 85:
      read(uint64_t{});
      break;
    case 3:
      read(float{});
      break;
    default:
      return violation("setConstantValue: is given the type " + std::to_string(type));
  }
  all[index] = {type, number};
}

Id Device::new_pipeline(Id function, Id* error) {
  const Function* f = as<Function>(function, "newComputePipelineStateWithFunction:");
  if (!f) return nullptr;
  if (!f->is_special) {
    violation("newComputePipelineStateWithFunction: is given a function whose constants are not set");
    return nullptr;
  }
  if (!f->kernel || fails("newComputePipelineStateWithFunction:"))
    return refuse(error, 3, "the kernel " + f->declared->name + " cannot be made");
  auto* made = make<Pipeline>();
  made->declared = *f->declared;
  made->kernel = f->kernel;
  made->is_checked = f->is_checked;
  return made->id();
}

// Captures

void CaptureDescriptor::set_url(Id url) {
  if (const Url* u = as<Url>(url, "setOutputURL:")) path = u->path;
}
bool CaptureManager::supports(Integer destination) {
  return destination == 1 || (destination == 2 && !fails("supportsDestination:"));
}
bool CaptureManager::start(Id descriptor, Id* error) {
  const CaptureDescriptor* d = as<CaptureDescriptor>(descriptor, "startCaptureWithDescriptor:");
  if (!d) return false;
  if (!living(d->object, "MTLDevice", "startCaptureWithDescriptor:")) return false;
  if (d->destination == 2 && d->path.empty())
    violation("startCaptureWithDescriptor: has a document and no URL");
  if (is_capturing()) violation("startCaptureWithDescriptor: comes while capturing");
  if (fails("startCaptureWithDescriptor:")) return refuse(error, 1, "captures are off") != nullptr;
  std::ofstream file(d->path);
  if (!(file << "a capture of the fake Metal\n"))
    return refuse(error, 3, "the document cannot be written") != nullptr;
  path = d->path;
  return true;
}
void CaptureManager::stop() {
  if (!is_capturing()) violation("stopCapture comes without a capture");
  path.clear();
}

void add_metal() {
  for (const char* name :
       {Device::kName, Architecture::kName, LibraryObject::kName, Constant::kName, Function::kName,
        Pipeline::kName, Fence::kName, Residency::kName, Queue::kName, Commands::kName, "MTLCommandEncoder",
        "MTLResource", CaptureManager::kName, Event::kName})
    add_class(name, "NSObject");
  add_class(Buffer::kName, "MTLResource");
  add_class(Encoder::kName, "MTLCommandEncoder");
  add_class(Options::kName, "NSObject", [] { return static_cast<Object*>(new Options); });
  add_class(Values::kName, "NSObject", [] { return static_cast<Object*>(new Values); });
  add_class(ResidencyDescriptor::kName, "NSObject",
            [] { return static_cast<Object*>(new ResidencyDescriptor); });
  add_class(CaptureDescriptor::kName, "NSObject", [] { return static_cast<Object*>(new CaptureDescriptor); });

  add<&Device::name>(Device::kName, "name");
  add<&Device::architecture>(Device::kName, "architecture");
  add<&Architecture::name>(Architecture::kName, "name");
  add<&Device::supports_family>(Device::kName, "supportsFamily:");
  add<&Device::has_unified_memory>(Device::kName, "hasUnifiedMemory");
  add<&Device::max_buffer_length>(Device::kName, "maxBufferLength");
  add<&Device::max_threadgroup_memory_length>(Device::kName, "maxThreadgroupMemoryLength");
  add<&Device::recommended_working_set>(Device::kName, "recommendedMaxWorkingSetSize");
  add<&Device::current_allocated_size>(Device::kName, "currentAllocatedSize");
  add<&Device::new_command_queue>(Device::kName, "newCommandQueue");
  add<&Device::new_fence>(Device::kName, "newFence");
  add<&Device::new_shared_event>(Device::kName, "newSharedEvent");
  add<&Device::new_buffer>(Device::kName, "newBufferWithLength:options:");
  add<&Device::new_buffer_no_copy>(Device::kName, "newBufferWithBytesNoCopy:length:options:deallocator:");
  add<&Device::new_residency_set>(Device::kName, "newResidencySetWithDescriptor:error:");
  add<&Device::new_library>(Device::kName, "newLibraryWithSource:options:error:");
  add<&Device::new_library_with_url>(Device::kName, "newLibraryWithURL:error:");
  add<&Device::new_pipeline>(Device::kName, "newComputePipelineStateWithFunction:error:");
  add<&Buffer::contents>(Buffer::kName, "contents");
  add<&Options::set_language>(Options::kName, "setLanguageVersion:");
  add<&Options::set_mode>(Options::kName, "setMathMode:");
  add<&Options::set_fast>(Options::kName, "setFastMathEnabled:");
  add<&LibraryObject::names>(LibraryObject::kName, "functionNames");
  add<&LibraryObject::function>(LibraryObject::kName, "newFunctionWithName:");
  add<&LibraryObject::function_with>(LibraryObject::kName, "newFunctionWithName:constantValues:error:");
  add<&Function::constants>(Function::kName, "functionConstantsDictionary");
  add<&Constant::index>(Constant::kName, "index");
  add<&Constant::type>(Constant::kName, "type");
  add<&Values::set>(Values::kName, "setConstantValue:type:atIndex:");
  add<&Pipeline::max_threads>(Pipeline::kName, "maxTotalThreadsPerThreadgroup");
  add<&Pipeline::width>(Pipeline::kName, "threadExecutionWidth");
  add<&Residency::add>(Residency::kName, "addAllocation:");
  add<&Residency::remove>(Residency::kName, "removeAllocation:");
  add<&Residency::commit>(Residency::kName, "commit");
  add<&Residency::request>(Residency::kName, "requestResidency");
  add<&Residency::end>(Residency::kName, "endResidency");
  add_static<&shared_manager>(CaptureManager::kName, "sharedCaptureManager");
  add<&CaptureManager::supports>(CaptureManager::kName, "supportsDestination:");
  add<&CaptureManager::is_capturing>(CaptureManager::kName, "isCapturing");
  add<&CaptureManager::start>(CaptureManager::kName, "startCaptureWithDescriptor:error:");
  add<&CaptureManager::stop>(CaptureManager::kName, "stopCapture");
  add<&CaptureDescriptor::set_object>(CaptureDescriptor::kName, "setCaptureObject:");
  add<&CaptureDescriptor::set_destination>(CaptureDescriptor::kName, "setDestination:");
  add<&CaptureDescriptor::set_url>(CaptureDescriptor::kName, "setOutputURL:");
  add_commands();
}

}  // namespace lz::fake

using namespace lz::fake;
extern "C" __attribute__((visibility("default"))) lz::apple::Id MTLCreateSystemDefaultDevice() {
  open_classes();
  if (fails("MTLCreateSystemDefaultDevice")) return nullptr;
  retain(the_device());
  return the_device()->id();
}
extern "C" __attribute__((visibility("default"))) lz::apple::Id MTLCopyAllDevices() {
  open_classes();
  auto* made = make<Array>();
  if (plan().what != "MTLCreateSystemDefaultDevice" || plan().code != 0) {
    retain(the_device());
    made->all.push_back(the_device());
  }
  return made->id();
}
