// Mistakes with Metal that the fake must notice, each by itself.
#pragma once

#include <string>
#include <vector>

namespace lz::fake {

std::vector<std::string> mistake_names();
// Right programs, which must not be taken for one.
std::vector<std::string> right_names();
// Makes one of either; gives what the fake says.
std::vector<std::string> make_mistake(const std::string& name);

}  // namespace lz::fake
