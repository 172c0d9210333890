// A program that contains only a model, so its size is the model's.
#include HEADER

int main() {
  CLASS model;
  return model.Run() ? 0 : 1;
}
