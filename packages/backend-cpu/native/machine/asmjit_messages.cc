// asmjit's debugging functions, without words. Its own is the one object of Debian's static library that is
// not position-independent, and is left out of the addon because these are found first.
#include <asmjit/core.h>

#include <cstdlib>

namespace asmjit::DebugUtils {

const char* errorAsString(Error) noexcept { return ""; }
void debugOutput(const char*) noexcept {}
void assertionFailed(const char*, int, const char*) noexcept { std::abort(); }

}  // namespace asmjit::DebugUtils
