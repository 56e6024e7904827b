#include "cuda/staging.h"

namespace lz {
namespace {

constexpr size_t kAlign = 256;

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

Result Staging::take(size_t nbytes, Stream stream, char** data) {
  const size_t rounded = (nbytes + kAlign - 1) / kAlign * kAlign;
  if (used_ + rounded > half_) {
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
