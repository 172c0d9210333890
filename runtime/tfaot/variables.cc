#include "tfaot/variables.h"

#include <algorithm>
#include <cstring>

#include "tfaot/message.h"

namespace tfaot {

using files::Allocate;
using files::RoundUp;

std::size_t Variables::MemoryBytes(const VariableInfo* infos,
                                   std::size_t count) noexcept {
  std::uint64_t bytes = RoundUp(count * sizeof(const unsigned char*));
  for (std::size_t i = 0; i < count; ++i) {
    if (infos[i].written) bytes += RoundUp(infos[i].bytes);
  }
  return bytes;
}

Variables::Variables(Weights weights, unsigned char* memory,
                     bool zeroed) noexcept
    : weights_(std::move(weights)),
      values_(reinterpret_cast<const unsigned char**>(memory)) {
  unsigned char* next = memory + RoundUp(count() * sizeof(*values_));
  for (std::size_t i = 0; i < count(); ++i) {
    const VariableInfo& info = infos()[i];
    const unsigned char* const value = weights_.set()->values[i].data.get();
    values_[i] = value;
    if (!info.written || info.bytes == 0) continue;
    if (loaded()) {
      std::memcpy(next, value, info.bytes);
    } else if (!zeroed) {
      std::memset(next, 0, info.bytes);
    }
    values_[i] = next;
    next += RoundUp(info.bytes);
  }
}

void* Variables::mutable_data(std::size_t index) {
  const VariableInfo& info = infos()[index];
  if (!info.written && info.bytes > 0 &&
      values_[index] == weights_.set()->values[index].data.get()) {
    const auto made =
        std::find_if(copies_.begin(), copies_.end(),
                     [&](const Copy& copy) { return copy.index == index; });
    Copy& copy = made != copies_.end()
                     ? *made
                     : copies_.emplace_back(Copy{index, Allocate(info.bytes)});
    std::memcpy(copy.values.get(), values_[index], info.bytes);
    values_[index] = copy.values.get();
  }
  return own_data(index);
}

void Variables::Take(Weights weights) noexcept {
  for (std::size_t i = 0; i < count(); ++i) {
    if (!infos()[i].written) {
      values_[i] = weights.set()->values[i].data.get();
    }
  }
  weights_ = std::move(weights);
}

Status Variables::Load(const Source& source) {
  Weights next;
  Status status = LoadWeights(source, *weights_.set(), &next);
  if (!status) return status;
  for (std::size_t i = 0; i < count(); ++i) {
    const WeightSet::Value& value = next.set()->values[i];
    if (infos()[i].written && infos()[i].bytes > 0 && value.given) {
      std::memcpy(own_data(i), value.data.get(), infos()[i].bytes);
    }
  }
  live_ = nullptr;
  Take(std::move(next));
  return status;
}

Status Variables::SetWeights(const Weights& weights) {
  Status status = CheckWeights(weights, infos());
  if (!status) return status;
  live_ = nullptr;
  Take(weights);
  return status;
}

Status Variables::Follow(const LiveWeights* live) {
  Status status;
  if (live != nullptr) status = SetWeights(live->Current());
  if (status) live_ = live;
  return status;
}

Status Variables::Save(const char* path) const {
  if (path == nullptr) {
    return Status(Code::kInvalidArgument,
                  Message("the variables can't be saved", "a path of nullptr",
                          "pass the path of a file"));
  }
  if (!loaded()) {
    return Status(Code::kNoWeights,
                  Message(path + std::string(" can't be saved"),
                          "the variables have no values", "call Load() first"));
  }
  return SaveValues(path, infos(), count(), values_);
}

}  // namespace tfaot
