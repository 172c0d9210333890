// Loads a variables file, reverses the bytes of written variables, and saves
// all: `exchange IN OUT [NAME DTYPE DIMS BYTES WRITTEN]...`, where DIMS is
// separated by commas. Prints an error on failure.
#include <algorithm>
#include <cstdint>
#include <cstdio>
#include <list>
#include <sstream>
#include <string>
#include <vector>

#include "tests/runtime/owned_variables.h"

int main(int argc, char** argv) {
  std::list<std::vector<std::int64_t>> shapes;
  std::vector<tfaot::VariableInfo> infos;
  for (int i = 3; i + 4 < argc; i += 5) {
    std::vector<std::int64_t>& dims = shapes.emplace_back();
    std::istringstream text(argv[i + 2]);
    for (std::string dim; std::getline(text, dim, ',');) {
      dims.push_back(std::stoll(dim));
    }
    infos.push_back({argv[i], argv[i + 1], dims.data(),
                     static_cast<int>(dims.size()), std::stoull(argv[i + 3]), 0,
                     argv[i + 4] == std::string("1")});
  }
  tests::Variables variables(infos.data(), infos.size(), nullptr);
  bool ok = variables.Load(argv[1]);
  for (std::size_t i = 0; ok && i < infos.size(); ++i) {
    if (!infos[i].written) continue;
    auto* bytes = static_cast<unsigned char*>(variables.mutable_data(i));
    std::reverse(bytes, bytes + infos[i].bytes);
  }
  if (!ok || !variables.Save(argv[2])) {
    std::puts(variables.error());
    return 1;
  }
  return 0;
}
