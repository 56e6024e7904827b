#include "machine/functions.h"

#include "machine/traced.h"

#define LZ_TARGET traced
#include "simd/math.h"

namespace lazuli::machine {
namespace {

template <size_t kLanes>
int append(Op op, int argument) {
  namespace from = lazuli::traced;
  const hwy::traced::Tag<float, kLanes> d;
  const hwy::traced::Traced<float> x{argument};
  switch (op) {
    case Op::exp:
      return from::exp(d, x).id;
    case Op::expm1:
      return from::expm1(d, x).id;
    case Op::log:
      return from::log(d, x).id;
    case Op::log1p:
      return from::log1p(d, x).id;
    case Op::tanh:
      return from::tanh(d, x).id;
    case Op::sigmoid:
      return from::sigmoid(d, x).id;
    case Op::erf:
      return from::erf(d, x).id;
    default:
      return -1;
  }
}

}  // namespace

int append_function(Sequence& sequence, Op op, int argument, int lanes) {
  tracing = &sequence;
  const int made = lanes == 16 ? append<16>(op, argument) : append<8>(op, argument);
  tracing = nullptr;
  return made;
}

}  // namespace lazuli::machine
