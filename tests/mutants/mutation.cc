#include "mutation.h"

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <cstring>
#include <random>
#include <string>
#include <type_traits>
#include <utility>
#include <vector>

namespace tfaot::mutants {
namespace {

// A value changes if it moves by more than this fraction of its tensor's
// largest and by more than this many times the effect of rounding. model.py and
// observer.h have the same numbers.
constexpr double kChanged = 1e-4;
constexpr double kNoise = 10;

Mutation chosen;
std::mt19937_64 bits;
std::map<std::pair<int, int>, char> survey;

// A value of the generated test.
struct Compared {
  double value;
  double noise;
  std::size_t tensor;
};
std::vector<Compared> compared;
std::vector<double> largest;  // by tensor
Mode mode = Mode::kRecord;
Counts counts;
std::size_t next_value = 0;
bool counting = false;
bool changed = false;  // the latest value

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

// Returns number `a` of the values for which `fits`, or null if there is none.
template <typename T, typename Fits>
T* Candidate(T* values, std::size_t count, Fits fits) {
  const auto all = std::count_if(values, values + count, fits);
  if (all == 0) return nullptr;
  for (auto left = chosen.a % all;; ++values) {
    if (fits(*values) && left-- == 0) return values;
  }
}

template <typename T>
T Narrow(T value) {
  int exponent = 0;
  const T fraction = std::frexp(value, &exponent);
  return std::ldexp(std::nearbyint(fraction * 256), exponent - 8);
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
    case Kind::kNarrow:
      if constexpr (std::is_floating_point_v<T>) {
        std::transform(values, values + count, values, Narrow<T>);
      }
      break;
    case Kind::kDropRow:
      for (T* at = values; at + size <= values + count; at += size) {
        std::fill_n(at + m.a * m.columns, m.columns, T{});
      }
      break;
    case Kind::kDropColumn:
      for (T* row = values; row + m.columns <= values + count;
           row += m.columns) {
        row[m.a] = T{};
      }
      break;
    case Kind::kUnmask:
      if (T* const zero =
              Candidate(values, count, [](T v) { return v == T{}; })) {
        *zero = 1;
      }
      break;
    case Kind::kOffByOne:
      if (T* const positive =
              Candidate(values, count, [](T v) { return v >= 1; })) {
        *positive -= 1;
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
         kind == Kind::kSwapColumns || kind == Kind::kNarrow ||
         kind == Kind::kDropRow || kind == Kind::kDropColumn ||
         kind == Kind::kUnmask || kind == Kind::kOffByOne;
}

unsigned char* Changed(const void* data) {
  switch (chosen.dtype) {
    case 'd':
      return Mutated<double>(data);
    case 'i':
      return Mutated<std::int32_t>(data);
    case 'b':
      return Mutated<unsigned char>(data);
    default:
      return Mutated<float>(data);
  }
}

// What an operand holds, as Survey() has it, or 0 if it is all zero. Integers
// of 64 bits look like pairs of 32 bits.
char Letter(const void* data, std::size_t size) {
  const auto* const bytes = static_cast<const unsigned char*>(data);
  const auto zero = [](unsigned char byte) { return byte == 0; };
  if (std::all_of(bytes, bytes + size, zero)) return 0;
  bool words = size % 4 == 0;
  bool booleans = true;
  for (std::size_t i = 0; i < size; ++i) {
    booleans = booleans && bytes[i] <= 1;
    words = words && (bytes[i] == 0 || bytes[i] > 1 || i % 4 == 0);
  }
  if (booleans && !words) return 'b';
  if (size % 4 != 0) return '-';
  bool integers = true, mask = true, count = true, floats = true;
  for (std::size_t i = 0; i < size; i += 4) {
    std::int32_t integer = 0;
    float value = 0;
    std::memcpy(&integer, bytes + i, 4);
    std::memcpy(&value, bytes + i, 4);
    integers = integers && integer > -(1 << 24) && integer < 1 << 24;
    mask = mask && (value == 0 || value == 1);
    count = count && std::abs(value) < 1 << 24 && value == std::trunc(value);
    floats = floats && (value == 0 ||
                        (std::abs(value) > 1e-30 && std::abs(value) < 1e30));
  }
  return integers ? 'i' : mask ? 'm' : count ? 'c' : floats ? 'f' : '-';
}

template <typename T>
void RoundAll(T* values, std::size_t count, bool narrow) {
  for (std::size_t i = 0; i < count; ++i) {
    if (!std::isfinite(values[i])) continue;
    // Integers are counts and masks, which no order of sums rounds.
    if (values[i] == std::trunc(values[i])) continue;
    const bool up = bits() >> 63;
    if (narrow) {
      // By the largest error of a rounding.
      values[i] += std::ldexp(up ? values[i] : -values[i], -kBits - 1);
    } else {
      values[i] = std::nextafter(values[i], up ? INFINITY : -INFINITY);
    }
  }
}

void Rounded(char dtype, void* values, std::int64_t count) {
  const auto size = static_cast<std::size_t>(count);
  const bool narrow = kBits < 24 && chosen.a != 0;
  if (values == nullptr) return;
  if (dtype == 'f') RoundAll(static_cast<float*>(values), size, narrow);
  if (dtype == 'd') RoundAll(static_cast<double*>(values), size, false);
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

// Starts a variable with older values, or, in the first run, with zeros, or
// ones if they were zeros.
void Restart(unsigned char* argument, const std::string& first, bool zero) {
  if (!zero) {
    std::memcpy(argument, first.data(), first.size());
    return;
  }
  std::memset(argument, 0, first.size());
  if (first.find_first_not_of('\0') != std::string::npos) return;
  if (chosen.dtype == 'f') {
    std::fill_n(reinterpret_cast<float*>(argument), first.size() / 4, 1.0f);
  } else {
    argument[0] = 1;
  }
}

}  // namespace

void Choose(const Mutation& mutation) {
  chosen = mutation;
  bits.seed(static_cast<std::uint64_t>(mutation.value));
}

const Mutation& Chosen() { return chosen; }

void Round(float* values, std::size_t count) { RoundAll(values, count, false); }
void Round(double* values, std::size_t count) {
  RoundAll(values, count, false);
}

const std::map<std::pair<int, int>, char>& Survey() { return survey; }

void Count(Mode next) {
  mode = next;
  next_value = 0;
  counts = Counts();
}

Counts Counted() { return counts; }

void Tensor(bool wanted) {
  counting = wanted;
  changed = false;
  if (mode == Mode::kRecord) largest.push_back(0);
}

void Value(double got, bool integer) {
  if (!counting) return;
  if (mode == Mode::kRecord) {
    compared.push_back({got, 0, largest.size() - 1});
    if (!integer && std::isfinite(got)) {
      largest.back() = std::max(largest.back(), std::abs(got));
    }
    return;
  }
  if (next_value == compared.size()) std::abort();
  Compared& was = compared[next_value++];
  const bool same =
      got == was.value || (std::isnan(got) && std::isnan(was.value));
  double difference = same ? 0 : std::abs(got - was.value);
  if (std::isnan(difference)) difference = INFINITY;
  if (mode == Mode::kRounding) was.noise = std::max(was.noise, difference);
  changed = mode == Mode::kCompare && difference > kNoise * was.noise &&
            difference > kChanged * largest[was.tensor];
  counts.changed += changed;
}

void Off() { counts.noticed += changed; }

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
  if (chosen.kind == Kind::kSurvey) {
    for (std::size_t i = 0; i < call->num_args; ++i) {
      const std::pair<int, int> key(site, i);
      if (survey.count(key) > 0) continue;
      const char letter = Letter(call->args[i].data, call->args[i].size);
      if (letter != 0) survey[key] = letter;
    }
    return call;
  }
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
  const Mutation& m = chosen;
  const bool exchange = m.kind == Kind::kExchange;
  if ((!exchange && m.kind != Kind::kState && m.kind != Kind::kFlip) ||
      m.site != site) {
    return body(instance);
  }
  const std::size_t buffers =
      program.num_args + program.num_memory + program.num_constants;
  std::vector<unsigned char*> data(instance.buffers,
                                   instance.buffers + buffers);
  unsigned char*& argument = data[static_cast<std::size_t>(m.a)];
  const auto size = static_cast<std::size_t>(m.count);
  if (exchange) {
    std::swap(argument, data[static_cast<std::size_t>(m.b)]);
  } else if (m.kind == Kind::kFlip) {
    // A run may write only to its own variables. m.rows says that this is one.
    if (m.rows == 0) argument = Copy<unsigned char>(argument, size);
    argument[m.b] ^= static_cast<unsigned char>(m.value);
  } else {
    static std::map<const void*, std::pair<std::string, std::int64_t>> runs;
    auto& [first, count] = runs[instance.buffers];
    if (count == 0) first.assign(argument, argument + size);
    if (count == m.b) Restart(argument, first, count == 0);
    ++count;
  }
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
