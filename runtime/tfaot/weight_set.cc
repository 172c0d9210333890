#include "tfaot/weight_set.h"

#include <algorithm>
#include <atomic>
#include <cstring>
#include <new>
#include <set>
#include <string_view>
#include <utility>
#include <vector>

#include "tfaot/files.h"
#include "tfaot/mapped_file.h"
#include "tfaot/message.h"
#include "tfaot/safetensors.h"

namespace tfaot {
namespace {

using files::Allocate;
using files::Block;
using files::kAlignment;
using files::Map;
using files::NewFile;
using files::Release;
using files::RoundUp;
using files::SystemError;
using files::TakeAccess;
using files::Write;
using safetensors::Member;
using safetensors::Piece;
using safetensors::Shown;
using safetensors::Tensor;

// How many tensors an error shows.
constexpr std::size_t kMaxShownTensors = 20;

// The address of empty values.
alignas(kAlignment) unsigned char nothing[kAlignment];

// A variable's dimensions, as a range.
struct Dims {
  const VariableInfo& info;
  const std::int64_t* begin() const { return info.dims; }
  const std::int64_t* end() const { return info.dims + info.rank; }
};

std::string Signature(const VariableInfo& info) {
  return safetensors::Signature(info.dtype, Dims{info});
}

bool Matches(const Tensor& tensor, const VariableInfo& info) {
  const Dims dims{info};
  return tensor.dtype == info.dtype &&
         std::equal(tensor.shape.begin(), tensor.shape.end(), dims.begin(),
                    dims.end(), [](std::uint64_t a, std::int64_t b) {
                      return a == static_cast<std::uint64_t>(b);
                    });
}

// Returns one line of an error about variables that don't fit.
std::string Mismatch(const Tensor& tensor, const VariableInfo& info) {
  return std::string(info.name) + ": " +
         safetensors::Signature(tensor.dtype, tensor.shape) +
         "; the model has " + Signature(info);
}

// Finds the tensor of each variable, or nullptr for an optional one that the
// file lacks.
Status Match(const MappedFile& file, const VariableInfo* infos,
             std::size_t count, std::vector<const Tensor*>* matched) {
  std::vector<std::string> wrong;
  std::set<std::string_view> names;
  bool missing = false;
  for (std::size_t i = 0; i < count; ++i) {
    const VariableInfo& info = infos[i];
    names.insert(info.name);
    const Tensor* const found = file.Find(info.name);
    matched->push_back(found);
    if (found == nullptr && !info.optional) {
      wrong.push_back(std::string(info.name) + ": missing; the model has " +
                      Signature(info));
      missing = true;
    }
    if (found != nullptr && !Matches(*found, info)) {
      wrong.push_back(Mismatch(*found, info));
    }
  }
  if (wrong.empty()) return Status();
  // List what could have been meant.
  std::string also;
  std::size_t others = 0;
  for (const Tensor& tensor : file.tensors) {
    if (!missing || names.count(tensor.name) > 0) continue;
    if (++others > kMaxShownTensors) continue;
    also += (also.empty() ? "also in the file: " : ", ") + Shown(tensor.name) +
            " " + safetensors::Signature(tensor.dtype, tensor.shape);
  }
  if (others > kMaxShownTensors) {
    also += ", and " + std::to_string(others - kMaxShownTensors) + " more";
  }
  return Status(
      Code::kMismatch,
      Message(file.name +
                  " doesn't fit the model: " + std::to_string(wrong.size()) +
                  " of " + std::to_string(count) + " variable(s)",
              also,
              "write a file with every variable of the model, under its name "
              "and with its dtype and shape",
              wrong));
}

// Runs `work`, which returns a status. If the program has exceptions, running
// out of memory is an error like any other.
template <typename Work>
Status WithinMemory(const std::string& what, Work work) {
#if defined(__cpp_exceptions)
  try {
    return work();
  } catch (const std::bad_alloc&) {
    return Status(Code::kOutOfMemory,
                  Message(what, "out of memory",
                          "free memory, or raise the limit of this process"));
  }
#else
  static_cast<void>(what);
  return work();
#endif
}

std::uint64_t NextVersion() {
  static std::atomic<std::uint64_t> last{0};
  return ++last;
}

// Refers to memory that outlives every set.
std::shared_ptr<const unsigned char> Unowned(const unsigned char* data) {
  return std::shared_ptr<const unsigned char>(
      std::shared_ptr<const unsigned char>(), data);
}

// Shares the ownership of a block.
std::shared_ptr<unsigned char> Share(Block block) {
  const Release release = block.get_deleter();
  return std::shared_ptr<unsigned char>(block.release(), release);
}

bool IsAligned(const unsigned char* data) {
  return reinterpret_cast<std::uintptr_t>(data) % kAlignment == 0;
}

// A C++ bool has no values other than 0 and 1.
bool IsBool(const VariableInfo& info, const unsigned char* values) {
  return std::strcmp(info.dtype, "BOOL") != 0 ||
         std::all_of(values, values + info.bytes,
                     [](unsigned char byte) { return byte <= 1; });
}

std::shared_ptr<WeightSet> NewSet(const VariableInfo* infos,
                                  std::size_t count) {
  std::shared_ptr<WeightSet> set(new WeightSet());
  set->infos = infos;
  set->count = count;
  set->values.resize(count);
  set->loaded = true;
  set->version = NextVersion();
  return set;
}

}  // namespace

Weights InitialWeights(const VariableInfo* infos, std::size_t count,
                       const unsigned char* embedded) {
  const auto set = NewSet(infos, count);
  set->loaded = embedded != nullptr;
  const unsigned char* data = nullptr;
  if (embedded != nullptr) {
    std::uint64_t header = 0;
    std::memcpy(&header, embedded, sizeof(header));
    data = embedded + sizeof(header) + header;
  }
  // What isn't used in place: values that the model reads and that aren't
  // aligned, and zeros.
  std::uint64_t bytes = 0;
  const auto place = [&](bool add) {
    std::uint64_t next = 0;
    std::shared_ptr<unsigned char> block;
    if (add && bytes > 0) {
      Block memory = data != nullptr ? nullptr : Map(bytes, -1);
      if (!memory) {
        memory = Allocate(bytes);  // or throws
        if (data == nullptr) std::memset(memory.get(), 0, bytes);
      }
      block = Share(std::move(memory));
    }
    for (std::size_t i = 0; i < count; ++i) {
      const VariableInfo& info = infos[i];
      WeightSet::Value& value = set->values[i];
      const unsigned char* const there = data ? data + info.offset : nullptr;
      if (info.bytes == 0) {
        value = {Unowned(nothing), true};
      } else if (there != nullptr && (info.written || IsAligned(there))) {
        value = {Unowned(there), true};
      } else {
        if (add) {
          if (there != nullptr) {
            std::memcpy(block.get() + next, there, info.bytes);
          }
          value = {{block, block.get() + next}, true};
        }
        next += RoundUp(info.bytes);
      }
    }
    bytes = next;
  };
  place(false);
  place(true);
  return Weights(set);
}

Status LoadWeights(const Source& source, const WeightSet& base,
                   Weights* weights) {
  const auto load = [&] {
    Status status;
    const std::unique_ptr<MappedFile> file =
        OpenFile(source, Purpose::kLoad, &status);
    if (file == nullptr) return status;
    std::vector<const Tensor*> tensors;
    status = Match(*file, base.infos, base.count, &tensors);
    if (!status) return status;

    const auto set = NewSet(base.infos, base.count);
    const std::shared_ptr<unsigned char> mapping =
        file->mapping ? Share(std::move(file->mapping)) : nullptr;
    // Whether a value can be used where it is. What the model writes is copied
    // into each instance, from any address.
    const auto in_place = [&](std::size_t i) {
      const unsigned char* const data = file->data;
      return data != nullptr && !source.copied &&
             (base.infos[i].written || IsAligned(data + tensors[i]->begin));
    };
    std::uint64_t bytes = 0;
    for (std::size_t i = 0; i < base.count; ++i) {
      if (tensors[i] == nullptr || in_place(i)) continue;
      bytes += RoundUp(base.infos[i].bytes);
    }
    std::shared_ptr<unsigned char> copies;
    if (bytes > 0) {
      Block block = Map(bytes, -1);
      if (!block) {
        return Status(
            Code::kOutOfMemory,
            Message(file->name + " can't be loaded", SystemError(),
                    "free " + std::to_string(bytes) +
                        " bytes of memory, or align the file's tensors to 64 "
                        "bytes, so that they aren't copied"));
      }
      copies = Share(std::move(block));
    }
    unsigned char* next = copies.get();
    for (std::size_t i = 0; i < base.count; ++i) {
      const VariableInfo& info = base.infos[i];
      const Tensor* const tensor = tensors[i];
      WeightSet::Value& value = set->values[i];
      if (tensor == nullptr) {
        value = {base.values[i].data, false};
        continue;
      }
      if (info.bytes == 0) {
        value = {Unowned(nothing), true};
        continue;
      }
      if (in_place(i)) {
        value = {{mapping, file->data + tensor->begin}, true};
      } else {
        status = file->Copy(*tensor, next);
        if (!status) return status;
        value = {{copies, next}, true};
        next += RoundUp(info.bytes);
      }
      if (!IsBool(info, value.data.get())) {
        return Status(Code::kBadFile,
                      Message(file->name + " contradicts itself",
                              std::string(info.name) +
                                  " is bool, with values other than 0 and 1",
                              "write it again"));
      }
    }
    *weights = Weights(set);
    return Status();
  };
  return WithinMemory(Name(source) + " can't be loaded", load);
}

Status CheckWeights(const Weights& weights, const VariableInfo* infos) {
  if (weights && weights.set()->infos == infos) return Status();
  return Status(
      Code::kMismatch,
      Message("these weights can't be used",
              weights ? "weights of another model" : "a handle to no weights",
              "pass weights that this model's class has made"));
}

std::uint64_t Weights::version() const noexcept {
  return set_ != nullptr ? set_->version : 0;
}

Status Weights::Update(const NamedValue* values, std::size_t count,
                       Weights* updated) const {
  const auto update = [&] {
    if (set_ == nullptr) {
      return Status(Code::kNoWeights, Message("an update of no weights", "",
                                              "call it on weights of a model"));
    }
    const VariableInfo* const infos = set_->infos;
    std::vector<std::string> wrong;
    std::vector<std::size_t> found(count);
    for (std::size_t i = 0; i < count; ++i) {
      const NamedValue& value = values[i];
      found[i] = set_->count;
      if (value.name == nullptr) {
        wrong.push_back("value " + std::to_string(i) + ": a name of nullptr");
        continue;
      }
      std::size_t at = 0;
      while (at < set_->count && std::strcmp(infos[at].name, value.name) != 0) {
        ++at;
      }
      found[i] = at;
      if (at == set_->count) {
        wrong.push_back(Shown(value.name) +
                        ": the model has no variable of this name");
      } else if (value.bytes != infos[at].bytes) {
        wrong.push_back(Shown(value.name) + ": " + std::to_string(value.bytes) +
                        " bytes; the model has " + Signature(infos[at]) +
                        " of " + std::to_string(infos[at].bytes));
      } else if (value.data == nullptr && value.bytes > 0) {
        wrong.push_back(Shown(value.name) + ": values at nullptr");
      } else if (!IsBool(infos[at],
                         static_cast<const unsigned char*>(value.data))) {
        wrong.push_back(Shown(value.name) +
                        ": bool, with values other than 0 and 1");
      }
    }
    if (!wrong.empty()) {
      std::string names;
      for (std::size_t i = 0; i < set_->count && i < kMaxShownTensors; ++i) {
        names += (i > 0 ? ", " : "") + Shown(infos[i].name);
      }
      if (set_->count > kMaxShownTensors) {
        names +=
            ", and " + std::to_string(set_->count - kMaxShownTensors) + " more";
      }
      return Status(Code::kMismatch,
                    Message("an update doesn't fit the model: " +
                                std::to_string(wrong.size()) + " of " +
                                std::to_string(count) + " value(s)",
                            "variables " + names,
                            "pass TensorFlow's names, and as many bytes as "
                            "each variable has",
                            wrong));
    }
    const std::shared_ptr<WeightSet> set(new WeightSet(*set_));
    set->version = NextVersion();
    std::uint64_t bytes = 0;
    for (const std::size_t at : found) bytes += RoundUp(infos[at].bytes);
    const std::shared_ptr<unsigned char> block =
        bytes > 0 ? Share(Allocate(bytes)) : nullptr;
    unsigned char* next = block.get();
    for (std::size_t i = 0; i < count; ++i) {
      if (values[i].bytes == 0) continue;
      std::memcpy(next, values[i].data, values[i].bytes);
      set->values[found[i]] = {{block, next}, true};
      next += RoundUp(values[i].bytes);
    }
    *updated = Weights(set);
    return Status();
  };
  return WithinMemory("the weights can't be updated", update);
}

LiveWeights::LiveWeights(Weights weights) noexcept
    : newest_(std::move(weights)),
      current_(newest_.set().get()),
      version_(newest_.version()) {}

Weights LiveWeights::Current() const noexcept {
  takers_.fetch_add(1);
  const WeightSet* const set = current_.load();
  Weights weights(set != nullptr ? set->shared_from_this() : nullptr);
  takers_.fetch_sub(1);
  return weights;
}

Status LiveWeights::Publish(Weights next, Weights* previous) {
  return WithinMemory("weights can't be made current", [&] {
    if (next.set() != newest_.set()) {
      retired_.emplace_back();  // or throws
      retired_.back() = newest_;
      newest_ = next;
      retired_.erase(std::remove_if(retired_.begin(), retired_.end(),
                                    [&](const Weights& old) {
                                      return old.set() == next.set();
                                    }),
                     retired_.end());
      current_.store(newest_.set().get());
      version_.store(newest_.version(), std::memory_order_release);
      if (previous != nullptr) *previous = retired_.back();
    } else if (previous != nullptr) {
      *previous = newest_;
    }
    ReleaseUnused();
    return Status();
  });
}

// What is retired isn't in current_, so nobody can take it there. But who has
// taken it before may not own it yet. If nobody is at that, and only retired_
// owns it, it stays so.
void LiveWeights::ReleaseUnused() noexcept {
  if (takers_.load() != 0) return;
  retired_.erase(std::remove_if(retired_.begin(), retired_.end(),
                                [](const Weights& old) {
                                  return old.set().use_count() == 1;
                                }),
                 retired_.end());
}

void LiveWeights::Reclaim() noexcept {
  const std::lock_guard<std::mutex> lock(publishing_);
  ReleaseUnused();
}

Status LiveWeights::Swap(Weights next, Weights* previous) {
  const std::lock_guard<std::mutex> lock(publishing_);
  Status status = CheckWeights(next, newest_ ? newest_.set()->infos : nullptr);
  return status ? Publish(std::move(next), previous) : status;
}

Status LiveWeights::Load(const Source& source) {
  const Weights base = Current();
  if (!base) {
    return Status(Code::kNoWeights,
                  Message("a load into live weights that refer to no model", "",
                          "make them from weights of a model"));
  }
  Weights next;
  Status status = LoadWeights(source, *base.set(), &next);
  return status ? Swap(std::move(next)) : status;
}

Status LiveWeights::Update(const NamedValue* values, std::size_t count) {
  const std::lock_guard<std::mutex> lock(publishing_);
  Weights next;
  Status status = newest_.Update(values, count, &next);
  return status ? Publish(std::move(next), nullptr) : status;
}

namespace {

Status Save(const char* path, const VariableInfo* infos, std::size_t count,
            const unsigned char* const* values) {
  const auto fail = [&](const std::string& found, const std::string& to_do,
                        Code code = Code::kFileAccess,
                        const std::vector<std::string>& details = {}) {
    return Status(code, Message(path + std::string(" can't be saved"), found,
                                to_do, details));
  };

  // Find what exists and must stay next to the model's own tensors.
  files::FileStatus status;
  const bool replaces = files::GetStatus(path, &status);
  if (replaces && !files::IsRegular(status)) {
    return fail(
        "the path exists but isn't a regular file",
        "pass the path of a regular file, or one that doesn't exist yet");
  }
  std::unique_ptr<MappedFile> old;
  if (replaces && status.st_size > 0) {
    Status opened;
    old = OpenFile(Source::Path(path), Purpose::kSaveOver, &opened);
    if (old == nullptr) return opened;
    status = old->status;
  }

  std::vector<Piece> pieces;
  std::set<std::string_view> names;
  std::vector<std::string> wrong;
  for (std::size_t i = 0; i < count; ++i) {
    const VariableInfo& info = infos[i];
    names.insert(info.name);
    pieces.push_back(
        {Member(info.name, info.dtype, Dims{info}), values[i], info.bytes});
    const Tensor* const there = old ? old->Find(info.name) : nullptr;
    if (there != nullptr && !Matches(*there, info)) {
      wrong.push_back(Mismatch(*there, info));
    }
  }
  if (!wrong.empty()) {
    return fail("an existing file that doesn't fit the model",
                "save to another path, or remove that file", Code::kMismatch,
                wrong);
  }
  if (old != nullptr) {
    for (const Tensor& tensor : old->tensors) {
      if (names.count(tensor.name) > 0) continue;
      pieces.push_back({Member(tensor.name, tensor.dtype, tensor.shape),
                        old->data + tensor.begin, tensor.end - tensor.begin});
    }
  }
  const std::string start = safetensors::Start(
      old ? old->metadata : std::string_view(), kAlignment, &pieces);
  std::uint64_t size = start.size();
  for (const Piece& piece : pieces) size += piece.bytes;

  const std::string_view name(path);
  const std::string folder(name.substr(0, name.rfind('/') + 1));
  NewFile file(folder, replaces ? 0600 : 0666);
  bool saved = file.fd() >= 0 && Write(file.fd(), start.data(), start.size());
  for (const Piece& piece : pieces) {
    saved = saved && Write(file.fd(), piece.data, piece.bytes);
  }
  saved = saved && (!replaces || TakeAccess(file.fd(), status)) &&
          files::Sync(file.fd()) && file.Replace(path);
  if (!saved) {
    return fail(
        SystemError(),
        "pass a path in a folder that exists, that this process can write to, "
        "and that has space for " +
            std::to_string(size) + " bytes");
  }
  // The new name should also survive a power failure.
  files::SyncFolder(folder);
  return Status();
}

}  // namespace

Status SaveValues(const char* path, const VariableInfo* infos,
                  std::size_t count, const unsigned char* const* values) {
  return WithinMemory(path + std::string(" can't be saved"),
                      [&] { return Save(path, infos, count, values); });
}

}  // namespace tfaot
