// Convolution of two axes with 3 × 3 kernels and stride 1, by Winograd's minimal filtering: 2 × 2 pixels
// take 16 products for each pair of channels, where the definition takes 36. The input's tiles are
// transformed into 16 matrices of tiles × channels, each of which meets a matrix of transformed weights, and
// the 16 results become pixels. What of it is under way stays in the second cache.
#include <bit>

#include "kernels/conv.h"
#include "simd/winograd.h"

namespace lazuli::conv {
namespace {

constexpr int64_t kElements = 16, kTaps = 9;
// Floats between neighbouring elements of a transform beyond what they need, so that they share no cache set.
constexpr int64_t kGap = 16;

class Winograd {
 public:
  Winograd(const lz_call& call, const Problem<float>& p)
      : call_(call),
        p_(p),
        loop_(winograd_table()),
        tile_(loops<float>()),
        columns_{p.outputs, tile_.lanes, tile_.narrow},
        high_(ceil_div(p.axes[1].out, 2)),
        wide_(ceil_div(p.axes[2].out, 2)),
        tiles_(p.batch * high_ * wide_),
        row_(ceil_div(p.channels, kGap) * kGap) {
    if (row_ % 128 == 0) row_ += kGap;
    const int64_t most = kCache / int64_t(sizeof(float)) / (kElements * (row_ + 2 * tile_.lanes));
    each_ = std::clamp<int64_t>(most, 24, 96) / tile_.tile_rows * tile_.tile_rows;
    each_ = std::min(each_, tiles_);
    panels_each_ = columns_.panels();
    const auto items = [&] { return ceil_div(tiles_, each_) * ceil_div(columns_.panels(), panels_each_); };
    constexpr int64_t kItems = 16;
    while (panels_each_ > 2 && items() < kItems) panels_each_ = (panels_each_ + 1) / 2;
    v_step_ = each_ * row_ + kGap;
  }

  void run() {
    transform_weights();
    const int64_t panel_groups = ceil_div(columns_.panels(), panels_each_);
    const int64_t items = ceil_div(tiles_, each_) * panel_groups;
    Leases<float> blocks(call_, block_size());
    Leases<float*> pointers(call_, kElements + tile_.tile_rows + 5 * each_);
    wild_ = scratch<char>(call_, items);
    // Nanoseconds of the products, and of a channel's or column's transform.
    constexpr double kTransform = 1.2;
    const double channels = double(p_.channels),
                 columns = double(std::min(panels_each_ * 2 * columns_.lanes, columns_.padded()));
    const double price =
        double(each_) * (kElements * channels * columns * kPrice<float> + (channels + columns) * kTransform);
    parallel(call_, items, price, [&](int64_t begin, int64_t end) {
      const typename Leases<float>::Lease memory(blocks);
      const typename Leases<float*>::Lease pointer(pointers);
      for (int64_t item = begin; item < end; item++) {
        const int64_t first = item / panel_groups * each_, panel = item % panel_groups * panels_each_;
        const Tiles tiles{first, std::min(each_, tiles_ - first)};
        wild_[item] = !is_tame(tiles);
        if (!wild_[item])
          block(tiles, panel, std::min(panel + panels_each_, columns_.panels()), memory.data(),
                pointer.data());
      }
    });
    repair(items, panel_groups);
  }

 private:
  struct Tiles {
    int64_t first, count;
  };
  int64_t block_size() const {
    return kElements * v_step_ + tile_.tile_rows * kElements * 2 * columns_.lanes + p_.channels;
  }
  int64_t u_step(int64_t panel) const { return p_.channels * columns_.width(panel) + kGap; }
  float* u_panel(int64_t panel) const { return u_ + panel * kElements * u_step(0); }

  // For every panel: [element][channel][width], zeros where there is no output channel.
  void transform_weights() {
    constexpr int64_t kChannels = 64;
    const int64_t parts = ceil_div(p_.channels, kChannels), items = columns_.panels() * parts;
    u_ = scratch<float>(call_, columns_.panels() * kElements * u_step(0));
    Leases<float> packed(call_, kTaps * kChannels * 2 * columns_.lanes);
    uint32_t* largest = scratch<uint32_t>(call_, items);
    parallel(call_, items, double(kChannels * 2 * columns_.lanes) * 5, [&](int64_t begin, int64_t end) {
      const typename Leases<float>::Lease lease(packed);
      for (int64_t item = begin; item < end; item++) {
        const int64_t panel = item / parts, channel = item % parts * kChannels;
        const int64_t n = std::min(kChannels, p_.channels - channel), width = columns_.width(panel);
        const float* from = p_.w + columns_.begin(panel) * p_.w_output + channel * p_.w_channel;
        for (int64_t tap = 0; tap < kTaps; tap++)
          pack_tap(p_, from + tap / 3 * p_.axes[1].w_step + tap % 3 * p_.axes[2].w_step,
                   columns_.count(panel), n, width, lease.data() + tap * n * width);
        loop_.weights(lease.data(), n * width, u_panel(panel) + channel * width, u_step(panel));
        largest[item] = loop_.largest(lease.data(), kTaps * n * width);
      }
    });
    // Below the limit no sum overflows, in whatever order: of the definition's products, of a transform, or
    // of theirs.
    constexpr double kMost = 0x1p100;
    const double weight = std::bit_cast<float>(*std::max_element(largest, largest + items));
    limit_ = weight < kMost ? std::min(kMost, kMost / (weight * double(kTaps * p_.channels))) : 0;
  }

  // True if the inputs that the tiles cover are so small that nothing can overflow.
  bool is_tame(const Tiles& tiles) const {
    const int64_t last = tiles.first + tiles.count - 1;
    int64_t row = tiles.first / wide_;
    const bool alone = row == last / wide_;
    const int64_t left = alone ? 2 * (tiles.first % wide_) - p_.axes[2].low : 0;
    const int64_t right = alone ? 2 * (last % wide_) - p_.axes[2].low + 4 : p_.axes[2].in;
    const int64_t begin = std::clamp<int64_t>(left, 0, p_.axes[2].in),
                  end = std::clamp(right, begin, p_.axes[2].in);
    const bool dense = p_.axes[2].x_step == p_.channels;
    uint32_t most = 0;
    while (row <= last / wide_) {
      const int64_t image = row / high_, stop = std::min(last / wide_, image * high_ + high_ - 1);
      const int64_t low = 2 * (row % high_) - p_.axes[1].low, high = 2 * (stop % high_) - p_.axes[1].low + 4;
      for (int64_t i = std::max<int64_t>(low, 0); i < std::min(high, p_.axes[1].in); i++) {
        const float* x = p_.x + image * p_.x_batch + i * p_.axes[1].x_step + begin * p_.axes[2].x_step;
        if (dense)
          most = std::max(most, loop_.largest(x, (end - begin) * p_.channels));
        else
          for (int64_t j = begin; j < end; j++, x += p_.axes[2].x_step)
            most = std::max(most, loop_.largest(x, p_.channels));
      }
      row = stop + 1;
    }
    return double(std::bit_cast<float>(most)) < limit_;
  }

  // The pixels of a tile of the input, zeros beyond the edges.
  void pixels(int64_t tile, const float* zeros, const float** x) const {
    const Axis &a = p_.axes[1], &b = p_.axes[2];
    const int64_t row = 2 * (tile / wide_ % high_) - a.low, column = 2 * (tile % wide_) - b.low;
    const float* from = p_.x + tile / wide_ / high_ * p_.x_batch + row * a.x_step + column * b.x_step;
    const bool inside = row >= 0 && row + 4 <= a.in && column >= 0 && column + 4 <= b.in;
    for (int64_t i = 0; i < 4; i++, from += a.x_step) {
      for (int64_t j = 0; j < 4; j++)
        *x++ = inside || (row + i >= 0 && row + i < a.in && column + j >= 0 && column + j < b.in)
                   ? from + j * b.x_step
                   : zeros;
    }
  }
  // The pixels of a tile of the output, null beyond the edges.
  void pixels(int64_t tile, float** y) const {
    const Axis &a = p_.axes[1], &b = p_.axes[2];
    const int64_t row = 2 * (tile / wide_ % high_), column = 2 * (tile % wide_);
    float* to = p_.y + tile / wide_ / high_ * p_.y_batch + row * a.y_step + column * b.y_step;
    y[0] = to;
    y[1] = column + 1 < b.out ? to + b.y_step : nullptr;
    y[2] = row + 1 < a.out ? to + a.y_step : nullptr;
    y[3] = y[1] && y[2] ? to + a.y_step + b.y_step : nullptr;
  }

  void block(const Tiles& tiles, int64_t panel, int64_t panel_end, float* memory, float** pointers) const {
    float *v = memory, *m = v + kElements * v_step_,
          *zeros = m + tile_.tile_rows * kElements * 2 * columns_.lanes;
    std::fill_n(zeros, p_.channels, 0.0f);
    const float** x = const_cast<const float**>(pointers);
    float **rows = pointers + kElements, **results = rows + each_, **y = results + tile_.tile_rows;
    for (int64_t i = 0; i < tiles.count; i++) {
      rows[i] = v + i * row_;
      pixels(tiles.first + i, y + 4 * i);
      pixels(tiles.first + i, zeros, x);
      loop_.input(x, p_.channels, rows[i], v_step_);
    }
    const int64_t parts = ceil_div(tiles.count, tile_.tile_rows);
    for (int64_t j = panel; j < panel_end; j++) {
      const int64_t width = columns_.width(j), column = columns_.begin(j);
      for (int64_t r = 0; r < tile_.tile_rows; r++) results[r] = m + r * kElements * width;
      for (int64_t part = 0; part < parts; part++) {
        const int64_t begin = tiles.count * part / parts, end = tiles.count * (part + 1) / parts;
        for (int64_t element = 0; element < kElements; element++) {
          const int64_t offset = element * v_step_, pixels = 4 * (end - begin);
          // The results' lines are fetched while the products run, some with each.
          for (int64_t i = pixels * element / kElements; i < pixels * (element + 1) / kElements; i++)
            fetch(y[4 * begin + i], column, columns_.count(j));
          tile_.tile({rows + begin, results, &offset, u_panel(j) + element * u_step(j), 1, p_.channels,
                      element * width, int32_t(end - begin), int32_t(width), 0, false});
        }
        for (int64_t i = begin; i < end; i++) {
          float* to[4];
          for (int k = 0; k < 4; k++) to[k] = y[4 * i + k] ? y[4 * i + k] + column : nullptr;
          loop_.output(results[i - begin], columns_.count(j), to, width);
        }
      }
    }
  }

  static void fetch(const float* y, int64_t column, int64_t count) {
    constexpr int64_t kLine = 64 / int64_t(sizeof(float));
    for (int64_t i = 0; y && i < count; i += kLine) __builtin_prefetch(y + column + i, 1);
  }

  // The images from the first to the last one with inputs that are not tame, by the definition.
  void repair(int64_t items, int64_t panel_groups) const {
    const char *first = std::find(wild_, wild_ + items, 1), *last = wild_ + items;
    if (first == last) return;
    while (last[-1] == 0) last--;
    const auto image = [&](int64_t tile) { return std::min(tile, tiles_ - 1) / wide_ / high_; };
    const int64_t begin = image((first - wild_) / panel_groups * each_),
                  end = image((last - 1 - wild_) / panel_groups * each_ + each_ - 1) + 1;
    Problem<float> p = p_;
    p.batch = end - begin;
    p.x += begin * p.x_batch;
    p.y += begin * p.y_batch;
    by_tiles(call_, p);
  }

  const lz_call& call_;
  const Problem<float>& p_;
  const WinogradTable& loop_;
  const ConvLoops<float>& tile_;
  Columns columns_;
  int64_t high_, wide_, tiles_, row_, each_, panels_each_, v_step_;
  float* u_ = nullptr;
  char* wild_ = nullptr;
  double limit_ = 0;
};

}  // namespace

bool suits_winograd(const Problem<float>& p) {
  const Axis &outer = p.axes[0], &a = p.axes[1], &b = p.axes[2];
  if (p.groups != 1 || p.add || outer.in != 1 || outer.kernel != 1 || outer.out != 1 || outer.low != 0)
    return false;
  for (const Axis* axis : {&a, &b})
    if (axis->kernel != 3 || axis->stride != 1 || axis->kernel_dilation != 1 || axis->input_dilation != 1)
      return false;
  // Measured with each instruction set, for 3² to 128² pixels and 4 to 512 channels: below 16 channels the
  // transforms cost what they save, and so do tiles that reach beyond the edges, where two thirds of the
  // products are left.
  constexpr int64_t kChannels = 16, kPairs = 128;
  if (p.channels < kChannels || p.channels * p.outputs < kPairs) return false;
  return 2 * kTaps * a.out * b.out >= 3 * kElements * ceil_div(a.out, 2) * ceil_div(b.out, 2);
}

void by_winograd(const lz_call& call, const Problem<float>& p) { Winograd(call, p).run(); }

}  // namespace lazuli::conv
