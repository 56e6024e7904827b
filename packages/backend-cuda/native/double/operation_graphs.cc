// A double of cuDNN's graphs of operations: it keeps the descriptors that a caller sets, refuses what is not
// finished or does not fit, and computes operation by operation in doubles. LAZULI_CUDA_DOUBLE=no-engine
// finds no engine for any graph, =graph fails each run.
#include <cmath>
#include <cstdint>
#include <cstring>
#include <functional>
#include <limits>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "double/elements.h"

#define LZ_EXPORT extern "C" __attribute__((visibility("default")))

// Adds work to a stream of the double of the driver.
extern "C" int lzDoubleWork(void* stream, void (*run)(void*), void (*drop)(void*), void* data);

namespace {

enum : int { kBadParameter = 2000, kNotFinalized = 2002, kNotSupported = 3000, kExecutionFailed = 5000 };
enum : int { kPlan = 5, kVariantPack = 16, kTensor = 17 };
constexpr int kInt32 = 4;

// As double/convolutions.cc makes it.
struct Handle {
  void* stream;
};
struct Attribute {
  int type = 0;
  int64_t count = 0;
  std::string bytes;
};
struct Descriptor {
  int type;
  bool finished = false;
  std::map<int, Attribute> attributes;
};
size_t size_of(int type) {
  switch (type) {
    case 1:
    case 8:
    case 14:
    case 18:
      return 4;
    case 2:
      return 1;
    default:
      return 8;
  }
}
template <class T>
std::vector<T> all(const Descriptor& d, int name) {
  const auto found = d.attributes.find(name);
  std::vector<T> values;
  if (found == d.attributes.end()) return values;
  values.resize(found->second.bytes.size() / sizeof(T));
  std::memcpy(values.data(), found->second.bytes.data(), values.size() * sizeof(T));
  return values;
}
template <class T>
T one(const Descriptor& d, int name, T otherwise = T()) {
  const std::vector<T> values = all<T>(d, name);
  return values.empty() ? otherwise : values[0];
}

struct Tensor {
  int64_t id = 0;
  int type = 0;
  std::vector<int64_t> sizes, strides;
  bool is_virtual = false, is_scalar = false;
  int64_t size() const {
    int64_t n = 1;
    for (int64_t each : sizes) n *= each;
    return n;
  }
};
Tensor tensor_of(const Descriptor& d) {
  return {one<int64_t>(d, 906),         one<int>(d, 901),
          all<int64_t>(d, 902),         all<int64_t>(d, 903),
          one<char>(d, 907) != char(0), one<char>(d, 908) != char(0)};
}
struct Operation {
  int kind = 0;
  int mode = 0;
  int64_t axis = 0;
  Tensor x, b, t, y;
};
struct Graph {
  std::vector<Operation> operations;
};

bool fits(const Tensor& t) {
  if (t.sizes.size() != 4 || t.strides.size() != 4 || t.id <= 0) return false;
  for (size_t i = 0; i < 4; i++)
    if (t.sizes[i] <= 0 || t.strides[i] <= 0) return false;
  return true;
}

// A graph read from its descriptors; null where it is not whole.
std::shared_ptr<Graph> graph_of(const Descriptor& d) {
  auto made = std::make_shared<Graph>();
  for (const Descriptor* o : all<const Descriptor*>(d, 801)) {
    if (!o || !o->finished) return nullptr;
    Operation work;
    work.kind = o->type;
    const int names[4][4] = {
        {751, 752, 758, 753}, {1520, 1521, -1, 1522}, {1610, -1, -1, 1611}, {2200, -1, -1, 2201}};
    const int row = o->type == 13 ? 0 : o->type == 19 ? 1 : o->type == 22 ? 2 : o->type == 31 ? 3 : -1;
    if (row < 0) return nullptr;
    Tensor* of[4] = {&work.x, &work.b, &work.t, &work.y};
    for (int i = 0; i < 4; i++) {
      const auto* t = one<const Descriptor*>(*o, names[row][i]);
      if (!t) continue;
      if (!t->finished || t->type != kTensor) return nullptr;
      *of[i] = tensor_of(*t);
      if (!fits(*of[i])) return nullptr;
    }
    if (!work.x.id || !work.y.id || (row == 1 && !work.b.id)) return nullptr;
    const int inner = row == 0 ? 750 : row == 1 ? 1523 : row == 2 ? 1612 : -1;
    if (inner >= 0) {
      const auto* how = one<const Descriptor*>(*o, inner);
      if (!how || !how->finished) return nullptr;
      work.mode = row == 0 ? one<int>(*how, 0) : row == 2 ? one<int>(*how, 1600) : 0;
      work.axis = one<int64_t>(*how, 9);
    }
    made->operations.push_back(work);
  }
  return made->operations.empty() ? nullptr : made;
}

// Values by tensor, row-major.
using Values = std::map<int64_t, std::vector<double>>;
using Index = int64_t[4];

void each(const std::vector<int64_t>& sizes, const std::function<void(const Index&, int64_t)>& visit) {
  Index at;
  int64_t n = 0;
  for (at[0] = 0; at[0] < sizes[0]; at[0]++)
    for (at[1] = 0; at[1] < sizes[1]; at[1]++)
      for (at[2] = 0; at[2] < sizes[2]; at[2]++)
        for (at[3] = 0; at[3] < sizes[3]; at[3]++) visit(at, n++);
}
// Where an operand's element lies for an element of sizes that it is spread over; heads share in groups.
int64_t spread(const Tensor& t, const Index& at, const std::vector<int64_t>& over) {
  int64_t n = 0;
  for (int i = 0; i < 4; i++)
    n = n * t.sizes[i] + (t.sizes[i] == over[i] ? at[i] : at[i] * t.sizes[i] / over[i]);
  return n;
}
double compute(int mode, double x, double b, double t) {
  switch (mode) {
    case 0:
      return x + b;
    case 1:
      return x * b;
    case 3:
      return std::fmax(x, b);
    case 6:
      return x / b;
    case 9:
      return x - b;
    case 13:
      return std::exp(x);
    case 15:
      return std::log(x);
    case 21:
      return x;
    case 303:
      return x >= b;
    case 304:
      return x < b;
    case 400:
      return x != 0 && b != 0;
    case 601:
      return t != 0 ? x : b;
    default:
      return std::numeric_limits<double>::quiet_NaN();
  }
}
// A value as a tensor in between keeps it.
double rounded(int type, double value) {
  if (type != 2 && type != 9) return value;
  uint16_t bits;
  lz::write(&bits, type == 9 ? 14 : 2, 0, value);
  return lz::read(&bits, type == 9 ? 14 : 2, 0);
}

void run(const Graph& graph, const std::map<int64_t, void*>& pointers) {
  Values values;
  auto element = [](int type) { return type == 9 ? 14 : type; };
  auto operand = [&](const Tensor& t) -> const std::vector<double>& {
    auto known = values.find(t.id);
    if (known != values.end()) return known->second;
    std::vector<double> read(size_t(t.size()));
    const void* from = pointers.at(t.id);
    each(t.sizes, [&](const Index& at, int64_t n) {
      int64_t offset = 0;
      for (int i = 0; i < 4; i++) offset += at[i] * t.strides[i];
      int32_t integer;
      if (t.type == kInt32) {
        std::memcpy(&integer, static_cast<const char*>(from) + 4 * offset, 4);
        read[size_t(n)] = integer;
      } else
        read[size_t(n)] = lz::read(from, element(t.type), offset);
    });
    return values[t.id] = std::move(read);
  };
  for (const Operation& o : graph.operations) {
    std::vector<double> made(size_t(o.y.size()), 0.0);
    const std::vector<double> x = operand(o.x);
    if (o.kind == 19) {
      const std::vector<double> b = operand(o.b);
      const int64_t inner = o.x.sizes[3];
      // As the library's engines, which add their parts up there.
      const bool is_sum = !o.y.is_virtual && o.y.type == 0;
      each(o.y.sizes, [&](const Index& at, int64_t n) {
        double sum = 0;
        const int64_t hx = at[1] * o.x.sizes[1] / o.y.sizes[1], hb = at[1] * o.b.sizes[1] / o.y.sizes[1];
        const int64_t px = ((at[0] * o.x.sizes[1] + hx) * o.x.sizes[2] + at[2]) * inner;
        const int64_t pb = (at[0] * o.b.sizes[1] + hb) * inner * o.b.sizes[3] + at[3];
        for (int64_t k = 0; k < inner; k++) sum += x[size_t(px + k)] * b[size_t(pb + k * o.b.sizes[3])];
        if (is_sum) sum += static_cast<const float*>(pointers.at(o.y.id))[n];
        made[size_t(n)] = sum;
      });
    } else if (o.kind == 22) {
      const bool largest = o.mode == 3;
      if (largest) std::fill(made.begin(), made.end(), -std::numeric_limits<double>::infinity());
      each(o.x.sizes, [&](const Index& at, int64_t n) {
        double& to = made[size_t(spread(o.y, at, o.x.sizes))];
        to = largest ? std::fmax(to, x[size_t(n)]) : to + x[size_t(n)];
      });
    } else if (o.kind == 31) {
      // The same elements by other strides, which name where they lie.
      std::map<int64_t, double> by_offset;
      auto offset = [](const Tensor& t, const Index& at) {
        int64_t sum = 0;
        for (int i = 0; i < 4; i++) sum += at[i] * t.strides[i];
        return sum;
      };
      each(o.x.sizes, [&](const Index& at, int64_t n) { by_offset[offset(o.x, at)] = x[size_t(n)]; });
      each(o.y.sizes, [&](const Index& at, int64_t n) { made[size_t(n)] = by_offset[offset(o.y, at)]; });
    } else {
      const std::vector<double> b = o.b.id ? operand(o.b) : std::vector<double>{};
      const std::vector<double> t = o.t.id ? operand(o.t) : std::vector<double>{};
      each(o.y.sizes, [&](const Index& at, int64_t n) {
        if (o.mode == 501) {
          made[size_t(n)] = double(at[o.axis]);
          return;
        }
        auto of = [&](const Tensor& tensor, const std::vector<double>& from) {
          return from.empty() ? 0.0 : from[size_t(spread(tensor, at, o.y.sizes))];
        };
        made[size_t(n)] = compute(o.mode, of(o.x, x), of(o.b, b), of(o.t, t));
      });
    }
    for (double& v : made) v = rounded(o.y.type, v);
    if (!o.y.is_virtual) {
      void* to = pointers.at(o.y.id);
      each(o.y.sizes, [&](const Index& at, int64_t n) {
        int64_t offset = 0;
        for (int i = 0; i < 4; i++) offset += at[i] * o.y.strides[i];
        lz::write(to, element(o.y.type), offset, made[size_t(n)]);
      });
    }
    values[o.y.id] = std::move(made);
  }
}

struct Plan : Descriptor {
  std::shared_ptr<Graph> graph;
};

}  // namespace

LZ_EXPORT size_t cudnnGetVersion() { return 91900; }
LZ_EXPORT int cudnnBackendCreateDescriptor(int type, void** made) {
  auto* d = new Plan;
  d->type = type;
  *made = static_cast<Descriptor*>(d);
  return 0;
}
LZ_EXPORT int cudnnBackendDestroyDescriptor(void* d) {
  delete static_cast<Plan*>(static_cast<Descriptor*>(d));
  return 0;
}
LZ_EXPORT int cudnnBackendSetAttribute(void* to, int name, int type, int64_t count, const void* values) {
  auto* d = static_cast<Descriptor*>(to);
  if (!d || d->finished || count < 1 || !values) return kBadParameter;
  d->attributes[name] = {type, count,
                         std::string(static_cast<const char*>(values), size_t(count) * size_of(type))};
  return 0;
}
LZ_EXPORT int cudnnBackendFinalize(void* of) {
  auto* d = static_cast<Plan*>(static_cast<Descriptor*>(of));
  if (!d || d->finished) return kBadParameter;
  if (d->type == kTensor && !fits(tensor_of(*d))) return kBadParameter;
  if (d->type == 15 && !graph_of(*d)) return kBadParameter;
  if (d->type == kPlan) {
    const auto* engine = one<const Descriptor*>(*d, 401);
    const auto* graph = engine ? one<const Descriptor*>(*engine, 300) : nullptr;
    if (!graph || !one<void*>(*d, 400)) return kNotFinalized;
    d->graph = graph_of(*graph);
  }
  d->finished = true;
  return 0;
}
// The engines of the heuristics, and the workspace of a plan.
LZ_EXPORT int cudnnBackendGetAttribute(const void* of, int name, int, int64_t asked, int64_t* count,
                                       void* into) {
  const auto* d = static_cast<const Descriptor*>(of);
  if (!d->finished) return kNotFinalized;
  *count = 0;
  if (name == 402) {
    *count = 1;
    *static_cast<int64_t*>(into) = 256;
    return 0;
  }
  if (name != 202 || asked < 1) return kNotSupported;
  if (lz::asked("no-engine")) return 0;
  auto* engine = static_cast<Descriptor**>(into)[0];
  const void* graph = one<const void*>(*d, 201);
  engine->attributes[300] = {15, 1, std::string(reinterpret_cast<const char*>(&graph), sizeof graph)};
  engine->finished = true;
  *count = 1;
  return 0;
}
LZ_EXPORT int cudnnBackendExecute(void* handle, void* of, void* pack) {
  const auto* plan = static_cast<Plan*>(static_cast<Descriptor*>(of));
  const auto* variant = static_cast<Descriptor*>(pack);
  if (!plan->finished || !plan->graph || !variant->finished || variant->type != kVariantPack)
    return kNotFinalized;
  if (lz::asked("graph")) return kExecutionFailed;
  const auto ids = all<int64_t>(*variant, 1000);
  const auto pointers = all<void*>(*variant, 1001);
  if (ids.size() != pointers.size() || !one<void*>(*variant, 1003)) return kBadParameter;
  std::map<int64_t, void*> by_id;
  // Scalars are the host's, and are read now.
  auto scalars = std::make_shared<std::map<int64_t, uint64_t>>();
  for (size_t i = 0; i < ids.size(); i++) by_id[ids[i]] = pointers[i];
  for (const Operation& o : plan->graph->operations)
    for (const Tensor* t : {&o.x, &o.b, &o.t, &o.y}) {
      if (!t->id || t->is_virtual) continue;
      if (!by_id.count(t->id)) return kBadParameter;
      if (t->is_scalar && !scalars->count(t->id)) {
        std::memcpy(&(*scalars)[t->id], by_id[t->id], 4);
        by_id[t->id] = &(*scalars)[t->id];
      }
    }
  auto* work = new std::function<void()>([graph = plan->graph, by_id, scalars] { run(*graph, by_id); });
  return lzDoubleWork(
      static_cast<Handle*>(handle)->stream,
      [](void* data) { (*static_cast<std::function<void()>*>(data))(); },
      [](void* data) { delete static_cast<std::function<void()>*>(data); }, work);
}
