// A plug-in, or a part of a program: one function, which runs the model of
// HEADER on ones.
#include HEADER

#include <cstddef>

#ifndef ENTRY
#define ENTRY Score
#endif

extern "C" __attribute__((visibility("default"))) float ENTRY() {
  trigger::Anomaly model;
  auto x = model.x();
  for (float& value : x) value = 1;
  // The address of a static member, of which this makes a copy.
  const std::size_t* volatile size = &x.kSize;
  return model.Run() && *size == x.size() ? model.output()(0, 0) : -1.0f;
}
