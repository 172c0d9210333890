// A program with a model and nothing else: its size is the model's.
#include HEADER

int main() {
  CLASS model;
  return model.Run() ? 0 : 1;
}
