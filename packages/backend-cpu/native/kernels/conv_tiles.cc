// Convolution as a matrix product whose left factor is never written out: rows are pixels, and a pixel's row
// is the runs of input elements that its kernel covers. The input of a block of pixels is copied once, with
// its padding, into memory that stays in cache; where no padding is met it is read in place.
#include <numeric>

#include "kernels/conv.h"

namespace lazuli::conv {
namespace {

// One combination of phases.
template <class T>
class Tiles {
 public:
  Tiles(const lz_call& call, const Problem<T>& p, const Phase* a, const Phase* b, const Phase* c)
      : call_(call), p_(p), phase_{a, b, c}, columns_{p.outputs, loops<T>().lanes, loops<T>().narrow} {
    for (int i = 0; i < kAxes; i++) {
      low_[i] = phase_[i]->lowest();
      reach_[i] = phase_[i]->highest() - low_[i];
    }
    taps_ = taps(0) * taps(1) * taps(2);
    cut_channels();
    cut_pixels();
  }

  void run() {
    const T* w = pack_weights();
    Leases<T> tiles(call_, direct_ ? 0 : tile_size());
    Leases<int64_t> offsets(call_, taps_);
    Leases<T*> pixels(call_, 2 * rows_ * width_);
    const int64_t panel_groups =
        columns_.panels() < panels_each_ ? 1 : ceil_div(columns_.panels(), panels_each_);
    const int64_t items = p_.groups * blocks_ * panel_groups;
    const double price = double(rows_ * width_) *
                         double(std::min(panels_each_ * 2 * columns_.lanes, p_.outputs)) *
                         double(taps_ * p_.channels) * kPrice<T>;
    parallel(call_, items, price, [&](int64_t begin, int64_t end) {
      const typename Leases<T>::Lease tile(tiles);
      const typename Leases<int64_t>::Lease offset(offsets);
      const typename Leases<T*>::Lease pixel(pixels);
      for (int64_t item = begin; item < end; item++) {
        const int64_t panel = item % panel_groups * panels_each_;
        block(w, item / panel_groups / blocks_, item / panel_groups % blocks_, panel,
              std::min(panel + panels_each_, columns_.panels()), tile.data(), offset.data(), pixel.data());
      }
    });
  }

 private:
  int64_t taps(int axis) const { return int64_t(phase_[axis]->taps.size()); }
  int64_t count(int axis) const { return phase_[axis]->count; }

  // Sums of one pass are long enough to pay for reading and writing the result, and short enough for a panel
  // of weights and a tile of the input to stay in cache.
  void cut_channels() {
    const int64_t most = std::clamp<int64_t>(2048 / taps_, 32, 1024);
    passes_ = ceil_div(p_.channels, most);
    each_ = ceil_div(p_.channels, passes_);
    passes_ = ceil_div(p_.channels, each_);
  }

  void cut_pixels() {
    direct_ = true;
    for (int i = 0; i < kAxes; i++)
      direct_ &= low_[i] >= 0 && low_[i] + reach_[i] + (count(i) - 1) * phase_[i]->stride < p_.axes[i].in;
    // A block is rows_ × width_ pixels of one image and one index of the first axis.
    constexpr int64_t kPixels = 512;
    parts_ = ceil_div(count(2), kPixels);
    width_ = ceil_div(count(2), parts_);
    parts_ = ceil_div(count(2), width_);
    rows_ = std::clamp<int64_t>(kPixels / width_, 1, count(1));
    const int64_t most = int64_t{192 << 10} / int64_t(sizeof(T));
    while (!direct_ && rows_ > 1 && tile_size() > most) rows_ = (rows_ + 1) / 2;
    while (!direct_ && width_ > 64 && tile_size() > most) width_ = (width_ + 1) / 2;
    parts_ = ceil_div(count(2), width_);
    const auto blocks = [&] { return p_.groups * p_.batch * count(0) * ceil_div(count(1), rows_) * parts_; };
    constexpr int64_t kItems = 16;
    while (blocks() < kItems && rows_ > 1 && rows_ * width_ >= 128) rows_ = (rows_ + 1) / 2;
    while (blocks() < kItems && rows_ == 1 && width_ >= 128) {
      width_ = (width_ + 1) / 2;
      parts_ = ceil_div(count(2), width_);
    }
    panels_each_ = columns_.panels();
    while (panels_each_ > 1 && blocks() * ceil_div(columns_.panels(), panels_each_) < kItems)
      panels_each_ = (panels_each_ + 1) / 2;
    // Even shares, so that the last block is not a sliver.
    rows_ = ceil_div(count(1), ceil_div(count(1), rows_));
    bands_ = ceil_div(count(1), rows_);
    blocks_ = p_.batch * count(0) * bands_ * parts_;
  }

  // A tile holds, for every tap of the first axis, the rows and columns of the input that the block covers.
  int64_t tile_columns() const { return (width_ - 1) * phase_[2]->stride + reach_[2] + 1; }
  int64_t tile_rows() const { return (rows_ - 1) * phase_[1]->stride + reach_[1] + 1; }
  int64_t tile_size() const { return taps(0) * tile_rows() * tile_columns() * each_; }

  // For every group, pass and panel: [tap][channel][width], zeros where there is no output channel.
  const T* pack_weights() {
    const int64_t one = taps_ * p_.channels * columns_.padded();
    T* packed = scratch<T>(call_, p_.groups * one);
    const double price = double(taps_ * p_.channels) * double(2 * columns_.lanes) * 0.5;
    parallel(call_, p_.groups * columns_.panels(), price, [&](int64_t begin, int64_t end) {
      for (int64_t item = begin; item < end; item++) {
        const int64_t group = item / columns_.panels(), panel = item % columns_.panels();
        for (int64_t pass = 0; pass < passes_; pass++)
          pack_panel(packed + group * one + panel_offset(pass, panel), group, pass, panel);
      }
    });
    return packed;
  }
  int64_t first_channel(int64_t pass) const { return pass * each_; }
  int64_t channels(int64_t pass) const { return std::min(each_, p_.channels - first_channel(pass)); }
  int64_t panel_offset(int64_t pass, int64_t panel) const {
    return taps_ * (first_channel(pass) * columns_.padded() + channels(pass) * columns_.begin(panel));
  }
  void pack_panel(T* to, int64_t group, int64_t pass, int64_t panel) const {
    const int64_t width = columns_.width(panel), used = columns_.count(panel), n = channels(pass);
    const T* w = p_.w + (group * p_.outputs + columns_.begin(panel)) * p_.w_output +
                 first_channel(pass) * p_.w_channel;
    for (const Tap& a : phase_[0]->taps) {
      for (const Tap& b : phase_[1]->taps) {
        for (const Tap& c : phase_[2]->taps) {
          const T* from =
              w + a.kernel * p_.axes[0].w_step + b.kernel * p_.axes[1].w_step + c.kernel * p_.axes[2].w_step;
          pack_tap(p_, from, used, n, width, to);
          to += n * width;
        }
      }
    }
  }

  struct Block {
    int64_t image, plane, row, column, rows, columns;
  };
  Block block_at(int64_t block) const {
    const int64_t part = block % parts_, band = block / parts_ % bands_;
    Block at{block / parts_ / bands_ / count(0),
             block / parts_ / bands_ % count(0),
             band * rows_,
             part * width_,
             0,
             0};
    at.rows = std::min(rows_, count(1) - at.row);
    at.columns = std::min(width_, count(2) - at.column);
    return at;
  }

  void block(const T* w, int64_t group, int64_t index, int64_t panel, int64_t panel_end, T* tile,
             int64_t* offsets, T** pointers) const {
    const ConvLoops<T>& loop = loops<T>();
    const Block at = block_at(index);
    const int64_t pixels = at.rows * at.columns;
    const T** from = const_cast<const T**>(pointers);
    T** to = pointers + rows_ * width_;
    T* y = p_.y + at.image * p_.y_batch + output(0, at.plane) * p_.axes[0].y_step + group * p_.outputs;
    for (int64_t r = 0, i = 0; r < at.rows; r++) {
      T* row = y + output(1, at.row + r) * p_.axes[1].y_step;
      for (int64_t c = 0; c < at.columns; c++) to[i++] = row + output(2, at.column + c) * p_.axes[2].y_step;
    }
    const T* x = p_.x + at.image * p_.x_batch + group * p_.channels * p_.x_channel;
    const int64_t row_tiles = ceil_div(pixels, loop.tile_rows);
    for (int64_t pass = 0; pass < passes_; pass++) {
      const int64_t n = channels(pass);
      int64_t step[kAxes];
      const T* base = direct_ ? in_place(x + first_channel(pass) * p_.x_channel, at, step)
                              : fill_tile(x + first_channel(pass) * p_.x_channel, at, n, tile, step);
      for (int64_t r = 0, i = 0; r < at.rows; r++) {
        for (int64_t c = 0; c < at.columns; c++)
          from[i++] = base + r * phase_[1]->stride * step[1] + c * phase_[2]->stride * step[2];
      }
      ConvTile<T> t{nullptr, nullptr, offsets, nullptr, 0, n, 0, 0, 0, 0, p_.add || pass > 0};
      t.taps = list_offsets(step, n, offsets, t.length);
      // Panel by panel, unless pixels and results would fill the second cache, where weights would not: then
      // all panels meet one tile of pixels after the other, and the first one fetches what is read in place
      // for the next tile.
      const int64_t wide = (panel_end - panel) * 2 * loop.lanes * int64_t(sizeof(T));
      const bool tile_by_tile =
          taps_ * n * wide <= kCache && pixels * (n * int64_t(sizeof(T)) + wide) > kCache;
      int32_t following = 0;
      const auto row_tile = [&](int64_t i) {
        const int64_t begin = pixels * i / row_tiles, end = pixels * (i + 1) / row_tiles;
        following = int32_t(std::min(pixels - end, end - begin));
        t.x = from + begin;
        t.y = to + begin;
        t.rows = int32_t(end - begin);
      };
      const auto weights = [&](int64_t j) {
        t.w = w + group * taps_ * p_.channels * columns_.padded() + panel_offset(pass, j);
        t.column = columns_.begin(j);
        t.columns = int32_t(columns_.count(j));
        t.next = tile_by_tile && direct_ && j == panel ? following : 0;
      };
      if (tile_by_tile) {
        for (int64_t i = 0; i < row_tiles; i++) {
          row_tile(i);
          for (int64_t j = panel; j < panel_end; j++) weights(j), loop.tile(t);
        }
      } else {
        for (int64_t j = panel; j < panel_end; j++)
          for (int64_t i = 0; i < row_tiles; i++) row_tile(i), weights(j), loop.tile(t);
      }
    }
  }
  int64_t output(int axis, int64_t t) const { return phase_[axis]->first + t * phase_[axis]->step; }
  // The input position of the lowest tap at output t.
  int64_t input(int axis, int64_t t) const { return low_[axis] + t * phase_[axis]->stride; }

  const T* in_place(const T* x, const Block& at, int64_t* step) const {
    for (int i = 0; i < kAxes; i++) step[i] = p_.axes[i].x_step;
    return x + input(0, at.plane) * step[0] + input(1, at.row) * step[1] + input(2, at.column) * step[2];
  }

  const T* fill_tile(const T* x, const Block& at, int64_t n, T* tile, int64_t* step) const {
    const int64_t rows = (at.rows - 1) * phase_[1]->stride + reach_[1] + 1;
    const int64_t columns = (at.columns - 1) * phase_[2]->stride + reach_[2] + 1;
    step[2] = n;
    step[1] = columns * n;
    step[0] = rows * columns * n;
    const int64_t column = input(2, at.column);
    const int64_t begin = std::clamp<int64_t>(-column, 0, columns),
                  end = std::clamp<int64_t>(p_.axes[2].in - column, begin, columns);
    const bool dense = p_.axes[2].x_step == n;
    for (int64_t a = 0; a < taps(0); a++) {
      const int64_t plane = phase_[0]->taps[size_t(a)].offset + at.plane * phase_[0]->stride;
      for (int64_t r = 0; r < rows; r++) {
        const int64_t row = input(1, at.row) + r;
        T* to = tile + a * step[0] + r * step[1];
        if (plane < 0 || plane >= p_.axes[0].in || row < 0 || row >= p_.axes[1].in) {
          std::fill_n(to, columns * n, T(0));
          continue;
        }
        std::fill_n(to, begin * n, T(0));
        const T* source =
            x + plane * p_.axes[0].x_step + row * p_.axes[1].x_step + (column + begin) * p_.axes[2].x_step;
        if (dense)
          std::copy_n(source, (end - begin) * n, to + begin * n);
        else
          for (int64_t c = begin; c < end; c++, source += p_.axes[2].x_step)
            std::copy_n(source, n, to + c * n);
        std::fill_n(to + end * n, (columns - end) * n, T(0));
      }
    }
    return tile;
  }

  // Where each tap's run begins, from the lowest tap's; neighbouring taps whose elements follow each other
  // make one run.
  int64_t list_offsets(const int64_t* step, int64_t n, int64_t* offsets, int64_t& length) const {
    const auto& last = phase_[2]->taps;
    bool follow = step[2] == n;
    for (size_t i = 1; i < last.size(); i++) follow &= last[i].offset == last[i - 1].offset + 1;
    length = follow ? n * taps(2) : n;
    int64_t count = 0;
    for (int64_t a = 0; a < taps(0); a++) {
      const int64_t plane = direct_ ? phase_[0]->taps[size_t(a)].offset - low_[0] : a;
      for (const Tap& b : phase_[1]->taps) {
        const int64_t row = plane * step[0] + (b.offset - low_[1]) * step[1];
        for (const Tap& c : last) {
          offsets[count++] = row + (c.offset - low_[2]) * step[2];
          if (follow) break;
        }
      }
    }
    return count;
  }

  const lz_call& call_;
  const Problem<T>& p_;
  const Phase* phase_[kAxes];
  Columns columns_;
  int64_t low_[kAxes], reach_[kAxes], taps_, passes_, each_;
  int64_t parts_, width_, rows_, bands_, blocks_, panels_each_;
  bool direct_;
};

}  // namespace

std::vector<Phase> phases_of(const Axis& axis) {
  const int64_t period = axis.input_dilation / std::gcd(axis.input_dilation, axis.stride);
  std::vector<Phase> phases;
  for (int64_t first = 0; first < std::min(period, axis.out); first++) {
    Phase phase{
        first, period, ceil_div(axis.out - first, period), period * axis.stride / axis.input_dilation, {}};
    for (int64_t k = 0; k < axis.kernel; k++) {
      const int64_t at = first * axis.stride + k * axis.kernel_dilation - axis.low;
      if (at % axis.input_dilation != 0) continue;
      const int64_t offset = at / axis.input_dilation;
      if (offset < axis.in && offset + (phase.count - 1) * phase.stride >= 0)
        phase.taps.push_back({k, offset});
    }
    phases.push_back(std::move(phase));
  }
  return phases;
}

namespace {

// Clears the elements that no tap reaches.
template <class T>
void clear(const lz_call& call, const Problem<T>& p, const Phase& a, const Phase& b, const Phase& c) {
  parallel(call, p.batch * a.count * b.count, 0.1 * double(c.count * p.groups * p.outputs),
           [&](int64_t begin, int64_t end) {
             for (int64_t i = begin; i < end; i++) {
               T* y = p.y + i / b.count / a.count * p.y_batch +
                      (a.first + i / b.count % a.count * a.step) * p.axes[0].y_step +
                      (b.first + i % b.count * b.step) * p.axes[1].y_step;
               for (int64_t t = 0; t < c.count; t++)
                 std::fill_n(y + (c.first + t * c.step) * p.axes[2].y_step, p.groups * p.outputs, T(0));
             }
           });
}

}  // namespace

template <class T>
void by_tiles(const lz_call& call, const Problem<T>& p) {
  for_phases(call, p, [&](const Phase& a, const Phase& b, const Phase& c) {
    if (!a.taps.empty() && !b.taps.empty() && !c.taps.empty())
      Tiles<T>(call, p, &a, &b, &c).run();
    else if (!p.add)
      clear(call, p, a, b, c);
  });
}

namespace {

// One row of outputs: pixels whose taps all lie in the input together, those at the edges one by one.
template <class T>
void lanes_row(const Problem<T>& p, const Phase& a, const Phase& b, const Phase& c, const T* w, int64_t image,
               int64_t plane, int64_t row, int64_t* offsets) {
  const int64_t channels = p.groups;
  const int64_t taps = int64_t(a.taps.size() * b.taps.size() * c.taps.size());
  const Axis* axes = p.axes;
  ConvLanes<T> t{nullptr,
                 w,
                 nullptr,
                 offsets,
                 offsets + taps,
                 0,
                 1,
                 0,
                 channels,
                 c.stride * axes[2].x_step,
                 c.step * axes[2].y_step,
                 0,
                 0,
                 p.add};
  const T* x =
      p.x + image * p.x_batch + (plane * a.stride) * axes[0].x_step + (row * b.stride) * axes[1].x_step;
  T* y = p.y + image * p.y_batch + (a.first + plane * a.step) * axes[0].y_step +
         (b.first + row * b.step) * axes[1].y_step + c.first * axes[2].y_step;
  // Neighbouring taps that meet neighbouring pixels are one run.
  bool follow = c.stride == 1;
  for (size_t i = 1; i < c.taps.size(); i++) follow &= c.taps[i].offset == c.taps[i - 1].offset + 1;
  const auto run = [&](int64_t begin, int64_t end, bool whole) {
    int64_t n = 0, index = -1;
    for (const Tap& i : a.taps) {
      const int64_t at0 = i.offset + plane * a.stride;
      for (const Tap& j : b.taps) {
        const int64_t at1 = j.offset + row * b.stride;
        for (const Tap& k : c.taps) {
          index++;
          const int64_t at2 = k.offset + begin * c.stride;
          if (at0 < 0 || at0 >= axes[0].in || at1 < 0 || at1 >= axes[1].in) continue;
          if (whole ? &k != c.taps.data() : at2 < 0 || at2 >= axes[2].in) continue;
          offsets[n] = i.offset * axes[0].x_step + j.offset * axes[1].x_step + k.offset * axes[2].x_step;
          offsets[taps + n++] = index * channels;
        }
      }
    }
    t.taps = n;
    t.run = whole ? int64_t(c.taps.size()) : 1;
    t.pixels = end - begin;
    t.x = x + begin * t.x_step;
    t.y = y + begin * t.y_step;
    loops<T>().lanewise(t);
  };
  t.run = int64_t(c.taps.size()), t.pixels = c.count;
  t.low = -c.taps[0].offset, t.high = axes[2].in - c.taps[0].offset;
  if (follow && loops<T>().edges(t)) return run(0, c.count, true);
  t.low = 0, t.high = INT64_MAX;
  const int64_t low = c.lowest(), high = c.highest();
  // Pixels from `inner` up to `outer` have all taps inside.
  const int64_t inner = std::min(c.count, low >= 0 ? 0 : ceil_div(-low, c.stride));
  const int64_t room = axes[2].in - 1 - high;
  const int64_t outer = std::clamp<int64_t>(room < 0 ? 0 : room / c.stride + 1, inner, c.count);
  for (int64_t i = 0; i < inner; i++) run(i, i + 1, false);
  if (outer > inner) run(inner, outer, follow);
  for (int64_t i = outer; i < c.count; i++) run(i, i + 1, false);
}

}  // namespace

template <class T>
void by_lanes(const lz_call& call, const Problem<T>& p) {
  for_phases(call, p, [&](const Phase& a, const Phase& b, const Phase& c) {
    if (a.taps.empty() || b.taps.empty() || c.taps.empty()) {
      if (!p.add) clear(call, p, a, b, c);
      return;
    }
    const int64_t taps = int64_t(a.taps.size() * b.taps.size() * c.taps.size());
    // [tap][channel]
    T* w = scratch<T>(call, taps * p.groups);
    T* to = w;
    for (const Tap& i : a.taps) {
      for (const Tap& j : b.taps) {
        for (const Tap& k : c.taps) {
          const T* from =
              p.w + i.kernel * p.axes[0].w_step + j.kernel * p.axes[1].w_step + k.kernel * p.axes[2].w_step;
          for (int64_t g = 0; g < p.groups; g++) *to++ = from[g * p.w_output];
        }
      }
    }
    Leases<int64_t> offsets(call, 2 * taps);
    const double price = double(c.count * p.groups * taps) * kPrice<T> * 2 + 100;
    parallel(call, p.batch * a.count * b.count, price, [&](int64_t begin, int64_t end) {
      const typename Leases<int64_t>::Lease lease(offsets);
      for (int64_t i = begin; i < end; i++)
        lanes_row(p, a, b, c, w, i / b.count / a.count, i / b.count % a.count, i % b.count, lease.data());
    });
  });
}

template void by_tiles(const lz_call&, const Problem<float>&);
template void by_tiles(const lz_call&, const Problem<double>&);
template void by_lanes(const lz_call&, const Problem<float>&);
template void by_lanes(const lz_call&, const Problem<double>&);

}  // namespace lazuli::conv
