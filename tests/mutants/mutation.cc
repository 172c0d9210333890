#include "mutation.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <random>
#include <utility>
#include <vector>

namespace tfaot::mutants {
namespace {

Mutation chosen;
std::mt19937_64 bits;

// A copy of an operand's values. Valid until the next copy.
template <typename T>
T* Copy(const void* data, std::size_t count) {
  static unsigned char* block = nullptr;
  static std::size_t size = 0;
  const std::size_t wanted = (count * sizeof(T) + 63) / 64 * 64;
  if (wanted > size) {
    std::free(block);
    block = static_cast<unsigned char*>(std::aligned_alloc(64, wanted));
    size = wanted;
  }
  std::memcpy(block, data, count * sizeof(T));
  return reinterpret_cast<T*>(block);
}

template <typename T>
unsigned char* Mutated(const void* data) {
  const Mutation& m = chosen;
  const auto count = static_cast<std::size_t>(m.count);
  T* const values = Copy<T>(data, count);
  const std::int64_t size = m.rows * m.columns;
  switch (m.kind) {
    case Kind::kScale:
      for (std::size_t i = 0; i < count; ++i) {
        values[i] = static_cast<T>(values[i] * m.value);
      }
      break;
    case Kind::kZero:
      std::memset(values, 0, count * sizeof(T));
      break;
    case Kind::kTranspose: {
      const auto* const from = static_cast<const T*>(data);
      for (std::int64_t start = 0; start + size <= m.count; start += size) {
        for (std::int64_t r = 0; r < m.rows; ++r) {
          for (std::int64_t c = 0; c < m.columns; ++c) {
            values[start + c * m.rows + r] = from[start + r * m.columns + c];
          }
        }
      }
      break;
    }
    case Kind::kSwapRows:
      for (std::int64_t start = 0; start + size <= m.count; start += size) {
        T* const at = values + start;
        std::swap_ranges(at + m.a * m.columns, at + (m.a + 1) * m.columns,
                         at + m.b * m.columns);
      }
      break;
    case Kind::kSwapColumns:
      for (T* row = values; row + m.columns <= values + count;
           row += m.columns) {
        std::swap(row[m.a], row[m.b]);
      }
      break;
    default:
      std::abort();
  }
  return reinterpret_cast<unsigned char*>(values);
}

bool OfOperand(Kind kind) {
  return kind == Kind::kScale || kind == Kind::kZero ||
         kind == Kind::kTranspose || kind == Kind::kSwapRows ||
         kind == Kind::kSwapColumns;
}

unsigned char* Changed(const void* data) {
  return chosen.dtype == 'd' ? Mutated<double>(data) : Mutated<float>(data);
}

template <typename T>
void RoundAll(T* values, std::size_t count) {
  for (std::size_t i = 0; i < count; ++i) {
    if (values[i] == 0 || !std::isfinite(values[i])) continue;
    const T to = bits() >> 63 ? INFINITY : -INFINITY;
    values[i] = std::nextafter(values[i], to);
  }
}

void Rounded(char dtype, void* values, std::int64_t count) {
  const auto size = static_cast<std::size_t>(count);
  if (values == nullptr) return;
  if (dtype == 'f') RoundAll(static_cast<float*>(values), size);
  if (dtype == 'd') RoundAll(static_cast<double*>(values), size);
}

template <typename T>
void SwapResults(void* out, std::int64_t rows, std::int64_t columns) {
  auto* const values = static_cast<T*>(out);
  if (values == nullptr) return;
  for (std::int64_t row = 0; row < rows; ++row) {
    std::swap(values[row * columns + chosen.a],
              values[row * columns + chosen.b]);
  }
}

void WrittenRows(int site, char dtype, std::int64_t rows, std::int64_t columns,
                 void* out, void* finished) {
  if (chosen.kind == Kind::kRounding) {
    Rounded(dtype, out, rows * columns);
    if (finished != out) Rounded(dtype, finished, rows * columns);
  }
  if (chosen.kind != Kind::kSwapResults || site != chosen.site) return;
  for (void* values : {out, finished == out ? nullptr : finished}) {
    if (dtype == 'd') {
      SwapResults<double>(values, rows, columns);
    } else {
      SwapResults<float>(values, rows, columns);
    }
  }
}

}  // namespace

void Choose(const Mutation& mutation) {
  chosen = mutation;
  bits.seed(static_cast<std::uint64_t>(mutation.value));
}

const Mutation& Chosen() { return chosen; }

void Round(float* values, std::size_t count) { RoundAll(values, count); }
void Round(double* values, std::size_t count) { RoundAll(values, count); }

bool Runs(int site) {
  return chosen.kind != Kind::kSkip || chosen.site != site;
}

std::int64_t Trips(int site, std::int64_t trips) {
  return chosen.kind == Kind::kTrips && chosen.site == site ? chosen.a : trips;
}

unsigned char* Operand(int site, int operand, unsigned char* data) {
  if (site != chosen.site || operand != chosen.operand ||
      !OfOperand(chosen.kind)) {
    return data;
  }
  return Changed(data);
}

kernels::Images Sizes(int site, kernels::Images sizes) {
  if (chosen.kind == Kind::kPadding && chosen.site == site) {
    (chosen.operand == 0 ? sizes.x : sizes.y).padding += chosen.a;
  }
  return sizes;
}

kernels::Epilogue Finish(int site, kernels::Epilogue epilogue) {
  if (chosen.site != site) return epilogue;
  if (chosen.kind == Kind::kBias) epilogue.bias = nullptr;
  if (chosen.kind == Kind::kAddend) {
    epilogue.addend = epilogue.addend_bias = nullptr;
  }
  if (chosen.kind == Kind::kScale && chosen.operand == 2) {
    epilogue.scale *= chosen.value;
  }
  if (chosen.kind == Kind::kBound) {
    (chosen.operand == 0 ? epilogue.low : epilogue.high) = chosen.value;
  }
  return epilogue;
}

void Written(int site, char dtype, const kernels::Products& sizes, void* out,
             void* finished) {
  WrittenRows(site, dtype, sizes.batch * sizes.rows, sizes.columns, out,
              finished);
}

void Written(int site, char dtype, const kernels::Images& sizes, void* out,
             void* finished) {
  WrittenRows(site, dtype, sizes.batch * sizes.x.output * sizes.y.output,
              sizes.filters, out, finished);
}

const KernelCall* Call(int site, const KernelCall* call) {
  if (site != chosen.site || !OfOperand(chosen.kind)) return call;
  static std::vector<KernelArg> args;
  static KernelCall copy;
  args.assign(call->args, call->args + call->num_args);
  KernelArg& arg = args[static_cast<std::size_t>(chosen.operand)];
  arg.data = Changed(arg.data);
  copy = *call;
  copy.args = args.data();
  return &copy;
}

bool Run(int site, const Instance& instance, const Program& program,
         bool (*body)(const Instance&)) {
  if (chosen.kind != Kind::kExchange || chosen.site != site) {
    return body(instance);
  }
  const std::size_t buffers =
      program.num_args + program.num_memory + program.num_constants;
  std::vector<unsigned char*> data(instance.buffers,
                                   instance.buffers + buffers);
  std::swap(data[static_cast<std::size_t>(chosen.a)],
            data[static_cast<std::size_t>(chosen.b)]);
  std::vector<KernelArg> args(program.num_kernel_args);
  std::vector<KernelCall> calls(program.num_calls);
  std::size_t next = 0;
  for (std::size_t call = 0; call < calls.size(); ++call) {
    calls[call] = instance.calls[call];
    calls[call].args = args.data() + next;
    for (std::size_t i = 0; i < calls[call].num_args; ++i, ++next) {
      const KernelArgPlace& place = program.kernel_args[next];
      args[next] = {data[place.buffer] + place.offset, place.size};
    }
  }
  Instance exchanged = instance;
  exchanged.buffers = data.data();
  exchanged.calls = calls.data();
  return body(exchanged);
}

}  // namespace tfaot::mutants
