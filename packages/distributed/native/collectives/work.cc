// Operations in words, for failures.
#include "collectives/group.h"

namespace lazuli::dist {
namespace {

const char* const kDtypes[] = {"bool",  "uint8", "uint16",  "uint32",  "uint64",   "int8",    "int16",
                               "int32", "int64", "float16", "float32", "bfloat16", "float64", "complex64"};
const char* const kKinds[] = {"allReduce", "allGather", "sumScatter", "broadcast",
                              "allToAll",  "send",      "send",       "barrier"};
const char* const kReductions[] = {"allSum", "allMax", "allMin"};

std::string describe(const Work& work) {
  std::string text = work.kind == Kind::allReduce ? kReductions[unsigned(work.reduction) % 3]
                                                  : kKinds[unsigned(work.kind) % 8];
  if (work.kind == Kind::barrier) return text;
  text += " of " + std::to_string(work.count) + " " + kDtypes[unsigned(work.dtype) % 14] +
          (work.count == 1 ? " element" : " elements");
  if (work.kind == Kind::broadcast) text += " from rank " + std::to_string(work.peer);
  return text;
}

}  // namespace

std::string difference(const Work& theirs, uint64_t their_sequence, bool same_group, const Work& mine,
                       uint64_t my_sequence) {
  const std::string first = describe(theirs), second = describe(mine);
  if (first == second && their_sequence == my_sequence && same_group)
    return "has an array of another shape with the same number of elements in operation " +
           std::to_string(my_sequence) + ", " + second;
  return "is at operation " + std::to_string(their_sequence) + " of " +
         (same_group ? "the group, " : "another group, ") + first + ", and this rank at operation " +
         std::to_string(my_sequence) + ", " + second + ": all ranks must do the same in the same order";
}

}  // namespace lazuli::dist
