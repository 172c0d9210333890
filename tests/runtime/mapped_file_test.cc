// Protects a running program from files: if one doesn't fit the model or is
// broken in any way, the error says everything, and nothing changes.
#include <fcntl.h>
#include <sys/stat.h>
#include <unistd.h>

#include <cstdint>
#include <filesystem>
#include <random>
#include <string>
#include <vector>

#include "tests/runtime/expect.h"
#include "tests/runtime/files.h"
#include "tests/runtime/limits.h"
#include "tests/runtime/owned_variables.h"

using tests::Variables;
using tfaot::VariableInfo;

namespace {

constexpr std::int64_t kMatrix[] = {2, 3};
constexpr std::int64_t kPair[] = {2};
constexpr std::int64_t kNone[] = {0, 4};
constexpr VariableInfo kModel[] = {
    {"a/matrix", "F32", kMatrix, 2, 24, 0, true},
    {"gr\xc3\xb6\xc3\x9f"
     "e",
     "BOOL", kPair, 1, 2, 0, false},
    {"none", "F64", kNone, 2, 0, 0, false},
    {"step", "I64", nullptr, 0, 8, 0, true},
};
constexpr std::size_t kCount = 4;

const std::string kMembers = Member("a/matrix", "F32", "2,3", 0, 24) + "," +
                             Member("step", "I64", "", 24, 32) + "," +
                             Member("none", "F64", "0,4", 32, 32) + "," +
                             Member(
                                 "gr\\u00f6\xc3\x9f"
                                 "e",
                                 "BOOL", "2", 32, 34);

std::string Data() {
  std::string data;
  for (int i = 0; i < 6; ++i) data += Bytes(static_cast<float>(i) + 0.5f);
  return data + Bytes(std::int64_t{41}) + std::string("\1\0", 2);
}

// What a file that fails to load must not change.
bool Unchanged(const Variables& variables) {
  return *static_cast<const float*>(variables.data(0)) == 7 &&
         !variables.loaded();
}

// Returns the error for a file with these bytes, whose path becomes FILE. Empty
// if it loads.
std::string ErrorOf(const std::string& bytes) {
  const std::string path = Written("FILE", bytes);
  Variables variables(kModel, kCount, nullptr);
  *static_cast<float*>(variables.mutable_data(0)) = 7;
  const bool loaded = variables.Load(path.c_str());
  std::string error = variables.error();
  EXPECT(loaded == error.empty());
  EXPECT(loaded ? variables.loaded() : Unchanged(variables));
  const std::size_t at = error.find(path);
  return at == 0 ? error.substr(Folder().size() + 1) : error;
}

void ExpectError(const std::string& bytes, const std::string& wanted) {
  const std::string error = ErrorOf(bytes);
  EXPECT(error == wanted);
  if (error != wanted) std::printf("got:\n%s\n", error.c_str());
}

std::string HeaderError(const std::string& header) {
  return ErrorOf(File(header, Data()));
}

void TestGoodFile() {
  const std::string path =
      Written("good", AlignedFile("{" + kMembers + "}", Data()));
  Variables variables(kModel, kCount, nullptr);
  EXPECT(variables.Load(path.c_str()));
  EXPECT(static_cast<const float*>(variables.data(0))[5] == 5.5f);
  EXPECT(static_cast<const bool*>(variables.data(1))[0]);
  EXPECT(!static_cast<const bool*>(variables.data(1))[1]);
  EXPECT(*static_cast<const std::int64_t*>(variables.data(3)) == 41);
}

void TestMismatch() {
  // Every mismatch at once, and what could have been meant.
  const std::string others = Member("b/matrix", "F32", "2,3", 0, 24) + "," +
                             Member("gr\\u00f6\\u00dfe", "U8", "2", 24, 26) +
                             "," + Member("eight", "F8_E4M3", "1", 26, 27) +
                             "," + Member("step", "F64", "1", 27, 35) + "," +
                             Member("a\\nb", "I16", "", 35, 37);
  ExpectError(
      File("{" + others + "}", std::string(37, '\0')),
      "FILE doesn't fit the model: 4 of 4 variable(s)\n"
      "\n"
      "    a/matrix: missing; the model has float32[2, 3]\n"
      "    gr\xc3\xb6\xc3\x9f"
      "e: uint8[2]; the model has bool[2]\n"
      "    none: missing; the model has float64[0, 4]\n"
      "    step: float64[1]; the model has int64[]\n"
      "\n"
      "  found: also in the file: b/matrix float32[2, 3], eight F8_E4M3[1], "
      "a\\nb int16[]\n"
      "  to do: write a file with every variable of the model, under its name "
      "and with its dtype and shape");
  // Additional tensors in the file matter only if something is missing.
  ExpectError(File("{" + kMembers + "," + Member("more", "I8", "1", 34, 35) +
                       "," + Member("more2", "I8", "1", 35, 36) + "}",
                   Data() + "xx"),
              "");
  std::string wrong = "{" + kMembers + "," + Member("more", "I8", "", 34, 35);
  wrong.replace(wrong.find("[2,3]"), 5, "[6,1]");
  ExpectError(
      File(wrong + "}", Data() + "x"),
      "FILE doesn't fit the model: 1 of 4 variable(s)\n"
      "\n"
      "    a/matrix: float32[6, 1]; the model has float32[2, 3]\n"
      "\n"
      "  to do: write a file with every variable of the model, under its name "
      "and with its dtype and shape");
  ExpectError(
      File("{}", ""),
      "FILE doesn't fit the model: 4 of 4 variable(s)\n"
      "\n"
      "    a/matrix: missing; the model has float32[2, 3]\n"
      "    gr\xc3\xb6\xc3\x9f"
      "e: missing; the model has bool[2]\n"
      "    none: missing; the model has float64[0, 4]\n"
      "    step: missing; the model has int64[]\n"
      "\n"
      "  to do: write a file with every variable of the model, under its name "
      "and with its dtype and shape");
}

void TestNoFile() {
  const std::string again =
      "\n  to do: pass a safetensors file that this process may read";
  Variables variables(kModel, kCount, nullptr);
  EXPECT(!variables.Load("/nonexistent/file"));
  EXPECT(variables.error() ==
         "/nonexistent/file can't be opened\n  found: No such file or "
         "directory" +
             again);
  EXPECT(!variables.Load(Folder().c_str()));
  EXPECT(variables.error() == Folder() + " isn't a regular file" + again);
  // A pipe must not make it wait for a writer.
  EXPECT(mkfifo(Path("pipe").c_str(), 0600) == 0);
  EXPECT(!variables.Load(Path("pipe").c_str()));
  EXPECT(variables.error() == Path("pipe") + " isn't a regular file" + again);
}

void TestContradictions() {
  const std::string again = "\n  to do: write it again";
  const std::string cut = "FILE is truncated, or isn't a safetensors file\n";
  ExpectError("", cut + "  found: 0 bytes" + again);
  ExpectError("1234567", cut + "  found: 7 bytes" + again);
  ExpectError(Bytes(std::uint64_t{3}) + "{}",
              cut + "  found: a header of 3 bytes in a file of 10" + again);
  ExpectError(
      Bytes(~std::uint64_t{0}) + "{}",
      cut + "  found: a header of 18446744073709551615 bytes in a file of 10" +
          again);
  ExpectError(File("{" + kMembers + "}", Data().substr(0, 33)),
              "FILE is truncated\n  found: gr\\u00f6\\u00dfe is at bytes 32 to "
              "34, and the file ends at 33" +
                  again);

  const auto one = [&](const std::string& member, const std::string& found) {
    ExpectError(File("{" + member + "}", Data()),
                "FILE contradicts itself\n  found: " + found + again);
  };
  one(Member("x", "F32", "1", 8, 4), "x is at bytes 8 to 4");
  one(Member("x", "F32", "2", 0, 4),
      "x is at bytes 0 to 4, which isn't the size of float32[2]");
  one(Member("x", "F32", "", 0, 3),
      "x is at bytes 0 to 3, which isn't the size of float32[]");
  // Sizes that are correct only modulo 2^64.
  one(Member("x", "U8", "4294967296,4294967296", 0, 0),
      "x is at bytes 0 to 0, which isn't the size of uint8[4294967296, "
      "4294967296]");
  one(Member("x", "F64", "2305843009213693953", 0, 8),
      "x is at bytes 0 to 8, which isn't the size of "
      "float64[2305843009213693953]");
  one(Member("x", "U8", "4", 0, 4) + "," + Member("y", "U8", "4", 3, 7),
      "x and y overlap");
  one(Member("x", "U8", "2", 1, 3) + "," + Member("y", "U8", "4", 0, 4),
      "y and x overlap");
  one(Member("x", "U8", "1", 0, 1) + "," + Member("x", "U8", "1", 1, 2),
      "x appears twice in its header");
  // Empty tensors never overlap, however large their other sizes are.
  for (const char* shape :
       {"0,4294967296,4294967296", "4294967296,4294967296,0"}) {
    EXPECT(HeaderError("{" + kMembers + "," + Member("x", "U8", shape, 3, 3) +
                       "}") == "");
  }
  ExpectError(
      File("{" + Member("x", "U8", "1", 0, ~std::uint64_t{0}) + "}", Data()),
      "FILE is truncated\n  found: x is at bytes 0 to 18446744073709551615, "
      "and the file ends at 34" +
          again);

  // C++ has no third bool value.
  std::string data = Data();
  data[32] = 2;
  ExpectError(File("{" + kMembers + "}", data),
              "FILE contradicts itself\n  found: gr\xc3\xb6\xc3\x9f"
              "e is bool, with values other than 0 and 1" +
                  again);
}

void TestHeadersThatAreJson() {
  const auto with = [](const std::string& more) {
    EXPECT(HeaderError("{" + more + "," + kMembers + "}") == "");
    EXPECT(HeaderError("{" + kMembers + "," + more + "}") == "");
  };
  with("\"__metadata__\":{\"format\":\"pt\"}");
  with("\"__metadata__\":null");
  with("\"__metadata__\":[true,false,-0,0.5e+7,[{\"\\u0000\":{}}],\"\"]");
  with(
      " \t\r\n\"x\" : { \"data_offsets\" : [ 0 , 0 ] , \"new\" : [ ] ,"
      " \"shape\" : [ 0 ] , \"dtype\" : \"U8\" } \n");
  // All ways to write a name.
  for (const char* name :
       {"s\\u0074ep", "\\u0073\\u0074\\u0065\\u0070", "step"}) {
    EXPECT(HeaderError("{" + Member("a\\/matrix", "F\\u00332", "2,3", 0, 24) +
                       "," + Member(name, "I64", "", 24, 32) + "," +
                       Member("none", "F64", "0,4", 32, 32) + "," +
                       Member("gr\\u00F6\\u00dfe", "BOOL", "2", 32, 34) +
                       "}") == "");
  }
  EXPECT(HeaderError("\n {" + kMembers + "}\n\t \r") == "");
}

void TestNames() {
  // All kinds of characters, escaped and unescaped.
  const std::pair<const char*, const char*> names[] = {
      {"\\\"\\\\\\/\\b\\f\\n\\r\\t", "\"\\/\b\f\n\r\t"},
      {"\\u007f\\u0080\\u07ff\\u0800\\uffff",
       "\x7f\xc2\x80\xdf\xbf\xe0\xa0\x80\xef\xbf\xbf"},
      {"\x7f\xc2\x80\xdf\xbf\xe0\xa0\x80\xef\xbf\xbf",
       "\x7f\xc2\x80\xdf\xbf\xe0\xa0\x80\xef\xbf\xbf"},
      {"\\ud800\\udc00\\uDBFF\\uDFFF\\ud83d\\ude00",
       "\xf0\x90\x80\x80\xf4\x8f\xbf\xbf\xf0\x9f\x98\x80"},
      {"\xf0\x90\x80\x80\xf4\x8f\xbf\xbf", "\xf0\x90\x80\x80\xf4\x8f\xbf\xbf"},
      {"", ""},
  };
  for (const auto& [written, name] : names) {
    const VariableInfo info = {name, "U8", nullptr, 0, 1, 0, false};
    Variables variables(&info, 1, nullptr);
    const std::string path = Written(
        "names", File("{" + Member(written, "U8", "", 0, 1) + "}", "x"));
    EXPECT(variables.Load(path.c_str()));
  }
}

void TestHeadersThatAreNone() {
  const auto at = [](const std::string& header, std::size_t byte,
                     const char* expected) {
    const std::string wanted = "FILE isn't a safetensors file\n  found: byte " +
                               std::to_string(byte) + " of the header, where " +
                               expected + " should be\n  to do: write it again";
    const std::string error = HeaderError(header);
    EXPECT(error == wanted);
    if (error != wanted)
      std::printf("%s gives:\n%s\n", header.c_str(), error.c_str());
  };
  at("", 0, "{");
  at("oops", 0, "{");
  at("[]", 0, "{");
  at(std::string(9, '\0'), 0, "{");
  at("{", 1, "a string");
  at("{}x", 2, "the end");
  at("{} {}", 3, "the end");
  at("{,}", 1, "a string");
  at("{\"a\"}", 4, ":");
  at("{\"a\":1}", 5, "{");
  at("{\"__metadata__\":{},}", 19, "a string");
  at("{\"__metadata__\":{} \"a\"", 19, "} or a comma");
  at("{'a':1}", 1, "a string");
  // Values.
  const std::string start = "{\"__metadata__\":";
  for (const char* wrong : {"", "tru", "True", "nan", "+1", ".5", "]", "//"}) {
    at(start + wrong, 16, "a value");
  }
  at(start + "01", 18, "a number");
  at(start + "-", 17, "a number");
  at(start + "1.", 18, "a digit");
  at(start + "1e+", 19, "a digit");
  at(start + "[1,]", 19, "a value");
  at(start + "[1 2]", 19, "] or a comma");
  at(start + "1", 17, "} or a comma");
  // Strings.
  at("{\"a", 3, "the end of a string");
  at("{\"a\nb\"", 3, "a character in UTF-8");
  for (const char* wrong :
       {"\x80", "\xc1\xbf", "\xe0\x9f\xbf", "\xed\xa0\x80", "\xf0\x8f\xbf\xbf",
        "\xf4\x90\x80\x80", "\xf8", "\xc3", "\xe2\x82", "\xe2\x82x"}) {
    at(std::string("{\"") + wrong + "\"", 2, "a character in UTF-8");
    at(std::string("{\"") + wrong, 2, "a character in UTF-8");
  }
  at("{\"\\x\"", 2, "an escape");
  at("{\"\\", 2, "an escape");
  at("{\"\\u12", 2, "an escape");
  at("{\"\\u12g4\"", 2, "four hexadecimal digits");
  at("{\"\\udc00\"", 8, "a pair of surrogates");
  at("{\"\\ud800x\"     ", 8, "an escape");
  at("{\"\\ud800\\u0041\"", 14, "a pair of surrogates");
  // Tensors.
  const char* whole = "a tensor of dtype, shape, and two data_offsets";
  at("{\"a\":{}}", 7, whole);
  at("{\"a\":{\"dtype\":\"F32\",\"shape\":[]}}", 31, whole);
  at("{\"a\":{\"dtype\":\"F32\",\"data_offsets\":[0,4]}}", 41, whole);
  at("{\"a\":{\"shape\":[],\"data_offsets\":[0,4]}}", 38, whole);
  const std::string most = "{\"a\":{\"dtype\":\"F32\",\"shape\":[1],";
  at(most + "\"data_offsets\":[0]}}", 51, whole);
  at(most + "\"data_offsets\":[0,4,4]}}", 52, "no more than 2 offsets");
  at(most + "\"data_offsets\":4}}", 47, "[");
  at(most + "\"data_offsets\":[],\"data_offsets\":[0,4]}}", 65, "another key");
  at(most + "\"shape\":[1]}}", 40, "another key");
  at(most + "\"dtype\":\"F32\"}}", 40, "another key");
  at("{" + Member("a", "F32", "-1", 0, 4) + "}", 29, "a natural number");
  at("{" + Member("a", "F32", "01", 0, 4) + "}", 31, "a natural number");
  at("{" + Member("a", "F32", "1.0", 0, 4) + "}", 30, "] or a comma");
  at("{" + Member("a", "F32", "\"1\"", 0, 4) + "}", 29, "a natural number");
  at("{" + Member("a", "F32", "18446744073709551616", 0, 4) + "}", 49,
     "a number below 2^64");
  at("{" + Member("a", "F32", "99999999999999999999", 0, 4) + "}", 49,
     "a number below 2^64");
  // Nesting that would exhaust the stack.
  // A header that implies more memory than it takes itself.
  std::string sizes = "1";
  for (int i = 0; i < 253; ++i) sizes += ",1";
  EXPECT(ErrorOf(
             File("{" + kMembers + "," + Member("x", "U8", sizes, 34, 35) + "}",
                  Data() + "x")) == "");
  at("{" + Member("a", "F32", sizes + ",1", 0, 4) + "}", 29 + 508,
     "no more than 254 sizes");
  at("{\"__metadata__\":{},\"__metadata__\":{}}", 34, "another key");
  const char* flat = "a value with less nesting";
  at(start + std::string(1000000, '['), 16 + 65, flat);
  std::string objects;
  for (int i = 0; i < 100000; ++i) objects += "{\"\":";
  at(start + objects, 16 + 65 * 4, flat);
  at("{\"a\":{\"b\":" + std::string(1000000, '['), 10 + 64, flat);
}

// Errors go to terminals, logs, and web pages, so text from a file appears in
// printable ASCII, on one line, and with limited length.
void TestHostileText() {
  const std::string hostile =
      "\\u001b[31m\\n\x7f\xc2\x9b"
      "2J\xe2\x80\xae\xe2\x80\xa8\xf0\x9f\x98\x80\\u0000";
  const std::string shown =
      "\\u001b[31m\\n\\u007f\\u009b2J\\u202e\\u2028\\ud83d\\ude00\\u0000";
  const auto check = [&](const std::string& members, const std::string& found) {
    ExpectError(File("{" + members + "}", Data()),
                "FILE contradicts itself\n  found: " + found +
                    "\n  to do: write it again");
  };
  check(Member(hostile, "U8", "", 1, 0), shown + " is at bytes 1 to 0");
  check(Member(hostile, "U8", "", 0, 2),
        shown + " is at bytes 0 to 2, which isn't the size of uint8[]");
  check(Member(hostile, "U8", "", 0, 1) + "," + Member(hostile, "I8", "", 1, 2),
        shown + " appears twice in its header");
  check(Member(hostile, "U8", "2", 0, 2) + "," + Member("y", "I8", "", 1, 2),
        shown + " and y overlap");
  check(Member(std::string(1000, 'x'), "U8", "", 1, 0),
        std::string(200, 'x') + "... is at bytes 1 to 0");
  // A dtype that doesn't fit, and what else exists.
  std::string members = Member("step", hostile, "", 0, 0);
  for (int i = 0; i < 25; ++i) {
    members += "," + Member(hostile + std::to_string(i), "U8", "0", 0, 0);
  }
  const std::string error = HeaderError("{" + members + "}");
  EXPECT(error.find("    step: " + shown + "[]; the model has int64[]\n") !=
         error.npos);
  EXPECT(error.find(shown + "19 uint8[0], and 5 more\n") != error.npos);
  EXPECT(error.find(shown + "20") == error.npos);
}

// A file's claims cost neither memory nor an exception.
void TestLargeHeader() {
  // 8 GB that take no space on the disk.
  const std::uint64_t bytes = 8'000'000'000;
  const std::string path = Written("large", Bytes(bytes - 8));
  std::filesystem::resize_file(path, bytes);
  Variables variables(kModel, kCount, nullptr);
  EXPECT(!variables.Load(path.c_str()));
  EXPECT(variables.error() ==
         path +
             " has a header that is too large\n"
             "  found: 7999999992 bytes, and the limit is 100000000\n"
             "  to do: write it with fewer tensors, or with less metadata");
#if !defined(__SANITIZE_ADDRESS__)
  if (!LimitsMemory()) return;
  // The largest header that is accepted, without memory for it.
  std::string header = "{";
  while (header.size() < 99'000'000) {
    header += "\"\":{\"dtype\":\"\",\"shape\":[],\"data_offsets\":[0,0]},";
  }
  header.back() = '}';
  const std::string many = Written("many", File(header, ""));
  std::string().swap(header);
  EXPECT(Limited(RLIMIT_AS, Size(false) + (std::uint64_t{120} << 20), [&] {
           EXPECT(!variables.Load(many.c_str()));
           EXPECT(variables.error() ==
                  many +
                      " can't be loaded\n  found: out of memory\n"
                      "  to do: free memory, or raise the limit of this "
                      "process");
         }) == 0);
#endif
}

// Loads a file, and reads everything that it claims to contain.
bool LoadAndRead(const std::string& path) {
  Variables variables(kModel, kCount, nullptr);
  const bool loaded = variables.Load(path.c_str());
  unsigned sum = 0;
  for (std::size_t i = 0; i < kCount; ++i) {
    const auto* bytes = static_cast<const unsigned char*>(variables.data(i));
    for (std::uint64_t b = 0; b < kModel[i].bytes; ++b) sum += bytes[b];
  }
  EXPECT(loaded || sum == 0);
  EXPECT(loaded == (*variables.error() == '\0'));
  return loaded;
}

void TestBrokenAnywhere() {
  std::string good = AlignedFile(
      "{\"__metadata__\":{\"a\":[1,null]}," + kMembers + "}", Data());
  const std::string path = Written("broken", good);
  EXPECT(LoadAndRead(path));
  const int fd = open(path.c_str(), O_WRONLY);
  const auto put = [fd](std::size_t at, char byte) {
    EXPECT(pwrite(fd, &byte, 1, static_cast<off_t>(at)) == 1);
  };
  // Each byte, changed in many ways.
  int loaded = 0, refused = 0;
  for (std::size_t at = 0; at < good.size(); ++at) {
    for (const char byte :
         {'\0', '\xff', '"', '\\', '{', '}', '[', ']', ',', ':', '0', '9', ' ',
          static_cast<char>(good[at] ^ 1), static_cast<char>(good[at] ^ 0x80),
          static_cast<char>(good[at] + 1), static_cast<char>(good[at] - 1)}) {
      put(at, byte);
      ++(LoadAndRead(path) ? loaded : refused);
    }
    put(at, good[at]);
  }
  EXPECT(loaded > 100 && refused > 1000);
  EXPECT(LoadAndRead(path));
  // Several bytes at once, some copied from elsewhere in the file.
  std::mt19937 random(4);
  for (int round = 0; round < 20000; ++round) {
    std::size_t at[4];
    for (std::size_t& place : at) {
      place = random() % good.size();
      put(place, random() % 2 == 0 ? good[random() % good.size()]
                                   : static_cast<char>(random()));
    }
    LoadAndRead(path);
    for (const std::size_t place : at) put(place, good[place]);
  }
  EXPECT(LoadAndRead(path));
  // Truncated anywhere.
  for (std::size_t size = good.size(); size-- > 0;) {
    EXPECT(ftruncate(fd, static_cast<off_t>(size)) == 0);
    EXPECT(!LoadAndRead(path));
  }
  close(fd);
}

}  // namespace

int main() {
  TestGoodFile();
  TestMismatch();
  TestNoFile();
  TestContradictions();
  TestHeadersThatAreJson();
  TestNames();
  TestHeadersThatAreNone();
  TestHostileText();
  TestLargeHeader();
  TestBrokenAnywhere();
  return failed == 0 ? 0 : 1;
}
