// Operations in words, for failures.
#include "collectives/group.h"

namespace lazuli::dist {
namespace {

const char* const kDtypes[] = {"bool",  "uint8", "uint16",  "uint32",  "uint64",   "int8",    "int16",
                               "int32", "int64", "float16", "float32", "bfloat16", "float64", "complex64"};
const char* const kKinds[] = {"allReduce", "allGather", "sumScatter", "broadcast",
                              "allToAll",  "a message", "a message",  "barrier"};
const char* const kReductions[] = {"allSum", "allMax", "allMin"};

bool are_gradients(const Label& label) { return Kind(label.kind) == Kind::allReduce && label.detail != 0; }

std::string describe(const Label& label) {
  const auto kind = Kind(label.kind % 8);
  std::string text = are_gradients(label)      ? "averageGradients"
                     : kind == Kind::allReduce ? kReductions[label.reduction % 3]
                                               : kKinds[label.kind % 8];
  if (kind == Kind::barrier) return text;
  text += " of " + std::to_string(label.count) + " " + kDtypes[label.dtype % 14] +
          (label.count == 1 ? " element" : " elements");
  if (kind == Kind::broadcast) text += " from rank " + std::to_string(label.detail);
  if (label.derivative > 0) text += ", for a derivative";
  return text;
}

}  // namespace

Label label_of(const Work& work, uint32_t group, uint64_t sequence) {
  // The sender of a message and its receiver do different things.
  const Kind kind = work.kind == Kind::recv ? Kind::send : work.kind;
  const uint32_t detail = kind == Kind::broadcast ? uint32_t(work.peer) : work.structure;
  return {sequence,
          work.count,
          group,
          work.shape,
          detail,
          uint8_t(kind),
          uint8_t(work.reduction),
          uint8_t(work.dtype),
          work.derivative};
}

std::string difference(const Label& theirs, const Label& mine, int my_rank) {
  const std::string first = describe(theirs), second = describe(mine);
  const bool same_group = theirs.group == mine.group;
  const bool same_place = same_group && theirs.sequence == mine.sequence;
  if (same_place && are_gradients(theirs) && are_gradients(mine) && theirs.detail != mine.detail)
    return "averages gradients of other names, shapes or dtypes than rank " + std::to_string(my_rank) +
           ", or in buckets of another size, in operation " + std::to_string(mine.sequence) + " of the group";
  if (first == second && same_place)
    return "has an array of another shape with the same number of elements in operation " +
           std::to_string(mine.sequence) + ", " + second;
  return "is at operation " + std::to_string(theirs.sequence) + " of " +
         (same_group ? "the group, " : "another group, ") + first + ", and rank " + std::to_string(my_rank) +
         " at operation " + std::to_string(mine.sequence) + ", " + second +
         ": all ranks must do the same in the same order";
}

}  // namespace lazuli::dist
