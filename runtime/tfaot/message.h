// The text of error messages.
#ifndef TFAOT_MESSAGE_H_
#define TFAOT_MESSAGE_H_

#include <string>
#include <vector>

namespace tfaot {

// Formats an error like all errors of the rules (py/tfaot/core/errors.py).
inline std::string Message(const std::string& asked, const std::string& found,
                           const std::string& to_do,
                           const std::vector<std::string>& details = {}) {
  std::string text = asked;
  if (!details.empty()) {
    text += "\n";
    for (const std::string& line : details) text += "\n    " + line;
    text += "\n";
  }
  if (!found.empty()) text += "\n  found: " + found;
  return text + "\n  to do: " + to_do;
}

}  // namespace tfaot

#endif  // TFAOT_MESSAGE_H_
