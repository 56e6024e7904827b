// The GPU of a Mac: memory that it shares with the host, libraries and pipelines. Everything is numbers to
// JavaScript.
#pragma once

#include <memory>

#include "apple/queue.h"

namespace lz::apple {

struct Facts {
  std::string name, architecture;
  double max_buffer, working_set, threadgroup_memory, allocated;
  bool unified, apple7, metal3;
};

struct Kernel {
  uint32_t id, max_threads, simd_width;
};

// The device and what was made of it. Used by one thread.
class Device {
 public:
  // Throws Failure where there is none.
  explicit Device(const std::vector<std::string>& libraries);
  ~Device();

  Facts facts() const;

  // Zeroed memory, shared with the host.
  uint32_t new_buffer(size_t length);
  // Memory of others at a page's start; 0 where the device does not take it.
  uint32_t wrap(void* address, size_t length);
  // The memory goes once the work that was committed has run.
  void free_buffer(uint32_t id);
  // The memory, once the work that uses it has run.
  char* read(uint32_t id, size_t offset, size_t length);
  char* data(uint32_t id) { return living(id).data; }
  size_t length(uint32_t id) { return living(id).length; }
  // The memory's object, once more.
  Owned object(uint32_t id) { return Owned::retained(living(id).object); }
  // Keeps at most so many bytes in physical memory, where the system can; false where it cannot.
  bool wire(double bytes);

  uint32_t new_library(const std::string& source, int math_mode);
  uint32_t load_library(const std::string& path);
  std::vector<std::string> kernels(uint32_t library) const;
  Kernel new_pipeline(uint32_t library, const std::string& name,
                      const std::vector<std::pair<uint32_t, double>>& constants);

  uint32_t new_queue();
  uint32_t new_event();
  uint64_t event_value(uint32_t id) const;
  // The number of the submission. What names no stream runs on the queue.
  uint64_t commit(uint32_t queue, const uint32_t* words, size_t count);
  // Waits for a submission of any queue; what went wrong, or nothing.
  std::string wait(uint64_t submission);

  void start_capture(const std::string& path);
  void stop_capture();

  // Seconds after which waiting ends; 0 never.
  double time_limit = 300;

 private:
  void keep_in_memory(Buffer& buffer);
  void drop(Buffer& buffer);
  void collect();
  uint32_t add(Owned object, size_t length);
  Buffer& living(uint32_t id);
  Id library(uint32_t id) const;
  Queue& queue_of(uint32_t stream, uint32_t first);

  Owned device_;
  Tables tables_;
  std::vector<uint32_t> free_ids_;
  std::vector<std::pair<uint64_t, Buffer>> leaving_;
  std::vector<Owned> libraries_;
  std::vector<std::unique_ptr<Queue>> queues_;
  std::vector<uint32_t> streams_;  // their queues, without the first
  uint32_t stream_ = 0;
  uint64_t submissions_ = 0;
  Owned residency_;
  double wired_limit_ = 0, wired_ = 0;
  bool captures_ = false;
};

}  // namespace lz::apple
