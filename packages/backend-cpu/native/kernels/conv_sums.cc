// Convolution with more kernel positions than output positions, as a gradient by weights is: every output
// position sums outer products of input batch and output channels over all positions of the kernel. Inputs
// beyond the edge are left out by shortening the sums, so nothing is padded.
#include <cstring>

#include "kernels/conv.h"

namespace lazuli::conv {
namespace {

// The kernel positions that meet an input at one output position: first + t · step, with inputs begin + t ·
// stride.
struct Meeting {
  int64_t first, step, count, begin, stride;
};

std::vector<Meeting> meetings_of(const Axis& axis) {
  std::vector<Meeting> all;
  for (int64_t o = 0; o < axis.out; o++) {
    Meeting m{0, 1, 0, 0, 0};
    for (int64_t k = 0; k < axis.kernel; k++) {
      const int64_t at = o * axis.stride + k * axis.kernel_dilation - axis.low;
      if (at < 0 || at % axis.input_dilation != 0) continue;
      const int64_t i = at / axis.input_dilation;
      if (i >= axis.in) break;
      if (m.count == 0) {
        m.first = k;
        m.begin = i;
      } else if (m.count == 1) {
        m.step = k - m.first;
        m.stride = i - m.begin;
      }
      m.count++;
    }
    all.push_back(m);
  }
  return all;
}

// Those of a meeting whose kernel positions are in [from, to).
Meeting within(Meeting m, int64_t from, int64_t to) {
  const int64_t skip = m.first >= from ? 0 : std::min(m.count, ceil_div(from - m.first, m.step));
  m.first += skip * m.step;
  m.begin += skip * m.stride;
  m.count = m.first >= to ? 0 : std::min(m.count - skip, ceil_div(to - m.first, m.step));
  return m;
}

template <class T>
class Sums {
 public:
  Sums(const lz_call& call, const Problem<T>& p) : call_(call), p_(p), loop_(loops<T>()) {
    for (int i = 0; i < kAxes; i++) meetings_[i] = meetings_of(p.axes[i]);
    lanewise_ = p.unmixed() && p.batch == 1;
    columns_ = lanewise_ ? p.groups : p.outputs;
    width_ = (lanewise_ ? 4 : 2) * loop_.lanes;
    panels_ = ceil_div(columns_, width_);
    groups_ = lanewise_ ? 1 : p.groups;
    // A unit is a piece of the last axis at one position of the others; a chunk is some units whose operands
    // fit a cache.
    const int64_t each = (p.batch + std::min(columns_, width_)) * int64_t(sizeof(T));
    chunk_ = std::clamp<int64_t>((int64_t{192} << 10) / each, 32, 1024);
    const int64_t last = p.axes[2].kernel;
    parts_ = ceil_div(last, chunk_);
    length_ = ceil_div(last, parts_);
    parts_ = ceil_div(last, length_);
    units_ = p.channels * p.axes[0].kernel * p.axes[1].kernel * parts_;
    per_chunk_ = std::max<int64_t>(1, chunk_ / length_);
    image_ = p.output_positions() * p.groups * p.outputs;
  }

  void run() {
    if (!p_.add) each_image(0.1, [&](int64_t, T* y) { std::fill_n(y, image_, T(0)); });
    // Long sums are cut into parts by the problem's size alone, so results do not depend on threads.
    constexpr int64_t kItems = 16;
    const int64_t pieces = groups_ * panels_, size = p_.batch * image_;
    int64_t splits = std::min(ceil_div(kItems, pieces), ceil_div(units_, per_chunk_));
    if (double(size) * double(splits) > double(int64_t{16} << 20)) splits = 1;
    T* sums = splits > 1 ? scratch<T>(call_, size * splits) : p_.y;
    const int64_t y_batch = splits > 1 ? image_ : p_.y_batch;
    if (splits > 1) std::fill_n(sums, size * splits, T(0));
    Leases<T> packed(call_, lanewise_ ? 0 : per_chunk_ * length_ * width_);
    Leases<ConvRun<T>> runs(call_, lanewise_ ? (2 * kTaps + 1) * per_chunk_ : per_chunk_);
    const double price = double(units_ * length_) / double(splits) *
                         double(p_.output_positions() * p_.batch) * double(std::min(columns_, width_)) *
                         kPrice<T> * (lanewise_ ? 2 : 1);
    parallel(call_, pieces * splits, price, [&](int64_t begin, int64_t end) {
      const typename Leases<T>::Lease panel(packed);
      const typename Leases<ConvRun<T>>::Lease run(runs);
      for (int64_t item = begin; item < end; item++) {
        const int64_t split = item / pieces;
        T* y = sums + (splits > 1 ? split * size : 0);
        for (int64_t unit = units_ * split / splits, stop = units_ * (split + 1) / splits; unit < stop;
             unit += per_chunk_) {
          const int64_t last = std::min(unit + per_chunk_, stop), panel_index = item % pieces % panels_;
          if (lanewise_)
            chunk_lanes(panel_index, unit, last, y, run.data());
          else
            chunk(item % pieces / panels_, panel_index, unit, last, y, y_batch, panel.data(), run.data());
        }
      }
    });
    if (splits == 1) return;
    each_image(0.1 * double(splits), [&](int64_t image, T* y) {
      for (int64_t split = 0; split < splits; split++) {
        const T* part = sums + split * size + image * image_;
        for (int64_t i = 0; i < image_; i++) y[i] += part[i];
      }
    });
  }

 private:
  template <class F>
  void each_image(double price, F f) {
    parallel(call_, p_.batch, price * double(image_), [&](int64_t begin, int64_t end) {
      for (int64_t image = begin; image < end; image++) f(image, p_.y + image * p_.y_batch);
    });
  }

  struct Unit {
    int64_t channel, position[2], from, to;
  };
  Unit unit_at(int64_t index) const {
    const int64_t part = index % parts_, row = index / parts_;
    const int64_t k1 = row % p_.axes[1].kernel, rest = row / p_.axes[1].kernel;
    return {rest / p_.axes[0].kernel,
            {rest % p_.axes[0].kernel, k1},
            part * length_,
            std::min((part + 1) * length_, p_.axes[2].kernel)};
  }

  void chunk(int64_t group, int64_t panel, int64_t first, int64_t last, T* y, int64_t y_batch, T* packed,
             ConvRun<T>* runs) const {
    const Axis* axes = p_.axes;
    const int64_t column = panel * width_, count = std::min(width_, columns_ - column);
    const int64_t readable = count > loop_.lanes ? 2 * loop_.lanes : loop_.lanes;
    const T* x = p_.x + group * p_.channels * p_.x_channel;
    const T* w = p_.w + (group * p_.outputs + column) * p_.w_output;
    const bool pack = count < readable;
    int64_t w_step = axes[2].w_step;
    if (pack) {
      for (int64_t u = first; u < last; u++)
        pack_unit(w, unit_at(u), count, readable, packed + (u - first) * length_ * readable);
      w_step = readable;
    }
    int64_t position = 0;
    for (const Meeting& a : meetings_[0]) {
      for (const Meeting& b : meetings_[1]) {
        for (const Meeting& c : meetings_[2]) {
          const int64_t at = position++;
          int64_t n = 0;
          for (int64_t u = first; u < last; u++) {
            const Unit unit = unit_at(u);
            const Meeting i = within(a, unit.position[0], unit.position[0] + 1),
                          j = within(b, unit.position[1], unit.position[1] + 1),
                          k = within(c, unit.from, unit.to);
            if (i.count == 0 || j.count == 0 || k.count == 0) continue;
            const T* from = x + unit.channel * p_.x_channel + i.begin * axes[0].x_step +
                            j.begin * axes[1].x_step + k.begin * axes[2].x_step;
            const T* weights = pack ? packed + ((u - first) * length_ + k.first - unit.from) * readable
                                    : w + unit.channel * p_.w_channel + unit.position[0] * axes[0].w_step +
                                          unit.position[1] * axes[1].w_step + k.first * axes[2].w_step;
            runs[n++] = {from, weights, k.count};
          }
          if (n == 0) continue;
          T* to = y + (at * p_.groups + group) * p_.outputs + column;
          const int64_t tiles = ceil_div(p_.batch, loop_.outer_rows);
          for (int64_t tile = 0; tile < tiles; tile++) {
            const int64_t row = p_.batch * tile / tiles, end = p_.batch * (tile + 1) / tiles;
            const int64_t shift = tile == 0 ? 0 : row - p_.batch * (tile - 1) / tiles;
            for (int64_t r = 0; r < n; r++) runs[r].a += shift;
            loop_.outer({runs, n, c.stride * axes[2].x_step, c.step * w_step, to + row * y_batch, y_batch,
                         int32_t(end - row), int32_t(count)});
          }
        }
      }
    }
  }

  // Channels that do not mix. Neighbouring output positions of the last axis share the kernel positions at
  // which all of them meet an input; the rest is summed for each.
  void chunk_lanes(int64_t panel, int64_t first, int64_t last, T* y, ConvRun<T>* memory) const {
    const Axis* axes = p_.axes;
    const int64_t column = panel * width_, count = std::min(width_, columns_ - column);
    const T *x = p_.x + column, *w = p_.w + column;
    const int64_t kept = per_chunk_, taps = axes[2].input_dilation == 1 ? kTaps : 1;
    ConvRun<T>*shared = memory, *own = memory + kept;
    y += column;
    for (const Meeting& a : meetings_[0]) {
      for (const Meeting& b : meetings_[1]) {
        for (int64_t o = 0; o < axes[2].out; o += taps) {
          const int64_t together = std::min(taps, axes[2].out - o);
          const Meeting* c = &meetings_[2][size_t(o)];
          int64_t n_shared = 0, n_own[kTaps] = {}, offsets[kTaps];
          for (int64_t t = 0; t < together; t++) offsets[t] = t * axes[2].stride * axes[2].x_step;
          for (int64_t u = first; u < last; u++) {
            const Unit unit = unit_at(u);
            const Meeting i = within(a, unit.position[0], unit.position[0] + 1),
                          j = within(b, unit.position[1], unit.position[1] + 1);
            if (i.count == 0 || j.count == 0) continue;
            const T* from = x + i.begin * axes[0].x_step + j.begin * axes[1].x_step;
            const T* weights = w + unit.position[0] * axes[0].w_step + unit.position[1] * axes[1].w_step;
            const auto add = [&](ConvRun<T>* list, int64_t& n, const Meeting& k) {
              if (k.count > 0)
                list[n++] = {from + k.begin * axes[2].x_step, weights + k.first * axes[2].w_step, k.count};
            };
            int64_t low = unit.from, high = unit.to;
            for (int64_t t = 0; t < together && together > 1; t++) {
              low = std::max(low, c[t].first);
              high = std::min(high, c[t].count == 0 ? low : c[t].first + c[t].count);
            }
            high = std::max(low, high);
            add(shared, n_shared, within(c[0], low, high));
            for (int64_t t = 0; t < together && together > 1; t++) {
              add(own + 2 * kept * t, n_own[t], within(c[t], unit.from, low));
              add(own + 2 * kept * t, n_own[t], within(c[t], high, unit.to));
            }
          }
          const int64_t a_step = c[0].stride * axes[2].x_step, b_step = c[0].step * axes[2].w_step;
          if (n_shared > 0)
            loop_.dots({shared, n_shared, a_step, b_step, offsets, y, p_.groups, count, int32_t(together)});
          for (int64_t t = 0; t < together; t++) {
            if (n_own[t] > 0)
              loop_.dots({own + 2 * kept * t, n_own[t], c[t].stride * axes[2].x_step,
                          c[t].step * axes[2].w_step, offsets, y + t * p_.groups, p_.groups, count, 1});
          }
          y += together * p_.groups;
        }
      }
    }
  }

  // The columns of a panel that is not full, with zeros behind them.
  void pack_unit(const T* w, const Unit& unit, int64_t count, int64_t width, T* to) const {
    const T* from = w + unit.channel * p_.w_channel + unit.position[0] * p_.axes[0].w_step +
                    unit.position[1] * p_.axes[1].w_step;
    for (int64_t k = unit.from; k < unit.to; k++, to += width) {
      std::memcpy(to, from + k * p_.axes[2].w_step, size_t(count) * sizeof(T));
      std::fill(to + count, to + width, T(0));
    }
  }

  static constexpr int64_t kTaps = 3;
  const lz_call& call_;
  const Problem<T>& p_;
  const ConvLoops<T>& loop_;
  std::vector<Meeting> meetings_[kAxes];
  bool lanewise_;
  int64_t columns_, width_, panels_, groups_, chunk_, parts_, length_, units_, per_chunk_, image_;
};

}  // namespace

template <class T>
void by_sums(const lz_call& call, const Problem<T>& p) {
  Sums<T>(call, p).run();
}

template void by_sums(const lz_call&, const Problem<float>&);
template void by_sums(const lz_call&, const Problem<double>&);

}  // namespace lazuli::conv
