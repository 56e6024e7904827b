#include "cuda/staging.h"

namespace lz {
namespace {

constexpr size_t kAlign = 256;

size_t rounded_up(size_t nbytes) { return (nbytes + kAlign - 1) / kAlign * kAlign; }

}  // namespace

Result Staging::open(const Driver* driver, size_t half) {
  driver_ = driver;
  void* data = nullptr;
  if (const Result r = driver->MemHostAlloc(&data, 2 * half, 0)) return r;
  data_ = static_cast<char*>(data);
  half_ = half;
  for (Event& event : events_)
    if (const Result r = driver->EventCreate(&event, kDisableTiming)) return r;
  return kSuccess;
}

void Staging::close() {
  for (Event event : events_)
    if (event) driver_->EventDestroy(event);
  if (data_) driver_->MemFreeHost(data_);
  data_ = nullptr;
}

bool Staging::is_full(size_t nbytes) const { return used_ + rounded_up(nbytes) > half_; }

Result Staging::take(size_t nbytes, Stream stream, char** data) {
  const size_t rounded = rounded_up(nbytes);
  if (is_full(nbytes)) {
    if (const Result r = driver_->EventRecord(events_[now_], stream)) return r;
    pending_[now_] = true;
    now_ = 1 - now_;
    used_ = 0;
    if (pending_[now_])
      if (const Result r = driver_->EventSynchronize(events_[now_])) return r;
    pending_[now_] = false;
  }
  *data = at(now_) + used_;
  used_ += rounded;
  return kSuccess;
}

}  // namespace lz
