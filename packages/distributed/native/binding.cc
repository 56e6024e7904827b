// The functions that JavaScript calls; the only file that knows Node-API.
#include <fcntl.h>
#include <node_api.h>
#include <signal.h>
#include <unistd.h>

#include <atomic>
#include <cerrno>
#include <cstdlib>
#include <cstring>
#include <set>
#include <thread>

#include "groups.h"
#include "wire/checksum.h"

namespace lazuli::dist {
namespace {

struct Instance {
  std::set<std::shared_ptr<World>> worlds;
};

// A process is one rank, in whichever of its threads.
std::atomic<bool> has_joined{false};

// JavaScript threw already.
struct Pending {};

class Call {
 public:
  Call(napi_env env, napi_callback_info info) : env(env) {
    size_t count = 12;
    void* data;
    check(napi_get_cb_info(env, info, &count, arguments_, nullptr, &data));
    instance = static_cast<Instance*>(data);
  }
  napi_env env;
  Instance* instance;

  void check(napi_status status) const {
    if (status == napi_pending_exception) throw Pending{};
    if (status != napi_ok) throw std::runtime_error("an argument is of the wrong type");
  }
  double number(int i) const {
    double value;
    check(napi_get_value_double(env, arguments_[i], &value));
    return value;
  }
  int integer(int i) const { return int(number(i)); }
  bool boolean(int i) const {
    bool value;
    check(napi_get_value_bool(env, arguments_[i], &value));
    return value;
  }
  std::string text(int i) const { return text_of(arguments_[i]); }
  // The bytes of a typed array, and how many.
  std::pair<char*, size_t> bytes(int i) const {
    napi_typedarray_type type;
    size_t length;
    void* data;
    check(napi_get_typedarray_info(env, arguments_[i], &type, &length, &data, nullptr, nullptr));
    if (type != napi_uint8_array) throw std::runtime_error("expected a Uint8Array");
    return {static_cast<char*>(data), length};
  }
  double field(int i, const char* name) const {
    double value;
    check(napi_get_value_double(env, property(i, name), &value));
    return value;
  }
  std::string text_field(int i, const char* name) const { return text_of(property(i, name)); }

  napi_value from(double value) const {
    napi_value out;
    check(napi_create_double(env, value, &out));
    return out;
  }
  napi_value from(const std::string& value) const {
    napi_value out;
    check(napi_create_string_utf8(env, value.data(), value.size(), &out));
    return out;
  }

 private:
  napi_value property(int i, const char* name) const {
    napi_value value;
    check(napi_get_named_property(env, arguments_[i], name, &value));
    return value;
  }
  std::string text_of(napi_value value) const {
    size_t length;
    check(napi_get_value_string_utf8(env, value, nullptr, 0, &length));
    std::string out(length, '\0');
    check(napi_get_value_string_utf8(env, value, out.data(), length + 1, &length));
    return out;
  }
  napi_value arguments_[12];
};

// join(options, backend) → the number of the group of all
napi_value join(Call& call) {
  JoinOptions o;
  o.rank = int(call.field(0, "rank"));
  o.size = int(call.field(0, "size"));
  o.address = call.text_field(0, "address");
  o.port = int(call.field(0, "port"));
  o.listener = int(call.field(0, "listener"));
  o.secret = call.text_field(0, "secret");
  o.limit = call.field(0, "limit");
  o.join_limit = call.field(0, "joinLimit");
  o.connections = int(call.field(0, "connections"));
  o.proxy = call.text_field(0, "proxy");
  if (has_joined.exchange(true)) throw std::runtime_error("this process has joined the job already");
  // Unless this ends well.
  struct Joining {
    bool done = false;
    ~Joining() {
      if (!done) has_joined = false;
    }
  } joining;
  std::shared_ptr<World> world;
  try {
    world = std::make_shared<World>(o);
  } catch (const SocketError& error) {
    throw std::runtime_error(error.what);
  }
  std::vector<int> everybody;
  for (int i = 0; i < o.size; i++) everybody.push_back(i);
  auto group = std::make_shared<Group>(world, everybody, 0);
  group->connect(call.text(1));
  call.instance->worlds.insert(world);
  joining.done = true;
  return call.from(double(add_group(std::move(group))));
}

void leave_all(Instance& instance) {
  for (const auto& world : instance.worlds) {
    forget_groups(*world);
    const bool are_all_there = runs_mpi() && world->part();
    world->leave();
    finish_mpi(are_all_there);
    has_joined = false;
  }
  instance.worlds.clear();
}

napi_value leave(Call& call) {
  leave_all(*call.instance);
  return nullptr;
}

// The same members, connected by another backend: a group of its own.
napi_value again(Call& call) {
  const auto known = group_at(call.integer(0));
  const std::string backend = call.text(1);
  std::vector<int> members;
  for (int i = 0; i < known->size(); i++) members.push_back(known->world_rank(i));
  const auto world = known->shared_world();
  auto group = std::make_shared<Group>(world, members, checksum(backend.data(), backend.size()));
  group->connect(backend);
  return call.from(double(add_group(std::move(group))));
}

napi_value keep_on_share(Call& call) {
  napi_value out;
  const bool kept = lazuli::dist::keep_on_share(call.integer(0), call.integer(1));
  call.check(napi_get_boolean(call.env, kept, &out));
  return out;
}

napi_value has_mpi(Call& call) {
  napi_value out;
  call.check(napi_get_boolean(call.env, mpi_is_there(), &out));
  return out;
}

// add_device_work(group, operation, from, to) → its place among all; −1 and −1 for one of all members
napi_value add_device_work(Call& call) {
  const auto group = group_at(call.integer(0));
  Lane lane{group->id(), -1, -1};
  std::vector<int> members;
  if (call.integer(2) >= 0) {
    for (int i : {2, 3})
      if (call.integer(i) < 0 || call.integer(i) >= group->size())
        throw std::runtime_error("there is no such rank");
    lane.from = group->world_rank(call.integer(2));
    lane.to = group->world_rank(call.integer(3));
    members = {lane.from, lane.to};
  } else {
    members = group->members();
  }
  const auto operation = uint32_t(int64_t(call.number(1)));
  return call.from(double(group->world().add_device_work(lane, members, operation)));
}

// await_device(group, place, name)
napi_value await_device(Call& call) {
  const auto group = group_at(call.integer(0));
  group->world().await_device(call.text(2).c_str(), uint64_t(call.number(1)), group->members());
  return nullptr;
}

// ask_of_device(group, place, done)
napi_value ask_of_device(Call& call) {
  group_at(call.integer(0))->world().ask_of_device(uint64_t(call.number(1)), uint64_t(call.number(2)));
  return nullptr;
}

// agrees_on_device(group, place, milliseconds)
napi_value agrees_on_device(Call& call) {
  napi_value out;
  World& world = group_at(call.integer(0))->world();
  call.check(
      napi_get_boolean(call.env, world.agrees_on_device(uint64_t(call.number(1)), call.integer(2)), &out));
  return out;
}

// begin_device_call(group, is_begin)
napi_value begin_device_call(Call& call) {
  group_at(call.integer(0))->world().begin_device_call(call.boolean(1));
  return nullptr;
}

napi_value alarm(Call& call) { return call.from(double(group_at(call.integer(0))->world().alarm())); }

// end_device(group, is_waiting)
napi_value end_device(Call& call) {
  group_at(call.integer(0))->world().end_device(call.boolean(1));
  return nullptr;
}

napi_value rank(Call& call) { return call.from(double(group_at(call.integer(0))->rank())); }
napi_value size(Call& call) { return call.from(double(group_at(call.integer(0))->size())); }
napi_value transport(Call& call) {
  return call.from(std::string(group_at(call.integer(0))->transport().name()));
}
napi_value split(Call& call) {
  return call.from(double(add_group(group_at(call.integer(0))->split(call.integer(1), call.integer(2)))));
}

napi_value close(Call& call) {
  forget_group(call.integer(0));
  return nullptr;
}

// run(group, kind, reduction, dtype, in, out, count, peer, shape, name, structure, derivative): on
// the calling thread
napi_value run(Call& call) {
  const auto group = group_at(call.integer(0));
  const auto in = call.bytes(4), out = call.bytes(5);
  const std::string name = call.text(9);
  Work work{Kind(call.integer(1))};
  work.reduction = Reduction(call.integer(2));
  work.dtype = call.integer(3);
  work.in = in.first;
  work.out = out.first;
  work.count = int64_t(call.number(6));
  work.peer = call.integer(7);
  work.shape = uint32_t(call.number(8));
  work.name = name.c_str();
  work.structure = uint32_t(call.number(10));
  work.derivative = uint8_t(call.integer(11));
  const size_t bytes = size_t(work.count) * size_of(work.dtype), n = size_t(group->size());
  size_t needed_in = bytes, needed_out = bytes;
  if (work.kind == Kind::allGather) needed_out *= n;
  if (work.kind == Kind::sumScatter) needed_out /= n;
  if (work.kind == Kind::recv) needed_in = 0;
  if (in.second < needed_in || out.second < needed_out || work.peer < 0 || size_t(work.peer) >= n)
    throw std::runtime_error("the arrays are too small, or there is no such rank");
  group->run(work);
  return nullptr;
}

template <napi_value (*body)(Call&)>
napi_value entry(napi_env env, napi_callback_info info) {
  try {
    Call call(env, info);
    return body(call);
  } catch (const Pending&) {
  } catch (const std::exception& error) {
    napi_throw_error(env, "ERR_LAZULI_DISTRIBUTED", error.what());
  }
  return nullptr;
}

int number_in(const char* variable) {
  const char* text = std::getenv(variable);
  return text ? std::atoi(text) : 0;
}

// A process whose launcher was killed must not stay: the launcher holds the other end of a pipe, and writes
// nothing.
void end_with_launcher() {
  static std::atomic<bool> begun{false};
  const int line = number_in("LAZULI_LIFELINE");
  // Processes that a rank starts inherit its environment, but not the pipe.
  if (line <= 0 || getppid() != number_in("LAZULI_PARENT") || begun.exchange(true)) return;
  fcntl(line, F_SETFD, FD_CLOEXEC);
  std::thread([line] {
    char byte;
    while (read(line, &byte, 1) < 0 && errno == EINTR) {
    }
    kill(getpid(), SIGTERM);
  }).detach();
}

void clean_up(void* data) {
  auto* instance = static_cast<Instance*>(data);
  leave_all(*instance);
  delete instance;
}

const struct {
  const char* name;
  napi_callback run;
} functions[] = {{"join", entry<join>},
                 {"leave", entry<leave>},
                 {"close", entry<close>},
                 {"rank", entry<rank>},
                 {"size", entry<size>},
                 {"split", entry<split>},
                 {"run", entry<run>},
                 {"transport", entry<transport>},
                 {"again", entry<again>},
                 {"hasMpi", entry<has_mpi>},
                 {"addDeviceWork", entry<add_device_work>},
                 {"awaitDevice", entry<await_device>},
                 {"endDevice", entry<end_device>},
                 {"askOfDevice", entry<ask_of_device>},
                 {"agreesOnDevice", entry<agrees_on_device>},
                 {"beginDeviceCall", entry<begin_device_call>},
                 {"alarm", entry<alarm>},
                 {"keepOnShare", entry<keep_on_share>}};

}  // namespace
}  // namespace lazuli::dist

NAPI_MODULE_INIT() {
  using namespace lazuli::dist;
  end_with_launcher();
  auto* instance = new Instance;
  napi_add_env_cleanup_hook(env, clean_up, instance);
  for (const auto& [name, run] : functions) {
    napi_value value;
    if (napi_create_function(env, name, NAPI_AUTO_LENGTH, run, instance, &value) == napi_ok)
      napi_set_named_property(env, exports, name, value);
  }
  return exports;
}
