// The C interface of one generated class. The build compiles this file for each
// shared library, and defines
//
//   TFAOT_CLASS         the class, such as examples::fc::Fc
//   TFAOT_CLASS_HEADER  the header that declares it, quoted
//   TFAOT_GET_API       the one symbol that the library exports
#include "tfaot/c_api.h"

#include <cstdint>

#include "tfaot/c_api_describe.h"
#include "tfaot/c_api_run.h"
#include "tfaot/c_api_weights.h"

namespace tfaot {
namespace {

constexpr tfaot_api kApi = {
    sizeof(tfaot_api),
    TFAOT_API_VERSION,
    DescribeModel,
    DescribeEntryPoint,
    DescribeInput,
    DescribeOutput,
    DescribeVariable,
    Create,
    CreateError,
    Destroy,
    InputValues,
    OutputValues,
    VariableValues,
    MutableVariableValues,
    OutputDims,
    OfferInput,
    Run,
    LoadPath,
    SaveVariables,
    SeedRandom,
    Error,
    Isa,
    SetThreads,
    SetThreadPool,
    CreateWith,
    LoadFrom,
    SetInputData,
    SetOutputData,
    SetHooks,
    SetCancellable,
    Cancel,
    MadeInitialWeights,
    LoadedWeights,
    CurrentWeights,
    UpdateWeights,
    DestroyWeights,
    WeightsVersion,
    SetWeights,
    CreateLive,
    LiveSwap,
    LiveLoad,
    LiveUpdate,
    LiveCurrent,
    DestroyLive,
    Follow,
    SetCollectives,
    DescribeGradient,
};

}  // namespace
}  // namespace tfaot

extern "C" [[gnu::visibility("default")]] const tfaot_api* TFAOT_GET_API(
    std::uint32_t version) {
  return version >= 1 && version <= TFAOT_API_VERSION ? &tfaot::kApi : nullptr;
}
